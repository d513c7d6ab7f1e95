"""`extend`'s numbers, against the formulas of the rules' sources.

These fail if a wavelength, an angle beyond training, an amplitude or a score is another than the
formula's, if a target that is too short or a rule that the model's code ignores is accepted, or if
a recommendation names a rule that the model cannot have.
"""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published import FOLDER, PUBLISHED, changed

import ropewalk as rw
from ropewalk.tools.extend.recommended_rule import METHODS

QWEN = {
    "model_type": "qwen3",
    "num_hidden_layers": 2,
    "head_dim": 128,
    "rope_theta": 1_000_000.0,
    "max_position_embeddings": 32_768,
}


def by_formula(method, dims, theta, s, original):
    """Each pair's radians per position under a rule of usual parameters, at s times the length."""
    pytest.importorskip("mpmath", reason="computes the formulas: pip install 'ropewalk[dev]'")
    from scaling_formulas import ORIGINAL, scaled_frequencies

    in_config = {"none": {"rope_type": "default"}, "ntk": {"rope_type": "dynamic", "alpha": s}}
    rule = {"rope_type": method, "factor": s, ORIGINAL: original, **in_config.get(method, {})}
    rule |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
    return list(map(float, scaled_frequencies(rule, theta, dims, int(original * s))))


@settings(max_examples=8, deadline=None)
@given(
    dims=st.sampled_from([32, 64, 96, 128, 256]),
    theta=st.sampled_from([1e4, 5e5, 1e6, 1e7]),
    original=st.sampled_from([2_048, 8_192, 32_768, 131_072]),
    s=st.sampled_from([1.5, 2, 4, 8, 32]),
)
def test_every_number_is_the_formulas(dims, theta, original, s):
    config = {**QWEN, "head_dim": dims, "rope_theta": theta, "max_position_embeddings": original}
    to = int(original * s)
    found = rw.tools.extend(config, to)
    assert (found.original_length, found.to, found.factor) == (original, to, s)
    for result in found.results:
        if result.refused:
            continue
        (numbers,) = result.numbers
        plain, ruled = (
            by_formula(method, dims, theta, s, original) for method in ("none", result.method)
        )
        assert numbers.wavelengths_before == pytest.approx([2 * math.pi / f for f in plain])
        assert numbers.wavelengths_after == pytest.approx([2 * math.pi / f for f in ruled])
        assert numbers.growth == pytest.approx([p / r for p, r in zip(plain, ruled, strict=True)])
        leaving = [
            i
            for i, (p, r) in enumerate(zip(plain, ruled, strict=True))
            if original * p < 2 * math.pi and to * r > original * p * (1 + 1e-7)
        ]
        assert list(numbers.leaving) == leaving
        assert numbers.share_leaving == len(leaving) / (dims // 2)
        usual = 1 + 0.1 * math.log(s) if result.method == "yarn" else 1
        assert numbers.amplitude == pytest.approx(usual)
        assert {1, original, to} <= set(numbers.distances)
        for frequencies, scores in ((plain, numbers.score_before), (ruled, numbers.score_after)):
            want = [
                sum(math.cos(d * f) for f in frequencies) / len(frequencies)
                for d in numbers.distances
            ]
            assert scores == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("llama-2-7b", {"to": 2_048}, "to must be longer than the original context, 4,096"),
        ("llama-2-7b", {"to": 4_096}, "to must be longer than the original context, 4,096"),
        ("deepseek-v3", {"to": 100_000}, "to must be longer than the context that the config"),
        ("llama-2-7b", {"to": 2**40}, "to must be at most"),
        ("llama-2-7b", {"to": 8_192, "method": "yarm"}, "did you mean 'yarn'"),
        ("llama-2-7b", {"to": 8_192, "method": "longrope"}, "found by a search on this model"),
        ("llama-2-7b", {"to": 8_192, "original": 5_000}, "original must be at most the context"),
        ("gpt-j-6b", {"to": 8_192, "method": "yarn"}, "the code of model type gptj does not"),
        ("phi-4", {"to": 65_536, "method": "yarn"}, "the code of model type phi3 does not"),
        ("gemma-4-12b", {"to": 2**20, "method": "yarn"}, "proportional"),
        ("vicuna-13b-v1.5-16k", {"to": 65_536}, "the rule Linear of the config does not state it"),
    ],
)
def test_bad_input_is_refused_before_any_work(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        rw.tools.extend(PUBLISHED[name], **arguments)


def test_a_gguf_file_is_refused(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(ValueError, match=r"got the GGUF file .*model\.gguf"):
        rw.tools.extend(tmp_path / "model.gguf", 8_192)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("llama-3.1-8b-instruct", "llama3"),
        ("qwen3.5-9b", "yarn"),
        ("gemma-3-1b-it", "yarn"),
        ("phi-4", "ntk"),
        ("internlm2.5-7b-chat", "dynamic"),
        ("phi-3-mini-128k-instruct", "longrope"),
    ],
)
def test_the_recommended_rule_is_that_of_the_config_or_the_first_that_is_followed(name, method):
    found = rw.tools.extend(PUBLISHED[name], 1_048_576)
    assert found.method == found.recommendation.method == method
    assert found.result(method).usable
    assert found.recommendation.reason
    limits = found.recommendation.limits
    assert all(limit.endswith(".") for limit in limits)
    assert ("Search again" in limits[0]) == (method == "longrope")


