"""Models of transformers are right in every layer; a planted mistake is named with its layer.

These fail when a model that is right raises an alarm, when a mistake in its ropes stays unnoticed,
when it is reported under another name or for another layer, when a mode, a buffer or a length of an
earlier call differs afterwards, and when a query temperature that is missing or was not measured is
called right.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
from other_pairing import rotating
from ports import SPEC, Block, Port, spec_of
from ropes_of_others import half
from tiny_models import AXES, FEW, GEMMA, GPTJ, LATENT, TYPES, YARN, any_tiny_model, tiny_model
from torch import nn

from ropewalk import LayerSpec, ModelSpec, QueryTemperature, RotarySpec
from ropewalk.tools.live_model import preserved
from ropewalk.tools.patch.patch import patch
from ropewalk.tools.verify.verify import verify
from ropewalk.tools.verify.verify_model import verify_model
from ropewalk.tools.verify.verify_report import Report

RIGHT = {
    "llama": {},
    "gpt_neox": {},
    "gptj": GPTJ,
    "gemma3_text": {"layer_types": TYPES, "rope_parameters": GEMMA},
    "qwen3": {"rope_parameters": YARN},
    "deepseek_v3": LATENT,
    "smollm3": {"no_rope_layer_interval": 2},
    "llama4_text": {"floor_scale": 8, "num_local_experts": 2},
    "qwen2_vl_text": {"rope_parameters": AXES},
    "phi3": {
        "original_max_position_embeddings": 64,
        "max_position_embeddings": 256,
        "rope_parameters": {
            "rope_type": "longrope",
            "rope_theta": 1e4,
            "short_factor": [1.0] * 8,
            "long_factor": [1.0 + i for i in range(8)],
            "original_max_position_embeddings": 64,
        },
    },
}


def all_layers(*layers: int, parts: Sequence[str] = "qk") -> set[str]:
    return {f"layer {layer}, {part}" for layer in layers for part in parts}


ALL = all_layers(*range(4))


def rotary(model: nn.Module) -> nn.Module:
    return next(m for m in model.modules() if hasattr(m, "inv_freq"))


def named(model: nn.Module, *faults: str, like: object = None, where: set[str] = ALL) -> Report:
    """Verify a model that has these faults and no other; where: the places of the first."""
    report = verify_model(model, like)
    assert report.faults == faults
    places = {check.where for check in report.checks if check.fault == faults[0]}
    assert {place.partition(" (")[0] for place in places} == where
    return report


DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}


@pytest.mark.parametrize("model_type", RIGHT)
def test_a_model_of_transformers_is_right_in_every_layer(model_type):
    model = tiny_model(model_type, **RIGHT[model_type])
    report = verify_model(model)
    assert report.faults == ()
    tested = {check.where.split(",")[0] for check in report.with_verdict("right")}
    assert tested == {f"layer {layer}" for layer in range(4)}
    assert not list(report.with_verdict("not tested"))
    names = {"frequencies", "pairing", "amplitude", "values"}
    assert names <= {check.name for check in report.with_verdict("right")}
    cached = [check.says for check in report.with_verdict("remark") if check.name == "cached keys"]
    assert len(cached) == (model_type == "phi3")  # whose rule switches by the length


def test_the_model_is_left_as_it_was():
    """Also the frequencies and the length that this rule keeps from its longest call."""
    model = tiny_model("llama", rope_parameters=DYNAMIC, max_position_embeddings=64).train()
    model.model.layers[1].eval()
    modes = [module.training for module in model.modules()]
    ids, rope = torch.arange(6)[None], rotary(model)
    before, state = model(ids).logits, {n: p.clone() for n, p in model.state_dict().items()}
    attributes, buffer, length = set(vars(rope)), rope.inv_freq, rope.max_seq_len_cached
    frequencies = buffer.clone()
    verify_model(model)
    assert (set(vars(rope)), rope.max_seq_len_cached) == (attributes, length)
    assert rope.inv_freq is buffer
    assert torch.equal(buffer, frequencies)
    assert [module.training for module in model.modules()] == modes
    assert not all(modes)
    assert torch.equal(model(ids).logits, before)
    assert all(torch.equal(p, state[n]) for n, p in model.state_dict().items())
    assert not any("forward" in vars(module) or module._forward_hooks for module in model.modules())


ARBITRARY = [0.1, 0.9, 0.2, 0.5, 0.01, 0.3, 0.02, 0.7]


@pytest.mark.parametrize("frequencies", [[1e-31 * i for i in range(8)], ARBITRARY])
def test_frequencies_that_were_never_set(frequencies):
    model = tiny_model("llama")
    rotary(model).inv_freq.copy_(torch.tensor(frequencies))
    named(model, "uninitialised-frequencies")


def qwen3(**rule):
    return tiny_model("qwen3", rope_parameters={"rope_theta": 1e6, "rope_type": "default", **rule})


def gemma(types=TYPES, **ropes):
    return tiny_model("gemma3_text", layer_types=types, rope_parameters={**GEMMA, **ropes})


def smollm3(interval):
    return tiny_model("smollm3", no_rope_layer_interval=interval)


def llama(theta):
    return tiny_model("llama", rope_parameters={"rope_type": "default", "rope_theta": theta})


UNSCALED = {"rope_type": "default", "rope_theta": 1e6}


@pytest.mark.parametrize(
    ("faults", "model", "wanted", "layers"),
    [
        (["theta"], lambda: llama(1e4), lambda: llama(5e5), range(4)),
        (["rule-ignored", "amplitude"], qwen3, lambda: qwen3(**YARN), range(4)),
        (["rule-ignored"], lambda: gemma(full_attention=UNSCALED), gemma, [1, 3]),
        (["layer-types-mixed"], gemma, lambda: gemma(TYPES[::-1]), range(4)),
        (["layer-types-mixed"], lambda: smollm3(2), lambda: smollm3(4), [1]),
        (["layer-types-mixed"], lambda: smollm3(4), lambda: smollm3(2), [1]),
    ],
)
def test_a_model_of_another_config(faults, model, wanted, layers):
    named(model(), *faults, like=wanted().config, where=all_layers(*layers))


def test_attention_factor_missing():
    model = qwen3(**YARN)
    rotary(model).attention_scaling = 1.0
    report = named(model, "amplitude")
    assert "the factor is missing" in next(report.with_verdict("fault")).says


def test_the_other_pairing():
    model = tiny_model("llama")
    with rotating(model, "interleaved"):
        named(model, "pairing")


def test_only_one_layer_is_wrong(monkeypatch):
    model = tiny_model("llama")
    attention = model.model.layers[2].self_attn
    forward = attention.forward

    def backwards(*args, position_embeddings, **kwargs):
        cos, sin = position_embeddings
        return forward(*args, position_embeddings=(cos, -sin), **kwargs)

    monkeypatch.setattr(attention, "forward", backwards)
    named(model, "wrong-sign", where=all_layers(2))


def test_keys_alone_are_wrong(monkeypatch):
    model = tiny_model("llama")
    source = sys.modules[type(model).__module__]
    apply = source.apply_rotary_pos_emb
    monkeypatch.setattr(source, "apply_rotary_pos_emb", lambda q, k, *t: (apply(q, k, *t)[0], k))
    report = verify_model(model)
    assert not report.right
    wrong = {check.where for check in report.with_verdict("fault")}
    assert wrong == {f"layer {layer}, k" for layer in range(4)}


def test_values_rotated():
    model = tiny_model("llama", num_key_value_heads=4)

    def rotate(module, args, values):
        return half(values, torch.arange(values.shape[1]))

    model.model.layers[1].self_attn.v_proj.register_forward_hook(rotate)
    named(model, "values-rotated", where={"layer 1, v"})


def test_partial_rotation_ignored():
    model = tiny_model("phi", rope_parameters={"rope_theta": 1e4, "partial_rotary_factor": 1.0})
    wanted = {"rope_theta": 1e4, "partial_rotary_factor": 0.5}
    report = verify_model(model, tiny_model("phi", rope_parameters=wanted).config)
    assert {c.where for c in report.checks if c.fault == "partial-ignored"} == ALL


def test_buffers_in_half_precision():
    model = tiny_model("llama").to(torch.bfloat16)
    assert verify_model(model).faults == ("half-precision-angles",)
    right = tiny_model("llama", dtype="bfloat16")
    assert verify_model(right).right


def test_axes_of_positions():
    model = tiny_model("qwen2_vl_text", rope_parameters=AXES)
    assert {"axis 0", "axis 1", "axis 2"} <= {c.name for c in verify_model(model).checks}
    other = {**AXES, "mrope_section": [4, 2, 2]}
    wanted = tiny_model("qwen2_vl_text", rope_parameters=other).config
    report = verify_model(model, wanted)
    assert report.faults == ("frequencies",)
    assert {check.name for check in report.with_verdict("fault")} >= {"axis 0", "axis 1"}
    wanted = tiny_model("qwen2_vl_text", rope_parameters={**AXES, **YARN, "rope_theta": 1e4})
    assert "rule-ignored" in verify_model(model, wanted.config).faults


def test_a_port_whose_halves_of_pairs_follow_different_axes():
    """transformers' HunYuan-VL; the model's own code rotates as its config says."""
    rope = {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0, "mrope_section": [2, 2, 2, 2]}
    text = {**FEW, "head_dim": 16, "rope_parameters": {**rope, "rope_theta": 1e4}}
    model = tiny_model("hunyuan_vl", text_config=text, vision_config=FEW)
    assert verify_model(model).faults == ("not-a-rotation",)
    with pytest.raises(ValueError, match="its tables are those of no rope in the config"):
        patch(model)


def test_rotary_dim_that_the_code_does_not_read():
    """In transformers' own code, MiniMax M3 rotates full heads, whatever `rotary_dim` says."""
    model = any_tiny_model("minimax_m3_vl_text")
    assert model.config.rotary_dim < model.config.head_dim
    assert "partial-ignored" in verify_model(model).faults


