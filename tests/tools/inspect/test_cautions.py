"""The warnings of `inspect`: each fault that users have met is found, and sound configs have none.

Every case changes one thing of a published config. They fail if the fault is not named, or if the
unchanged file is warned about too.
"""

import pytest
from published import GONE, PUBLISHED, changed

import ropewalk as rw

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LINEAR = {"rope_type": "linear", "factor": 4.0}
QWEN = {"max_position_embeddings": 131072}
IGNORED = "engine-ignores-field"


def warned(config, where=""):
    """The warnings of a config by id; only those of an engine or a place, if one is named."""
    return {each.id: each for each in rw.tools.inspect(config).warnings if where in each.where}


def qwen(**rope):
    """Qwen3 with YaRN as its README states it, and these fields changed."""
    fields = {key: value for key, value in {**YARN, **rope}.items() if value is not None}
    return changed("qwen3-0.6b", {"rope_scaling": fields, **QWEN})


def scaled(name, **rule):
    return changed(name, {"rope_scaling": rule})


LLAMA = PUBLISHED["llama-3-8b"]
#: A stable id, a config with the fault, and what its cause or way out says.
FAULTS = [
    ("theta-default", changed("llama-3-8b", {"rope_theta": GONE}), ["10,000 is the default"]),
    ("theta-default", changed("llama-3-8b", {"rope_theta": None}), ["10,000 is the default"]),
    ("converted-weights", {**LLAMA, "rope_pairing": "interleaved"},
     ["converted to interleaved", "ropewalk convert --to half"]),
    ("indexer-pairing", changed("deepseek-v3", {"model_type": "deepseek_v32"}),
     ["the indexer's pairs are half"]),
    # (1 + 0.1 ln 4) / (1 + 0.05 ln 4)
    ("amplitude-contradiction", qwen(mscale=1.0, mscale_all_dim=0.5, attention_factor=1.3),
     ["1.3", "1.06482"]),
    ("mscale-alone", qwen(mscale=0.707), ["1.13863", "1.09801"]),
    ("mscale-alone", qwen(mscale_all_dim=0.5), ["1.06482"]),
    ("table-shorter-than-context",
     changed("qwen3-0.6b", {"rope_scaling": YARN, "max_position_embeddings": 40960}),
     ["= 131,072"]),
    ("factor-mismatch",
     changed("qwen3-0.6b", {"rope_scaling": YARN, "max_position_embeddings": 40960}),
     ["40,960 / 32,768 = 1.25"]),
    ("table-shorter-than-context", qwen(original_max_position_embeddings=131072),
     ["= 524,288", "scaled twice"]),
    ("table-shorter-than-context",
     changed("llama-3.1-8b-instruct", {"max_position_embeddings": 8192}), ["= 65,536"]),
    ("positions-beyond-factor", qwen(factor=2.0), ["from 65,536 on"]),
    ("factor-mismatch", qwen(factor=2.0), ["131,072 / 32,768 = 4"]),
    ("length-scaled-twice", scaled("llama-2-7b", type="linear", factor=4.0), ["serves 16,384"]),
    ("length-scaled-twice", scaled("llama-2-7b", type="dynamic", factor=4.0), ["serves 16,384"]),
    # 0.878… times 1.138…
    ("unknown-field", PUBLISHED["dseek-draft-test"], ["attention_factor: 1,"]),
    ("other-positions",
     changed("qwen2.5-3b-instruct", {"dual_chunk_attention_config": {"chunk_size": 8}}),
     ["that of plain positions", "trust only an engine"]),
    ("nope-layers", PUBLISHED["smollm3-3b"], ["these layers have no rope"]),
    ("context-missing", PUBLISHED["falcon-7b"], ["states no context"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "config", "texts"), FAULTS, ids=[name for name, *_ in FAULTS])
def test_a_fault_is_named_with_its_cause_and_way_out(name, config, texts):
    caution = warned(config)[name]
    for text in texts:
        assert text in f"{caution.cause} {caution.way_out}"


@pytest.mark.parametrize(
    ("config", "without"),
    [
        (LLAMA, ["theta-default", "converted-weights"]),
        ({**LLAMA, "rope_pairing": "half"}, ["converted-weights"]),
        (changed("deepseek-v3", {"model_type": "glm_moe_dsa"}), ["indexer-pairing"]),
        (PUBLISHED["deepseek-v3"], ["unused-key"]),
        (qwen(mscale=1.0, mscale_all_dim=0.5), ["amplitude-contradiction"]),
        (qwen(mscale=1.0), ["mscale-alone"]),  # the same in both
        (PUBLISHED["qwen3-next-80b-a3b-thinking"], ["nope-layers"]),
        # Without any warning.
        (qwen(beta_fast=32.0, beta_slow=1.0), None),
        (qwen(attention_factor=1.138629, beta_fast=32.0, beta_slow=1.0), None),  # usual amplitude
        (PUBLISHED["llama-3.1-8b-instruct"], None),
    ],
)
def test_what_is_sound_is_not_warned_about(config, without):
    found = warned(config)
    assert not (found if without is None else found.keys() & set(without))


def test_a_key_for_layers_that_are_not_there_is_unused_by_this_model():
    """OLMo 3's code scales the full layers, and this config has none."""
    raw = PUBLISHED["olmo-3.1-32b-instruct"]
    types = ["sliding_attention"] * raw["num_hidden_layers"]
    found = rw.tools.inspect({**raw, "layer_types": types}).warnings
    causes = [each.cause for each in found if each.where.endswith("rope_scaling.factor")]
    assert causes == ["rope_scaling.factor changes nothing: no layer of this model has a rope that"
                      " depends on it"]  # fmt: skip


def test_places_are_named():
    assert warned(PUBLISHED["dseek-draft-test"])["unknown-field"].where == (
        "rope_scaling.attn_factor"
    )
    layers = warned(PUBLISHED["smollm3-3b"])["nope-layers"].where
    assert layers.startswith("text layers 3, 7, 11")
    hunyuan = rw.tools.inspect(PUBLISHED["hunyuan-7b-instruct"]).warnings
    unused = {each.where.rpartition(".")[2] for each in hunyuan if each.id == "unused-key"}
    assert unused == {"beta_fast", "beta_slow", "mscale", "mscale_all_dim"}


def test_an_original_length_that_is_missing():
    """transformers uses the new maximum in silence; so the pairs that are interpolated change."""
    config = qwen(original_max_position_embeddings=None)
    cause = warned(config)["original-length-missing"].cause
    assert "131,072" in cause
    assert "scaled twice" in cause
    rope = rw.tools.inspect(config).kinds[0].rope
    assert rope.rule_fields["original_length"] == 131_072
    transformers = pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
    theirs = transformers.Qwen3Config.from_dict(config)
    assert theirs.rope_parameters["original_max_position_embeddings"] == 131_072


def test_a_documented_field_that_the_code_ignores():
    """Compared with transformers: the class rotates full heads although its config has 64."""
    text = {"model_type": "minimax_m3_vl_text", "head_dim": 128, "rotary_dim": 64}
    text |= {"num_hidden_layers": 1, "hidden_size": 256, "num_attention_heads": 2}
    assert "rotates full heads" in warned(text)["documented-field-ignored"].cause
    assert rw.tools.inspect(text).kinds[0].rope.rotary_dim == 64
    transformers = pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
    if "minimax_m3_vl" not in transformers.CONFIG_MAPPING:
        pytest.skip("transformers has no minimax_m3_vl")
    theirs = transformers.CONFIG_MAPPING["minimax_m3_vl"]().text_config
    assert theirs.rotary_dim == 64
    assert theirs.rope_parameters.get("partial_rotary_factor", 1.0) == 1.0


def today(name, rope, **changes):
    """A published config in today's form, with these fields of its rope."""
    config = changed(name, {"rope_theta": GONE, **changes})
    config.pop("rope_scaling", None)
    return {**config, "rope_parameters": rope}


TRUNCATED = {**YARN, "rope_theta": 1e6, "truncate": False}
LLAMA3 = {**PUBLISHED["llama-3.1-8b-instruct"]["rope_scaling"], "rope_theta": 1e4}
BY_TYPE = {"full_attention": TRUNCATED, "sliding_attention": TRUNCATED}


@pytest.mark.parametrize(
    ("engine", "config", "text"),
    [
        ("TensorRT", qwen(attention_factor=1.0), "attention_factor"),
        ("TensorRT", qwen(truncate=False), "truncate"),
        ("llama.cpp", qwen(truncate=False), "truncate"),
        ("transformers", today("gpt-oss-20b", BY_TYPE), "rounds the band"),
        ("ONNX", qwen(truncate=False), "beta_fast: 32 and beta_slow: 1"),
        ("ONNX", qwen(beta_fast=32.0), "state beta_slow: 1,"),
        ("ONNX", scaled("smollm2-135m-instruct", **YARN), "ignores YaRN"),
        ("ONNX", scaled("smollm2-135m-instruct", **LINEAR), "ignores Linear"),
        ("ONNX", scaled("qwen3-0.6b", **LINEAR), None),
        ("TensorRT", today("qwen3-0.6b", {"rope_type": "default", "rope_theta": 1e6}),
         "use 10,000"),
        ("TensorRT", today("llama-3.1-8b-instruct", LLAMA3), "the rule Llama3"),
    ],
)  # fmt: skip
def test_engines_that_ignore_a_field(engine, config, text):
    cautions = warned(config, engine)
    assert set(cautions) == ({IGNORED} if text else set())
    assert not text or text in f"{cautions[IGNORED].cause} {cautions[IGNORED].way_out}"


@pytest.mark.parametrize("theta", [1e4, 1e6])
def test_an_engine_that_loses_the_rule_of_todays_form(theta):
    """Fails if the rule is passed over, or if fields of a rule that is lost are named too."""
    fields = {**YARN, "attention_factor": 1.0, "truncate": False, "rope_theta": theta}
    config = today("qwen3-0.6b", fields, **QWEN)
    cautions = [each for each in rw.tools.inspect(config).warnings if "TensorRT" in each.where]
    causes = [each.cause for each in cautions]
    assert sum("ignore the rule YaRN" in cause for cause in causes) == 1
    assert sum("use 10,000" in cause for cause in causes) == (theta != 1e4)
    assert not any("attention_factor" in cause or "truncate" in cause for cause in causes)
    # The earlier form states the same rule where this engine reads it.
    config["rope_scaling"] = config.pop("rope_parameters")
    config["rope_theta"] = config["rope_scaling"].pop("rope_theta")
    cause = warned(config, "TensorRT")[IGNORED].cause
    assert "attention_factor" in cause
    assert "ignore the rule" not in cause