def test_the_recommendation_follows_the_factor_and_may_be_no_rule():
    limits = [" ".join(rw.tools.extend(QWEN, s * 32_768).recommendation.limits) for s in (2, 4, 16)]
    assert "more than 2" in limits[0]
    assert "not proven" in limits[1]
    assert "400 steps" in limits[2]
    nothing = rw.tools.extend(PUBLISHED["gpt-j-6b"], 8_192)
    assert (nothing.method, nothing.fragments) == (None, ())
    still = rw.tools.extend(PUBLISHED["gemma-4-12b"], 2**20).recommendation
    assert still.method is None
    assert "no pair reaches angles that training never" in still.reason


def test_a_rule_of_the_config_is_replaced_relative_to_the_original_length():
    found = rw.tools.extend(PUBLISHED["deepseek-v3"], 327_680)
    assert (found.original_length, found.current_length, found.factor) == (4_096, 163_840, 80)
    assert "the rule YaRN; each rule here replaces it" in found.notes[0]
    rule = found.result("yarn").rule
    assert (rule.factor, rule.mscale, rule.mscale_all_dim) == (80, 1.0, 1.0)
    gpt_oss = rw.tools.extend(PUBLISHED["gpt-oss-20b"], 262_144).result("yarn").rule
    assert gpt_oss.truncate is False


def test_qwen3_states_more_than_it_was_trained_on():
    found = rw.tools.extend(PUBLISHED["qwen3-0.6b"], 131_072)
    assert any("--original 32768" in note for note in found.notes)
    found = rw.tools.extend(PUBLISHED["qwen3-0.6b"], 131_072, original=32_768)
    assert found.factor == 4
    assert "as passed; the config states 40,960" in found.notes[0]


def test_sliding_layers_keep_their_rope():
    found = rw.tools.extend(PUBLISHED["gemma-3-1b-it"], 131_072)
    assert all(0 not in each.numbers[0].layers for each in found.results if each.numbers)
    assert any("sliding_attention" in note for note in found.notes)
    block = json.loads(found.fragment("transformers").text)["rope_parameters"]
    assert block["sliding_attention"] == {"rope_theta": 10_000.0, "rope_type": "default"}
    assert block["full_attention"]["rope_type"] == "yarn"


def test_an_extension_is_plain_data():
    plain = rw.tools.extend(FOLDER / "qwen3.5-9b.json", 524_288).to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert [each["method"] for each in plain["results"]] == ["none", *METHODS]
    assert plain["results"][4]["rule"] == "YaRN(factor=2.0, original_length=262144)"


def test_an_unknown_type_is_read_by_its_pairing():
    config = changed("llama-2-7b", {"model_type": "mine", "rope_theta": 1e4})
    found = rw.tools.extend(config, 16_384, pairing="half")
    assert any("not known which rules its code follows" in note for note in found.notes)
    assert found.method == "yarn"
