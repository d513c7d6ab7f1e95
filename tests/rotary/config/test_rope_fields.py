"""The fields of a rope, in all forms that there have been, and the scaling rule in them.

These fail when two forms that contradict each other are read in silence, when a rule is read with
another field's value or without one that it needs, or when the error does not name the field.
"""

import math
import re

import pytest
from published import GONE, PUBLISHED, changed

from ropewalk import ModelSpec

LLAMA = "llama-2-7b"
LLAMA_3 = "llama-3.1-8b-instruct"
GEMMA_4 = "gemma-4-12b"
SLIDING = "text_config.rope_parameters.sliding_attention"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        # Theta.
        (LLAMA, {"rope_theta": 0}, "rope_theta must be finite and above 0, got 0"),
        (LLAMA, {"rope_theta": "1e4"}, "rope_theta must be a number, got '1e4'"),
        (LLAMA, {"rope_theta": True}, "rope_theta must be a number, got True"),
        (LLAMA, {"rope_theta": [1e4]}, "rope_theta must be a number, got [10000.0]"),
        (LLAMA, {"rope_theta": float("nan")}, "rope_theta must be finite and above 0, got nan"),
        (
            LLAMA,
            {"rope_theta": 1e4, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
            "rope_theta must be the same as rope_parameters.rope_theta, 500000.0, got 10000.0",
        ),
        (
            "pythia-6.9b",
            {"rope_theta": 5e5},
            "rotary_emb_base must be the same as rope_theta, 500000.0, got 10000",
        ),
        # How much of a head rotates.
        ("phi-2", {"partial_rotary_factor": 0}, "partial_rotary_factor must be finite and above 0"),
        ("phi-2", {"partial_rotary_factor": "0.4"}, "partial_rotary_factor must be a number"),
        ("pythia-6.9b", {"partial_rotary_factor": 0.5}, "rotary_pct must be the same as partial"),
        # The rope's dictionary and its type.
        (LLAMA, {"rope_scaling": "linear"}, "rope_scaling must be a dictionary or null"),
        (LLAMA, {"rope_scaling": [4.0]}, "rope_scaling must be a dictionary or null, got [4.0]"),
        (LLAMA, {"rope_parameters": 3}, "rope_parameters must be a dictionary or null, got 3"),
        (
            LLAMA,
            {
                "rope_scaling": {"type": "linear", "factor": 2.0},
                "rope_parameters": {"rope_type": "linear", "factor": 4.0},
            },
            "rope_scaling must be absent if rope_parameters differs from it",
        ),
        (LLAMA, {"rope_scaling": {"factor": 2.0}}, "rope_type must be given with ['factor']"),
        (LLAMA, {"rope_scaling": {"type": 5}}, "type must be a string, got 5"),
        (
            LLAMA_3,
            {"rope_scaling.type": "yarn"},
            "type must be the same as rope_type, 'llama3', got 'yarn'",
        ),
        # Types of layers.
        (GEMMA_4, {SLIDING: GONE}, "rope_parameters must have 'sliding_attention', a layer type"),
        (GEMMA_4, {SLIDING: "default"}, "sliding_attention must be in the fields"),
        (GEMMA_4, {"text_config.rope_parameters": GONE}, "rope_parameters must have a dictionary"),
        (GEMMA_4, {"text_config.rope_parameters.factor": 2.0}, "factor must be in the fields"),
        (
            "gemma-3-1b-it",
            {"rope_scaling": GONE, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
            "rope_parameters must have a dictionary for each type of layer",
        ),
        # Rules that a family's own code has where its file is silent.
        (
            "ministral-3-3b-reasoning-2512",
            {"text_config.rope_parameters": {"rope_theta": 1e6, "llama_4_scaling_beta": 0.1}},
            "rope_type must be given with ['llama_4_scaling_beta']",
        ),
    ],
)
def test_a_mistake_in_the_form(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(changed(name, changes))


LONG = "phi-3-mini-128k-instruct"
YARN = "deepseek-v3"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        # The rope's dictionary and its type.
        (LLAMA, {"rope_scaling": {"type": "yarm"}}, "got 'yarm'; did you mean 'yarn'?"),
        (LLAMA, {"rope_scaling": {"type": "ntk_yarn"}}, "rope_type must be one of default"),
        (LLAMA, {"rope_scaling": {"type": "axial"}}, "rope_type must be one of default"),
        # A rule's fields.
        (
            LLAMA,
            {"rope_scaling": {"type": "linear"}},
            "factor must be given for rope_type 'linear'",
        ),
        (LLAMA, {"rope_scaling": {"type": "default", "factor": 2.0}}, "factor must be absent for"),
        ("vicuna-13b-v1.5-16k", {"rope_scaling.factor": "4"}, "factor must be a number, got '4'"),
        ("vicuna-13b-v1.5-16k", {"rope_scaling.factor": True}, "factor must be a number, got True"),
        ("vicuna-13b-v1.5-16k", {"rope_scaling.factor": None}, "factor must be given"),
        ("vicuna-13b-v1.5-16k", {"rope_scaling.factor": -4.0}, "factor must be finite and above 0"),
        (LLAMA_3, {"rope_scaling.factor": GONE}, "factor must be given for rope_type 'llama3'"),
        (LLAMA_3, {"rope_scaling.low_freq_factor": GONE}, "low_freq_factor must be given"),
        (LLAMA_3, {"rope_scaling.high_freq_factor": GONE}, "high_freq_factor must be given"),
        (LLAMA_3, {"rope_scaling.high_freq_factor": 0.5}, "high_freq_factor must be at least low"),
        (
            LLAMA_3,
            {"rope_scaling.original_max_position_embeddings": GONE},
            "original_max_position_embeddings must be given for rope_type 'llama3'",
        ),
        (
            LLAMA_3,
            {"rope_scaling.original_max_position_embeddings": 8192.5},
            "original_max_position_embeddings must be an integer above 1, got 8192.5",
        ),
        (
            LLAMA_3,
            {"original_max_position_embeddings": 4096},
            "original_max_position_embeddings in the rope's own fields must be the same as",
        ),
        (YARN, {"rope_scaling.beta_fast": 0.5}, "beta_fast must be at least beta_slow=1"),
        (YARN, {"rope_scaling.truncate": "false"}, "truncate must be true or false, got 'false'"),
        (YARN, {"rope_scaling.mscale": "1"}, "mscale must be a number, got '1'"),
        (YARN, {"rope_scaling.attention_factor": 0}, "attention_factor must be finite and above 0"),
        (
            YARN,
            {"rope_scaling.original_max_position_embeddings": GONE},
            "original_max_position_embeddings must be given for rope_type 'yarn'",
        ),
        (LONG, {"rope_scaling.short_factor": [1.0] * 3}, "long_factor must have as many entries"),
        (
            LONG,
            {"rope_scaling.short_factor": [1.0] * 3, "rope_scaling.long_factor": [1.0] * 3},
            "short_factor must have an entry for each of 48 pairs, got 3",
        ),
        (LONG, {"rope_scaling.long_factor": 2.0}, "long_factor must be a list of numbers, got 2.0"),
        (LONG, {"rope_scaling.long_factor": ["1"] * 48}, "long_factor[0] must be a number"),
        (LONG, {"rope_scaling.short_factor": GONE}, "short_factor must be given"),
        (LONG, {"original_max_position_embeddings": GONE}, "original_max_position_embeddings must"),
        (
            LONG,
            {"max_position_embeddings": GONE},
            "factor or max_position_embeddings must be given",
        ),
        (
            LONG,
            {"max_position_embeddings": "128k"},
            "max_position_embeddings must be an integer above 0",
        ),
        ("internlm2.5-7b-chat", {"max_position_embeddings": GONE}, "max_position_embeddings must"),
        (
            "internlm2.5-7b-chat",
            {"rope_scaling.original_max_position_embeddings": 4096},
            "must be the same as max_position_embeddings at the top level, got 4096 and 32768",
        ),
        ("hunyuan-7b-instruct", {"rope_scaling.factor": 2.0}, "factor must be 1.0 if there is"),
        ("hunyuan-7b-instruct", {"rope_scaling.alpha": "x"}, "alpha must be a number, got 'x'"),
    ],
)
def test_a_mistake_in_a_rule(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(changed(name, changes))


def test_amplitudes():
    def amplitude(name: str, length: int | None = None) -> float:
        return ModelSpec.from_config(PUBLISHED[name]).layers[-1].rope.amplitude_at(length)

    assert amplitude("gpt-oss-20b") == pytest.approx(1.3465735902799727)
    assert amplitude("deepseek-v3") == 1.0
    assert amplitude("deepseek-v4-flash-nvfp4") == 1.0
    assert amplitude("chinese-alpaca-2-7b-64k") == pytest.approx(1 + 0.1 * math.log(16))
    for length in (100, 100_000):
        assert amplitude("phi-3-mini-128k-instruct", length) == pytest.approx(1.1902380714238083)


def test_long_rope_keeps_both_lists():
    rope = ModelSpec.from_config(PUBLISHED["phi-4-mini-instruct"]).layers[0].rope
    assert (rope.head_dim, rope.rotary_dim) == (128, 96)
    given = PUBLISHED["phi-4-mini-instruct"]["rope_scaling"]
    assert rope.scaling.long_factor == tuple(given["long_factor"])
    assert (rope.scaling.original_length, rope.scaling.factor) == (4096, 32.0)