def test_the_indexer_pairs_as_its_config_says():
    """DeepSeek's indexer pairs halves, GLM's neighbors; engines confuse the two."""
    model = any_tiny_model("deepseek_v32")
    report = verify_model(model)
    assert report.faults == ()
    where = {check.where for check in report.with_verdict("right") if check.name == "pairing"}
    indexers = all_layers(*range(len(model.layers)), parts=["indexer"])
    assert indexers <= where
    spec = ModelSpec.from_config(model.config)
    wrong = [
        replace(x, indexer=replace(x.indexer, pairing="interleaved", write_pairing=None))
        for x in spec.layers
    ]
    named(model, "pairing", like=ModelSpec({"text": tuple(wrong)}), where=indexers)


def test_a_length_that_outlives_its_call():
    """transformers keeps the frequencies of the longest call, until one is short again."""
    model = tiny_model("llama", rope_parameters=DYNAMIC, max_position_embeddings=64)
    lengths = {f"{where}, length {n}" for where in ALL for n in (64, 160)}
    report = named(model, "history", where=lengths)
    assert "length 256" in " ".join(check.where for check in report.with_verdict("right"))


def test_tables_shorter_than_promised():
    model = tiny_model("gptj", **GPTJ)
    report = verify_model(model, {**model.config.to_dict(), "n_positions": 2048})
    assert report.faults == ("table-too-short",)
    assert report.checks[0].says.startswith("positions 512 on: RuntimeError")


