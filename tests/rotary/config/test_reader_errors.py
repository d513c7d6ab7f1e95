"""What a wrong call, or any change of a published config.json, is answered with.

These fail when a mistake ends in an error of Python's own, or when the error has no rule in it.
"""

import copy
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published import PUBLISHED

from ropewalk import ModelSpec, RotaryEmbedding
from ropewalk.rotary.config.model_types import CONVENTIONS, MULTIMODAL_MODELS

SMOLLM = PUBLISHED["smollm3-3b"]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: RotaryEmbedding.from_config(SMOLLM, layer=3),
            ValueError,
            "layer must be one that has a rope, got 3, which has none (NoPE)",
        ),
        (lambda: RotaryEmbedding.from_config(SMOLLM, layer=36), ValueError, "layer must be in 0"),
        (
            lambda: RotaryEmbedding.from_config(SMOLLM, layer=-1),
            ValueError,
            "layer must be at leas",
        ),
        (lambda: RotaryEmbedding.from_config(SMOLLM, layer="0"), TypeError, "layer must be an int"),
        (
            lambda: RotaryEmbedding.from_config(SMOLLM, layer=True),
            TypeError,
            "layer must be an int",
        ),
        (
            lambda: RotaryEmbedding.from_config(SMOLLM, stack="vision"),
            ValueError,
            "stack must be one that the config describes: text, got 'vision'",
        ),
        (lambda: ModelSpec.from_config(SMOLLM).layer(0, ["text"]), ValueError, "got ['text']"),
        (
            lambda: ModelSpec.from_config(SMOLLM, pairing="neox"),
            ValueError,
            'pairing must be "half"',
        ),
        (
            lambda: ModelSpec.from_config(SMOLLM, pairing="interleaved"),
            ValueError,
            "pairing must agree with model_type 'smollm3', which has 'half'",
        ),
        (
            lambda: ModelSpec.from_config({"hidden_size": 64}, pairing="half"),
            ValueError,
            "num_hidden_layers must be given",
        ),
        (
            lambda: ModelSpec.from_config(
                {"head_dim": 64, "num_hidden_layers": 1, "model_type": "new"}, pairing="half"
            ),
            ValueError,
            "rope_theta must be given, got none",
        ),
    ],
)
def test_a_mistake_in_a_call(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


# Whatever is changed in whatever file: read, or an error in words.

places = st.sampled_from(sorted(PUBLISHED))
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 70),
    st.floats(),
    st.sampled_from(["x", "", "yarn", "full_attention", "1e4", 10**400, 2**70]),
    st.lists(st.one_of(st.integers(-2, 3), st.text(max_size=3), st.none()), max_size=3),
    st.dictionaries(
        st.sampled_from(["rope_type", "factor", "full_attention", "rope_theta", "a"]),
        st.one_of(st.none(), st.integers(), st.sampled_from(["linear", "yarn"]), st.builds(dict)),
        max_size=3,
    ),
)
keys = st.sampled_from(
    """
    rope_theta rope_scaling rope_parameters partial_rotary_factor layer_types no_rope_layers
    rotary_dim head_dim per_layer_config layer_rope_theta rope_ratio rope_interleave text_config
    vision_config sliding_window_pattern attn_scale floor_scale no_rope_layer_interval
    compress_ratios full_attn_idxs alibi rotary_pct rotary_emb_base factor
    original_max_position_embeddings num_hidden_layers hidden_size num_attention_heads type
    """.split()  # noqa: SIM905
)


def sections(config: dict) -> list[dict]:
    inner = [
        each for value in config.values() if isinstance(value, dict) for each in sections(value)
    ]
    return [config, *inner]


@settings(max_examples=1500)
@given(places, st.data())
def test_any_change_is_read_or_refused_in_words(name, data):
    config = copy.deepcopy(PUBLISHED[name])
    for _ in range(data.draw(st.integers(1, 3), label="changes")):
        section = data.draw(st.sampled_from(sections(config)), label="section")
        action = data.draw(st.sampled_from(["drop", "set", "set", "add", "type"]), label="action")
        if action == "type":
            config["model_type"] = data.draw(st.sampled_from([*CONVENTIONS, *MULTIMODAL_MODELS]))
        elif action == "add" or not section:
            section[data.draw(keys)] = data.draw(values)
        else:
            key = data.draw(st.sampled_from(sorted(section)))
            section.pop(key)
            if action == "set":
                section[key] = data.draw(values)
    try:
        spec = ModelSpec.from_config(config)
    except (ValueError, TypeError) as error:
        if not re.search("must|has no field", str(error)):
            raise AssertionError("the error has no rule in it") from error
        return
    for layers in spec.stacks.values():
        assert layers
