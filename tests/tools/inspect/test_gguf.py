"""What `inspect` reads in GGUF files, and what it refuses in bounded time.

These fail if a rope differs from that of the same model's config.json, if a hostile header is
trusted, or if a long vocabulary is read entry by entry.
"""

import math
import struct
import sys
import time
from contextlib import suppress

import pytest
from gguf_files import architecture_names, write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from published import PUBLISHED, changed

import ropewalk as rw
from ropewalk.tools.inspect import gguf_reader
from ropewalk.tools.inspect.gguf_report import ALTERNATING, HALF, INTERLEAVED, SECTIONED

pytest.importorskip("gguf", reason="GGUF files: pip install 'ropewalk[gguf]'")

YARN = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 32768,
}


@pytest.fixture
def report_of(tmp_path):
    def report(architecture="llama", **fields):
        return rw.tools.inspect(write_gguf(tmp_path / "model.gguf", architecture, **fields))

    return report


def test_the_rope_of_a_plain_model(report_of):
    report = report_of()
    assert (report.form, report.model_type, report.max_length) == ("GGUF", "llama", 8192)
    (kind,) = report.kinds
    assert kind.layers == (0, 1, 2, 3)
    assert kind.rope.spec == rw.RotarySpec(64, theta=5e5, pairing="interleaved")
    assert kind.rope.origins["theta"] == "llama.rope.freq_base"
    assert [each.id for each in report.warnings] == ["permuted-weights"]


def test_the_table_of_pairings_is_about_architectures_that_gguf_knows():
    """Fails at a misspelled name, and if an architecture has two pairings."""
    groups = [INTERLEAVED, HALF, SECTIONED, ALTERNATING]
    assert frozenset().union(*groups) <= architecture_names()
    assert sum(map(len, groups)) == len(frozenset().union(*groups))


