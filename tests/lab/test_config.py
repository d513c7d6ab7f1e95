"""Configs and their words: every mistake is named at once, with the nearest right word.

These fail if a wrong field, value or encoding passes, or is named alone where there are several.
"""

import re

import pytest

from ropewalk.lab.config import Config, rule_of, slug
from ropewalk.lab.config_sources import make_config, read_run_config, read_setting
from ropewalk.lab.presets import PRESETS
from ropewalk.lab.training.checkpoints import training_fields


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_valid(preset):
    config = make_config(preset)
    assert config.preset == preset
    assert Config.model_validate(config.model_dump(mode="json")) == config


def test_base_presets_have_the_published_sizes():
    for preset in ("multi30k-base", "annotated"):
        config = make_config(preset)
        sizes = (config.encoder_layers, config.width, config.feed_forward, config.heads)
        assert sizes == (6, 512, 2048, 8)
    annotated = make_config("annotated")
    assert (annotated.batch_sentences, annotated.accumulate, annotated.epochs) == (32, 10, 30)
    assert (annotated.schedule, annotated.learning_rate) == ("noam", 1.0)


def test_all_mistakes_are_named_at_once():
    with pytest.raises(ValueError, match="wdith") as caught:
        make_config(settings={"wdith": 3, "heads": "x", "dropout": 2})
    said = str(caught.value)
    assert "'wdith' is not a field of a config; did you mean 'width'?" in said
    assert "heads must be an integer from 1 to 131072, got 'x'" in said
    assert "dropout must be a finite number of at least 0 and below 1, got 2" in said


def test_preset_file_and_settings_lie_over_one_another(tmp_path):
    file = tmp_path / "my.yaml"
    file.write_text("width: 64  # narrow\nbeam: 2\nencodings: [none, 'rotary(theta=1e6)']\n")
    config = make_config("quick", file, {"beam": 3})
    assert (config.width, config.beam) == (64, 3)
    assert config.encodings == ("none", "rotary(theta=1e6)")
    assert config.epochs == PRESETS["quick"]["epochs"]
    file.write_text("width: [")
    with pytest.raises(ValueError, match="neither YAML nor JSON"):
        make_config(file=file)
    with pytest.raises(ValueError, match=r"missing\.yaml: no such file"):
        make_config(file=tmp_path / "missing.yaml")
    with pytest.raises(ValueError, match="did you mean 'quick'"):
        make_config("quik")


def test_settings_are_read_as_yaml():
    assert read_setting("width=256") == ("width", 256)
    assert read_setting("learning_rate=3.0e-3") == ("learning_rate", 0.003)
    assert read_setting("encodings=none,rotary") == ("encodings", "none,rotary")
    assert read_setting("kv_heads=null") == ("kv_heads", None)
    assert read_setting("source=no") == ("source", "no")  # a word stays a word
    assert read_setting("lowercase=no") == ("lowercase", False)
    for text, value in (("learning_rate=1e-3", 1e-3), ("batch_tokens=010", 10)):
        name, setting = read_setting(text)
        assert getattr(make_config(settings={name: setting}), name) == value
    for wrong in ("width", "=3"):
        with pytest.raises(ValueError, match="field=value"):
            read_setting(wrong)


def test_what_a_checkpoint_depends_on_leaves_out_what_it_does_not():
    one = make_config(settings={"beam": 1, "seeds": "1", "data": "here", "splits": "validation"})
    other = make_config(settings={"beam": 8, "seeds": "1,2", "data": "there"})
    assert training_fields(one) == training_fields(other)
    assert one.decoding() != other.decoding()
    assert training_fields(one) != training_fields(make_config(settings={"dropout": 0.3}))


def test_a_preset_given_as_a_field_is_that_preset():
    """Fails if only the name changes, and a full run goes by the name of a quick one."""
    assert make_config(settings={"preset": "multi30k-base"}).width == 512


def test_a_mistake_in_attention_is_named_once():
    with pytest.raises(ValueError, match="performer") as raised:
        make_config(settings={"attention": "perfomer", "encodings": "none,rotary,sinusoidal"})
    assert str(raised.value).count("did you mean 'performer'") == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("epochs", value) for value in (float("inf"), float("nan"), 1e9)),
        *(("learning_rate", value) for value in (float("inf"), float("nan"))),
        *(("clip", float("inf")), ("warmup", float("inf")), ("length_penalty", float("nan"))),
        *(("vocabulary", 10**18), ("beam", 10_000), ("width", 2**40), ("layers", 10**6)),
        *(("data", "a\0b"), ("data", "\udcff"), ("device", "cpu\0")),
    ],
)
def test_values_beyond_all_use_are_refused(field, value):
    """Fails if such a value is taken, to hang or to fail elsewhere."""
    task = {"task": "causal-lm"} if field == "layers" else {}
    with pytest.raises(ValueError, match=field):
        make_config(settings={**task, field: value})


@pytest.mark.parametrize("written", ["!!bool x", "!!timestamp x", '!!int ""', '!!float ""', "!x 3"])
def test_a_tag_is_no_value(tmp_path, written):
    """Fails if what YAML's constructors raise of it is not one line that names the field."""
    name, value = read_setting(f"width={written}")
    with pytest.raises(ValueError, match="width must be an integer from 1 to 131072, got"):
        make_config(settings={name: value})
    (tmp_path / "c.yaml").write_text(f"width: {written}\n")
    with pytest.raises(
        ValueError, match=r"c\.yaml is neither .*: tags \('!.*'\) are not supported"
    ):
        make_config(file=tmp_path / "c.yaml")


