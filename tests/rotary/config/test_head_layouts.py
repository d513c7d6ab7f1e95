"""Which dimensions of a head rotate, and by which axes.

These fail when a size that cannot be is read in silence, or when the error does not name the
key.
"""

import re

import pytest
from published import GONE, changed

from ropewalk import ModelSpec

LLAMA = "llama-2-7b"
YARN = "deepseek-v3"
QWEN_VL = "qwen2.5-vl-7b-instruct"
GEMMA_4 = "gemma-4-12b"
FULL = "text_config.rope_parameters.full_attention"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        # Sizes.
        ("hunyuan-7b-instruct", {"attention_head_dim": 64}, "head_dim and attention_head_dim must"),
        (LLAMA, {"num_attention_heads": GONE}, "num_attention_heads must be given"),
        (LLAMA, {"num_attention_heads": 0}, "num_attention_heads must be an integer above 0"),
        (LLAMA, {"hidden_size": "4096"}, "hidden_size must be an integer above 0, got '4096'"),
        (LLAMA, {"hidden_size": GONE}, "must be given, got none of embed_dim, hidden_size"),
        (LLAMA, {"head_dim": 127}, "head_dim must be even if all of it rotates, got 127"),
        (LLAMA, {"head_dim": 2**70}, "head_dim must be at most"),
        (YARN, {"qk_rope_head_dim": GONE}, "qk_rope_head_dim must be given"),
        (YARN, {"qk_nope_head_dim": GONE}, "qk_nope_head_dim must be given"),
        (LLAMA, {"qk_rope_head_dim": 64}, "qk_rope_head_dim must be absent"),
        ("gpt-j-6b", {"rotary_dim": 512}, "rotary_dim must be at most head_dim=256, got 512"),
        ("gpt-j-6b", {"rotary_dim": "64"}, "rotary_dim must be an integer above 0, got '64'"),
        ("phi-1", {"rotary_dim": 16}, "rotary_dim must be absent or 32"),
        ("pixtral-12b", {"vision_config.head_dim": 66}, "head_dim must be a multiple of 4"),
        # Theta.
        ("persimmon-8b-base", {"rope_theta": GONE}, "rope_theta must be given, got none"),
        # How much of a head rotates.
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be absent, as this"),
        ("phi-2", {"partial_rotary_factor": 1.5}, "partial_rotary_factor must be above 0 and at m"),
        ("phi-2", {"partial_rotary_factor": 0.001}, "partial_rotary_factor must leave at least 2"),
        # Several axes.
        (LLAMA, {"rope_scaling": {"type": "mrope"}}, "rope_type must not be 'mrope' here"),
        (
            QWEN_VL,
            {"rope_scaling.mrope_section": [16, 24]},
            "mrope_section must have three numbers",
        ),
        (QWEN_VL, {"rope_scaling.mrope_section": [16, 24, 25]}, "mrope_section must sum to the 64"),
        (QWEN_VL, {"rope_scaling.mrope_section": [40, 24, 0]}, "mrope_section must have integers"),
        (QWEN_VL, {"rope_scaling.mrope_section": "16"}, "mrope_section must have three numbers"),
        (
            QWEN_VL,
            {"rope_scaling.mrope_interleaved": True},
            "mrope_interleaved must be false or abs",
        ),
        (LLAMA, {"rope_scaling": {"type": "default", "mrope_section": [64]}}, "mrope_section must"),
        # Types of layers.
        (GEMMA_4, {FULL + ".rope_theta": GONE}, "rope_theta must be given, got none"),
    ],
)
def test_a_mistake_in_the_layout(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(changed(name, changes))