def test_a_pairing_that_the_file_does_not_state(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", "new-architecture")
    report = rw.tools.inspect(path)
    assert report.kinds[0].rope.pairing is None
    assert "pairing-not-stated" in {each.id for each in report.warnings}
    stated = rw.tools.inspect(path, pairing="half")
    assert stated.kinds[0].rope.pairing == "half"
    with pytest.raises(ValueError, match=r"llama\.cpp rotates 'interleaved', got 'half'"):
        rw.tools.inspect(write_gguf(tmp_path / "llama.gguf"), pairing="half")


def test_yarn_is_that_of_the_same_config(report_of):
    theirs = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = changed("qwen3-0.6b", {"rope_scaling": theirs, "max_position_embeddings": 131072})
    sizes = {"embedding_length": 1024, "attention.head_count": 16, "attention.key_length": 128}
    fields = {"rope.dimension_count": 128, "rope.freq_base": 1e6, "context_length": 131072}
    gguf = report_of("qwen3", **sizes, **fields, **YARN, block_count=28)
    found = rw.tools.compare_ropes(gguf, config)
    assert found.same
    assert found.notes == (
        "text layers 0-27: the rules are written differently and rotate the same",
    )
    assert gguf.kinds[0].rope.amplitude == pytest.approx(1.13863, abs=1e-5)


def test_deepseeks_amplitude_and_softmax_factor(report_of):
    config = rw.tools.inspect(PUBLISHED["deepseek-v3"]).kinds[0]
    sizes = {"attention.key_length": 192, "rope.dimension_count": 64, "rope.freq_base": 1e4}
    rule = {**YARN, "rope.scaling.factor": 40.0, "rope.scaling.original_context_length": 4096}
    log = {"rope.scaling.yarn_log_multiplier": 0.1}  # mscale_all_dim times 0.1
    report = report_of("deepseek2", **sizes, **rule, **log, context_length=163840, block_count=61)
    (kind,) = report.kinds
    assert rw.tools.compare_ropes(report, PUBLISHED["deepseek-v3"]).same
    assert kind.softmax_factor == pytest.approx(config.softmax_factor)
    assert kind.rope.amplitude == pytest.approx(config.rope.amplitude)
    assert (kind.rope.start, kind.rope.pairing) == (config.rope.start, "interleaved")
    assert kind.rope.wavelengths == pytest.approx(config.rope.wavelengths)


@pytest.mark.parametrize(("kind", "grows"), [("yarn", True), (None, True), ("none", False)])
def test_a_softmax_factor_next_to_a_tensor_of_factors(report_of, kind, grows):
    """llama.cpp takes it from the file's factor; fails if the rule itself must have a factor."""
    fields = {"attention.key_length": 192, "rope.dimension_count": 64}
    fields |= {**YARN, "rope.scaling.type": kind, "rope.scaling.yarn_log_multiplier": 0.1}
    report = report_of("deepseek2", **fields, tensors={"rope_freqs.weight": [2.0] * 32})
    (layers,) = report.kinds
    assert layers.rope.rule == "FrequencyFactors"
    expected = (1 + 0.1 * math.log(4)) ** 2 if grows else 1.0
    assert layers.softmax_factor == pytest.approx(expected)


def test_llama3s_rule_is_a_tensor_of_factors(tmp_path):
    config = rw.tools.inspect(PUBLISHED["llama-3.1-8b-instruct"]).kinds[0].rope
    factors = [b / a for a, b in zip(config.plain_wavelengths, config.wavelengths, strict=True)]
    sizes = {"embedding_length": 4096, "attention.head_count": 32, "rope.dimension_count": 128}
    path = tmp_path / "model.gguf"
    write_gguf(path, tensors={"rope_freqs.weight": factors}, **sizes, context_length=131072)
    rope = rw.tools.inspect(path).kinds[0].rope
    assert rope.wavelengths == pytest.approx(config.wavelengths, rel=1e-6)
    assert rope.rule == "FrequencyFactors"
    sizes |= {"context_length": 131072, "block_count": 32}
    write_gguf(path, tensors={"rope_freqs.weight": factors}, **sizes)
    found = rw.tools.compare_ropes(path, PUBLISHED["llama-3.1-8b-instruct"])
    assert found.same  # the weights are permuted to the pairing
    assert "the pairing is not compared" in found.notes[-1]
    write_gguf(path, tensors={"rope_freqs.weight": factors[1:]}, **sizes)
    with pytest.raises(ValueError, match="a factor for each of 64 pairs, got 63"):
        rw.tools.inspect(path)


def test_longrope_is_two_tensors(tmp_path):
    names = ("rope_factors_short.weight", "rope_factors_long.weight")
    tensors = {name: [value] * 32 for name, value in zip(names, (1.0, 4.0), strict=True)}
    rule = {"rope.scaling.original_context_length": 4096, "rope.scaling.attn_factor": 1.19}
    path = write_gguf(tmp_path / "m.gguf", "phi3", tensors=tensors, **rule, context_length=131072)
    rope = rw.tools.inspect(path).kinds[0].rope
    assert (rope.original_length, rope.extended_length) == (4096, 131072)
    assert rope.wavelengths[0] == pytest.approx(4 * rope.plain_wavelengths[0])
    assert rope.amplitude == pytest.approx(1.19)


def test_sliding_layers_have_a_rope_of_their_own(report_of):
    sizes = {"attention.key_length": 256, "rope.dimension_count": None, "rope.freq_base": 1e6}
    report = report_of("gemma3", **sizes, **{"attention.sliding_window": 512}, block_count=12)
    assert report.kind_of(5).rope.theta == 1e6
    assert report.kind_of(6).rope.theta == 10_000.0
    assert report.kind_of(6).layer_types == ("sliding_attention",)
    other = {"rope.freq_base_swa": 2e4, "attention.sliding_window_pattern": [True, False] * 2}
    stated = report_of("gemma4", **other)
    assert [stated.kind_of(i).rope.theta for i in range(4)] == [2e4, 5e5, 2e4, 5e5]


def test_sections_are_axes(report_of):
    rope = report_of("qwen35", **{"rope.dimension_sections": [11, 11, 10, 0]}).kinds[0].rope
    assert rope.spec.axes == rw.axes.interleaved([11, 11, 10])
    rope = report_of("qwen2vl", **{"rope.dimension_sections": [8, 12, 12, 0]}).kinds[0].rope
    assert rope.spec.axes == rw.axes.sectioned([8, 12, 12])


def test_what_a_file_leaves_out_is_a_warning(report_of):
    assert "theta-default" in {each.id for each in report_of(**{"rope.freq_base": None}).warnings}
    lost = {**YARN, "rope.scaling.original_context_length": None}
    found = {each.id: each for each in report_of("qwen3", **lost).warnings}
    assert "context_length = 8,192" in found["original-length-missing"].cause
    assert report_of(context_length=0).max_length is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"architecture": "mamba"}, r"'mamba' has no rope in llama\.cpp"),
        ({"rope.freq_base": "x"}, "llama.rope.freq_base must be a number, got 'x'"),
        ({"rope.dimension_count": 63}, "rotary_dim must be even"),
        ({"rope.dimension_count": 2**31}, "rotary_dim must be at most head_dim=64"),
        ({"embedding_length": None}, "llama.embedding_length must be given, got none"),
        ({"rope.scaling.type": "new"}, "must be none, linear, yarn or longrope, got 'new'"),
        ({"block_count": 2**32 - 1}, "block_count must be at most 1,000 layers, got 4,294,967,295"),
        ({"block_count": "many"}, "llama.block_count must be an integer, got 'many'"),
        ({"rope.dimension_sections": ["a"]}, "must be a list of integers"),
    ],
)
def test_wrong_metadata_is_an_error_that_names_the_key(report_of, fields, message):
    with pytest.raises(ValueError, match=message):
        report_of(**fields)