@pytest.mark.parametrize("field", ["preset", "task"])
@pytest.mark.parametrize("value", ["null", "5", "[a]", ".nan", "", "{a: b}", "../../etc"])
def test_a_preset_and_a_task_are_words(tmp_path, field, value):
    (tmp_path / "c.yaml").write_text(f"{field}: {value}\n")
    with pytest.raises(ValueError, match=f"^{field} must be one of .*, got "):
        make_config(file=tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number above 0 and at"),
        ({"width": "1e3"}, "width must be an integer from 1 to 131072, got '1e3'"),
        ({"seeds": [-1]}, "seeds must be integers from 0 to 2147483647, got -1"),
        ({"kv_heads": "q"}, "kv_heads must be an integer from 1 to 131072 or null, got 'q'"),
        ({"schedule": "x"}, "schedule must be linear or noam, got 'x'"),
        ({"lowercase": 5}, "lowercase must be true or false, got 5"),
        ({"splits": 3}, "splits must be words, or a list of them or null, got 3"),
        ({"imports": [{"source": "a"}]}, "imports must be a list as in a run's config.json"),
        ({"width": True}, "width must be an integer from 1 to 131072, got True"),
        ({"seeds": [True]}, "seeds must be integers from 0 to 2147483647, got [True]"),
        ({"encodings": "rotray"}, "did you mean 'rotary'"),
        ({"encodings": "rotary(thta=3)"}, "did you mean 'theta'"),
        ({"encodings": "rotary(rotary_dim=3)"}, "rotary_dim must be even"),
        ({"encodings": "rotary(theta=abc)"}, "theta must be a float"),
        ({"encodings": "sinusoidal(cross=True)"}, "does not act in attention"),
        ({"encodings": ""}, "must have at least one value"),
        ({"encodings": "rotary,rotary()"}, "encodings must not repeat a value"),
        ({"seeds": "1,x"}, "seeds"),
        ({"heads": 3}, "heads must divide width"),
        ({"heads": 4, "kv_heads": 3}, "kv_heads must divide heads"),
        ({"task": "copy", "length_multiples": 10**6}, "must be at most 1,048,576 positions"),
        ({"task": "causal-lm", "train_length": 10**9}, "must be at most 1,048,576 positions"),
        ({"average": 6}, "average must be at most keep=5"),
        ({5: 1}, "config keys must be text, got 5"),
        ({"q" * 100_000: 1}, "qqq… is not a field of a config"),
    ],
)
def test_what_a_field_must_be_is_said_in_one_form(settings, said):
    """Fails if a mistake is told in the words of the library that finds it, or at length."""
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        make_config(settings=settings)
    assert len(str(caught.value)) < 300


def test_every_field_has_a_rule():
    assert all(rule_of(field) for field in Config.model_fields.values())


@pytest.mark.parametrize("text", ["epochs=1:30", "layers=yes", "epochs=on", "width=2020-01-01"])
def test_what_yaml_makes_a_number_of_is_none(text):
    """Fails if 1:30 is read as 90, or yes as 1."""
    name, value = read_setting(text)
    with pytest.raises(ValueError, match=f"{name} must be a"):
        make_config(settings={"task": "copy", name: value})


def test_a_field_that_a_file_gives_twice_is_refused(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("epochs: 2\nlearning_rate: 0.1\nlearning_rate: 0.2\n")
    with pytest.raises(ValueError, match=r"given once, got 0\.1 and 0\.2"):
        make_config(file=file)
    file.write_text("epochs: 2\nepochs: 2\n")
    assert make_config(file=file).epochs == 2


BOMB = "".join(f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * 9) if i else '1'}]\n" for i in range(9))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (BOMB.encode(), "aliases"),
        (b"width: " + b"[" * 500 + b"]" * 500, "20 deep"),
        (b'data: "a\\0b"', "NUL character"),
        (b"#" * (2**16 + 1), "at most 65,536 are allowed"),
        (b"encodings: [" + b"rotary," * 9_000 + b"]", "encodings must not repeat a value"),
        (b"width: " + b"9" * 5000, "a number must have at most 1,000 digits, got 5,000"),
        (b"width: [", "line 1, column 9: "),
        (b"a: b: c", "line 1, column 5: "),
        (b"width: \x01", "character U+0001 at 7 is not allowed"),
        (b"width: \xff", "c.yaml: not UTF-8 at byte 7"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_in_our_words(tmp_path, content, said):
    """Fails if a few bytes of aliases become gigabytes, or if a message is as long as its file."""
    (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(said)) as caught:
        make_config(file=tmp_path / "c.yaml")
    assert len(str(caught.value)) < 2000
    for foreign in ("unicode string", "set_int_max_str_digits", "codec"):
        assert foreign not in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    (tmp_path / "c.yaml").write_bytes(b'\xef\xbb\xbf{"width": 64}')
    assert make_config(file=tmp_path / "c.yaml").width == 64


def test_a_run_config_without_its_fields_is_damaged(tmp_path):
    """Fails if {} is taken for a config of defaults alone."""
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"config\.json has no 'encodings'; delete it"):
        read_run_config(tmp_path)


DIFFERING = [
    "xpos",
    "xpos(center=3)",
    "xpos(center=-3)",
    "xpos(center=-.3)",
    "rotary(theta=1e6)",
    "rotary(theta=1e-6)",
    "rotary(rotary_dim=16)",
    "transformer_xl",
    *(f"rotary(rule=longrope,short_factor={[1.0] * 64},long_factor={[n] * 64})" for n in (2, 3)),
]


def test_no_two_encodings_share_a_folder_and_it_can_be_named_so():
    """Fails if one would take the other's checkpoint for its own."""
    assert len({slug(name) for name in DIFFERING}) == len(DIFFERING)
    for name in DIFFERING:
        assert len(slug(name)) < 200
        assert not set(slug(name)) & set("()=,/ '\"[]")
    assert slug("rotary(theta=1e6)") == "rotary-theta-1e6"
