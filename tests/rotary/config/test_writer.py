"""What `ModelSpec.to_config` writes.

These fail when a round trip through it loses something, or when it writes what it cannot say.
"""

import copy
import json

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from published import PUBLISHED, READ, published_spec
from refusals import check_refused

from ropewalk import LayerSpec, ModelSpec, RotarySpec, scaling
from ropewalk.rotary.config.model_types import CONVENTIONS

NOT_IN_THE_EARLIER_FORM = {"gemma-4-12b", "gemma-4-e2b", "laguna-xs.2-fp8"}


def test_round_trip_of_published_files():
    """In both forms; reading and writing leave the dictionary as it was."""
    before, lost = copy.deepcopy(PUBLISHED), []
    for name in READ:
        spec = published_spec(name)
        # Of a model that wraps another, the text is written alone, under the text's own type.
        wraps = PUBLISHED[name].get("model_type") in ("llava", "mistral3")
        for form in ("rope_parameters", "rope_scaling"):
            if form == "rope_scaling" and name in NOT_IN_THE_EARLIER_FORM:
                with pytest.raises(ValueError, match=r'form must be one .* try "rope_parameters"'):
                    spec.to_config(form)
                continue
            again = ModelSpec.from_config(json.loads(json.dumps(spec.to_config(form))))
            same_text = (again.layers, again.model_type) == (spec.layers, spec.model_type)
            if not same_text or (again == spec) is wraps:
                lost.append((name, form))
    assert lost == []
    assert before == PUBLISHED


numbers = st.floats(1.0, 1e3)
lengths = st.integers(2, 2**20)
thetas = st.floats(2.0, 1e9)
divisors = st.lists(numbers, min_size=16, max_size=16).map(tuple)
rules = st.one_of(
    st.none(),
    st.builds(scaling.Linear, numbers),
    st.builds(scaling.DynamicNTK, numbers, lengths),
    st.builds(
        scaling.YaRN,
        numbers,
        lengths,
        beta_fast=st.floats(8.0, 64.0),
        beta_slow=st.floats(0.5, 8.0),
        truncate=st.booleans(),
        attention_factor=st.none() | numbers,
        mscale=st.none() | st.just(0.0) | st.floats(1e-9, 2.0),
        mscale_all_dim=st.none() | st.just(0.0) | st.floats(1e-9, 2.0),
    ),
    st.builds(
        scaling.LongRoPE,
        divisors,
        divisors,
        lengths,
        numbers,
        attention_factor=st.none() | numbers,
        short_mscale=st.none() | numbers,
        long_mscale=st.none() | numbers,
    ),
    st.builds(scaling.Llama3, numbers, st.floats(0.5, 2.0), st.floats(2.0, 8.0), lengths),
    st.builds(scaling.Proportional, st.floats(0.1, 1.0), numbers),
)


def made_if_possible(size: int, **fields) -> RotarySpec:
    """A spec; what a rule cannot do with a theta (YaRN without a band) is no example."""
    try:
        return RotarySpec(size, **fields)
    except ValueError:
        reject()


@given(
    st.sampled_from(["llama", "qwen3", "cohere", "nanochat", "starcoder2", "of my own"]),
    thetas,
    rules,
    st.integers(1, 6),
    st.sampled_from(["rope_parameters", "rope_scaling"]),
)
def test_round_trip_of_any_rule(model_type, theta, rule, count, form):
    conventions = CONVENTIONS.get(model_type)
    rope = made_if_possible(
        32,
        theta=theta,
        scaling=rule,
        pairing="half" if conventions is None else conventions.pairing,
        reverse=conventions is not None and conventions.reverse,
    )
    spec = ModelSpec({"text": (LayerSpec(rope),) * count}, model_type)
    written = json.loads(json.dumps(spec.to_config(form)))
    pairing = rope.pairing if conventions is None else None
    assert ModelSpec.from_config(written, pairing=pairing) == spec


@given(thetas, thetas, rules, st.lists(st.booleans(), min_size=2, max_size=8))
def test_round_trip_of_two_types_of_layers(theta, local, rule, full):
    layer_types = [("full_attention" if yes else "sliding_attention") for yes in full]
    made = {
        "full_attention": RotarySpec(256, theta=theta),
        "sliding_attention": RotarySpec(256, theta=local),
    }
    if not isinstance(rule, (scaling.DynamicNTK, scaling.LongRoPE)):
        made["full_attention"] = made_if_possible(256, theta=theta, scaling=rule)
    layers = tuple(LayerSpec(made[layer_type], layer_type=layer_type) for layer_type in layer_types)
    spec = ModelSpec({"text": layers}, "gemma3_text")
    assert ModelSpec.from_config(json.loads(json.dumps(spec.to_config()))) == spec


def test_what_cannot_be_written():
    smollm = published_spec("smollm3-3b")

    def write(stacks, model_type, form="rope_parameters"):
        return lambda: ModelSpec(stacks, model_type).to_config(form)

    no_text = "model must have a text stack to be written, got 'pixtral'"
    wrong_form = 'form must be "rope_parameters" or "rope_scaling", got \'rope_params\''
    check_refused(
        ValueError,
        (write(smollm.stacks, "smollm3", "rope_params"), wrong_form),
        (write(smollm.stacks, None), "model_type must be set to write a config"),
        (write(smollm.stacks, "cohere"), "form must be one that can describe these ropes"),
        (write({"vision": smollm.layers}, "pixtral"), no_text),
        (write(smollm.stacks, "pixtral"), no_text),
    )


@pytest.mark.parametrize(
    ("name", "pairing"),
    [("llama-3.1-8b-instruct", "interleaved"), ("gpt-j-6b", "half"), ("deepseek-v3", "half")],
)
def test_the_pairing_of_converted_weights_round_trips(name, pairing):
    """Fails if `rope_pairing` is not read, or if writing a spec with it loses the pairing."""
    model = ModelSpec.from_config({**PUBLISHED[name], "rope_pairing": pairing})
    assert {layer.rope.pairing for layer in model.layers} == {pairing}
    assert model.to_config()["rope_pairing"] == pairing
    assert ModelSpec.from_config(model.to_config()) == model