def test_a_long_vocabulary_takes_no_time(tmp_path, monkeypatch):
    """GGUFReader makes an array of each entry: 14 s for a vocabulary of usual size."""
    path = write_gguf(tmp_path / "model.gguf", vocabulary=50_000)
    assert len(gguf_reader.check_header(path)) == 1
    start = time.process_time()
    assert rw.tools.inspect(path).kinds[0].rope.theta == 5e5
    assert time.process_time() - start < 3


def header(tensors=0, entries=0, body=b"", version=3):
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + body


def entry(kind, value, key=b"k"):
    return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"GGUF", "it is truncated: 4 bytes"),
        (header(version=9), "its version is 9"),
        (header(entries=2**60), "announces 1,152,921,504,606,846,976 metadata entries"),
        (header(tensors=2**60), "announces 1,152,921,504,606,846,976 tensors"),
        (header(entries=60_000), "60,000 metadata entries do not fit"),
        (header(entries=1, body=struct.pack("<Q", 2**40) + b"x" * 16), "1,099,511,627,776 bytes"),
        (header(entries=1, body=entry(8, struct.pack("<Q", 2**63))), "a string has"),
        (header(entries=1, body=entry(9, struct.pack("<IQ", 4, 2**60))), "list entries"),
        (header(entries=1, body=entry(9, struct.pack("<IQ", 9, 1) + b"x" * 8)), "list of lists"),
        (header(entries=1, body=entry(77, b"x" * 8)), "type 77, which is not known"),
        (header(entries=1, body=entry(4, b"xxxx")), "general.architecture must name"),
        (header(tensors=1, body=struct.pack("<QcIQIQ", 1, b"t", 1, 2**60, 0, 0)),
         "it is truncated: its tensors take"),
        (header(tensors=1, body=struct.pack("<QcI", 1, b"t", 2**31) + b"x" * 16),
         "a tensor has 2,147,483,648 axes"),
    ],
)  # fmt: skip
def test_a_hostile_header_is_an_error_in_bounded_time(tmp_path, content, message):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    start = time.process_time()
    with pytest.raises(ValueError, match=message) as error:
        rw.tools.inspect(path)
    assert time.process_time() - start < 3
    assert len(str(error.value)) < 600
    assert "\n" not in str(error.value)
    assert "model.gguf" in str(error.value)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 400), value=st.integers(0, 255), cut=st.booleans())
def test_any_damage_is_read_or_named(tmp_path, at, value, cut):
    """A file cut anywhere, or with any byte changed, has a report or a ValueError."""
    path = tmp_path / "model.gguf"
    if not path.exists():
        write_gguf(path)
    content = bytearray(path.read_bytes())
    at = min(at, len(content) - 1)
    content[at] = value
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(content[:at] if cut else content)
    with suppress(ValueError):
        rw.tools.inspect(damaged)


def test_without_gguf_the_error_names_the_extra(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "model.gguf")
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(ValueError, match=r"pip install .*\[gguf\]"):
        rw.tools.inspect(path)