def test_a_table_that_repeats_its_last_row(monkeypatch):
    model = tiny_model("llama", max_position_embeddings=32_768)
    forward = rotary(model).forward

    def clamped(x, position_ids):
        return forward(x, position_ids.clamp(max=8_000))

    monkeypatch.setattr(rotary(model), "forward", clamped)
    assert verify_model(model).faults == ("table-too-short",)


def test_a_model_of_ones_own_with_a_spec():
    """Any module whose forward takes tokens can be measured, with attention by plain torch."""
    assert verify_model(Port(), SPEC).right
    assert verify_model(Port(sign=-1), SPEC).faults == ("wrong-sign",)
    assert verify_model(Port(sign=0), SPEC).faults == ("positions-ignored",)


def test_the_amplitude_of_a_model_of_ones_own():
    """No function that rotates is met: the amplitude is that from projection to attention."""
    config = tiny_model("llama", num_hidden_layers=2).config
    for amplitude, verdict in ((1.0, "right"), (0.25, "not tested")):
        report = verify_model(Port(amplitude=amplitude), config)
        verdicts = {check.verdict for check in report.checks if check.name == "amplitude"}
        assert (report.right, verdicts) == (True, {verdict})
    wanted = spec_of(RotarySpec(16, amplitude=1.2))
    assert verify_model(Port(), wanted).faults == ("amplitude",)
    assert verify_model(Port(amplitude=1.2), wanted).right


