"""The fields of a rope, in all forms that there have been.

These fail when two forms that contradict each other are read in silence, or when the error does
not name the field.
"""

import re

import pytest
from published import GONE, changed

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
