"""Of what type each layer is, which layers have a rope, and what is said of one layer alone.

These fail when a layer without rope is given one or the other way round, and when a mistake is read
in silence or the error does not name the key.
"""

import re

import pytest
from published import GONE, PUBLISHED, changed

from ropewalk import ModelSpec

LLAMA = "llama-2-7b"
SMOL = "smollm3-3b"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        # Types that must be given.
        (LLAMA, {"model_type": "gemma4"}, "layer_types must be given"),
        # How many layers there are.
        (LLAMA, {"num_hidden_layers": GONE}, "num_hidden_layers must be given"),
        (LLAMA, {"num_hidden_layers": 0}, "num_hidden_layers must be an integer above 0, got 0"),
        (LLAMA, {"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 1,000"),
        # Types of layers.
        (SMOL, {"no_rope_layers": [1, 0]}, "no_rope_layers must have one for each of 36 layers"),
        (
            SMOL,
            {"no_rope_layers": [2] * 36},
            "no_rope_layers must have 1 (rope) or 0 (none), got 2",
        ),
        (SMOL, {"no_rope_layers": 4}, "no_rope_layers must be a list, got 4"),
        (
            SMOL,
            {"no_rope_layers": GONE, "no_rope_layer_interval": 0},
            "no_rope_layer_interval must be an integer above 0, got 0",
        ),
        ("exaone-4.0-32b", {"layer_types": ["full_attention"]}, "layer_types must name each of 64"),
        ("exaone-4.0-32b", {"layer_types": "LLLG"}, "layer_types must be a list, got 'LLLG'"),
        (
            "exaone-4.0-32b",
            {"layer_types": ["sliding_atention"] * 64},
            "got 'sliding_atention'; did you mean 'sliding_attention'?",
        ),
        (
            "gemma-3-1b-it",
            {"sliding_window_pattern": 0},
            "sliding_window_pattern must be an intege",
        ),
        ("deepseek-v4-flash-nvfp4", {"compress_ratios": [0, 4]}, "compress_ratios must have one"),
        (
            "deepseek-v4-flash-nvfp4",
            {"compress_ratios": [7] * 44},
            "compress_ratios must be from 0,",
        ),
        ("deepseek-v4-flash-nvfp4", {"compress_ratios": GONE}, "layer_types must be given"),
        # Keys that switch ropes off.
        ("falcon-7b", {"alibi": "no"}, "alibi must be one of (True, False), got 'no'"),
    ],
)
def test_a_mistake_in_layer_types(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(changed(name, changes))


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("llama-4-scout-17b-16e-instruct", range(3, 48, 4)),
        ("smollm3-3b", range(3, 36, 4)),
        ("exaone-4.0-32b", range(3, 64, 4)),
        ("tiny-random-smollm3", [0]),
        ("qwen3-next-80b-a3b-thinking", [i for i in range(48) if i % 4 != 3]),
        ("qwen3.5-9b", [i for i in range(32) if i % 4 != 3]),
        ("llama-2-7b", []),
    ],
)
def test_layers_without_rope(name, without):
    layers = ModelSpec.from_config(PUBLISHED[name]).layers
    assert [i for i, layer in enumerate(layers) if layer.rope is None] == list(without)


GEMMA_4 = "gemma-4-12b"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (GEMMA_4, {"text_config.per_layer_config": 3}, "per_layer_config must be a dictionary"),
        (GEMMA_4, {"text_config.per_layer_config": {"x": {}}}, "per_layer_config must have a dict"),
    ],
)
def test_a_mistake_in_what_is_one_layers_own(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(changed(name, changes))