@pytest.mark.parametrize("served", [0, 3])
def test_errors_of_the_models_own_code_are_reported(served):
    """An error at each length but that of the first, short run is no short table."""

    class Broken(Port):
        def forward(self, tokens, input_pos):
            if tokens.shape[1] != served:
                raise RuntimeError("no such luck")
            return super().forward(tokens, input_pos)

    report = verify_model(Broken(), SPEC)
    assert report.faults == ("fails",)
    assert "no such luck" in report.checks[0].says


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="model must be a torch"):
        verify_model("llama")
    with pytest.raises(ValueError, match="like must be given"):
        verify_model(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"like must describe a stack of text, .* got vision"):
        verify_model(tiny_model("llama"), ModelSpec({"vision": (LayerSpec(None),)}))


def test_verify_takes_a_model_too():
    model = tiny_model("llama")
    assert verify(model) == verify_model(model)
    with pytest.raises(ValueError, match="layer, form, axes and head_dim must be left out"):
        verify(model, layer=0)
    with pytest.raises(TypeError, match="like must be a ModelSpec or a config, for all layers"):
        verify(model, like=RotarySpec(16))


def test_changes_in_place_are_undone():
    module = nn.Linear(2, 2)
    module.register_buffer("table", torch.ones(3))
    module.cache, module.seen = torch.zeros(2), [1]
    with preserved(module):
        module.table.mul_(2)
        module.cache = module.cache.add_(1)
        module.seen.append(2)
        module.register_buffer("more", torch.ones(1))
    assert module.table.tolist() == [1, 1, 1]
    assert (module.cache.tolist(), module.seen) == ([0, 0], [1])
    assert not hasattr(module, "more")


def test_a_length_is_not_replaced_by_a_longer_one():
    lengths = set()

    class Watched(Port):
        def forward(self, tokens, input_pos):
            lengths.add(int(input_pos.max()) + 1)
            return super().forward(tokens, input_pos)

    config = tiny_model("llama", num_hidden_layers=2, rope_parameters=DYNAMIC).config.to_dict()
    verify_model(Watched(), {**config, "max_position_embeddings": 512}, length=128)
    assert lengths == {3, 128}


class Counted(nn.Module):
    """A model that takes no positions."""

    def __init__(self):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(8, 64), nn.ModuleList([Block(1, 1.0)])

    def forward(self, tokens):
        LONGEST.append(tokens.shape[1])
        return self.blocks[0](self.embed(tokens), torch.arange(tokens.shape[1])[None])


LONGEST = []


def test_lengths_that_cannot_be_served_are_refused():
    spec = ModelSpec({"text": SPEC.layers[:1]})
    with pytest.raises(ValueError, match="length must be at least 64, so that slow pairs can be"):
        verify_model(Port(), SPEC, length=63)
    with pytest.raises(ValueError, match="length must be at most 65,537, got 65538"):
        verify_model(Port(), SPEC, length=65_538)
    with pytest.raises(ValueError, match="at most 4,096 for a model that takes no positions"):
        verify_model(Counted(), spec, length=4_097)
    assert verify_model(Counted(), spec, length=300).right
    assert LONGEST[-1] == 300


# Query temperatures: wherever the code applies one, it is measured.

TEMPERATURE = QueryTemperature(beta=0.1, length=256, first=1)


def factors(report):
    return [check for check in report.checks if check.name == "query factor"]


@pytest.mark.parametrize("tuned", [True, False])
def test_a_missing_temperature_is_told_from_one_by_place(tuned):
    """Llama 4 counts tokens of the call: among 27 tokens, its factor is 1, as without it."""
    model = tiny_model("llama4_text", floor_scale=256, num_local_experts=2)
    assert ModelSpec.from_config(model.config).layers[3].query_temperature == TEMPERATURE
    for layer in model.model.layers:
        layer.self_attn.attn_temperature_tuning = tuned
    report = verify_model(model)
    assert report.faults == (() if tuned else ("norm-drift",))
    (last,) = [check for check in factors(report) if check.where == "layer 3, q"]
    assert last.verdict == ("remark" if tuned else "fault")
    assert ("by the token's place" in last.says) == tuned


def test_a_temperature_next_to_an_inline_rope_is_measured():
    """And a factor that is not measured is not right."""
    model, spec = Port(), spec_of(RotarySpec(16), query_temperature=TEMPERATURE)
    assert {check.verdict for check in factors(verify_model(model, SPEC))} == {"not tested"}
    assert verify_model(model, spec).faults == ("norm-drift",)
    for block in model.blocks:
        block.temperature = TEMPERATURE
    report = verify_model(model, spec)
    assert report.faults == ()
    assert {check.verdict for check in factors(report)} == {"right"}
