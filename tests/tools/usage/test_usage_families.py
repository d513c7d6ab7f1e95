"""`usage` on tiny models of transformers' families.

These fail if queries are taken for keys, if the loss without rotation is not that of a model whose
tables have angle 0, if a family is not read at all, or if anything in a model differs afterwards.
"""

import sys
from functools import partial
from unittest import mock

import pytest
import torch
from torch.nn.functional import cross_entropy

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
import transformers
from tiny_models import FAMILIES, any_tiny_model, tiny_model

import ropewalk
from ropewalk import tools

#: Why `usage` reads no model of these types.
NOT_READ = {
    "deepseek_v4": "a third tensor",  # it rotates the output of attention back
    "hrm_text": "got none",  # two lists of layers run in turns
    "longcat_flash": "a third tensor",  # two attentions in a layer
    "roformer": "got none",  # a method with tables of its own
}
QUICK = ("llama", "gptj", "deepseek_v3", "gemma3_text")
SLOW = [each for each in FAMILIES if each not in (*QUICK, *NOT_READ)]
CASES = [*QUICK, *(pytest.param(family, marks=pytest.mark.slow) for family in SLOW)]


def tiny(family):
    if family not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {family}")
    model = any_tiny_model(family, causal=True)
    with torch.no_grad():  # so that scores matter, and with them the rotation
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(4)
    return model


def text(rows=16, length=32):
    return torch.randint(3, 60, (rows, length), generator=torch.Generator().manual_seed(2))


@torch.no_grad()
def loss_of(model, tokens):
    logits = model(input_ids=tokens).logits[:, :-1]
    return cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item()


def without_angles(model):
    """Hooks after which the model's own tables have angle 0."""

    def still(module, given, tables):
        if isinstance(tables, tuple):
            cos, sin = tables
            size = (cos**2 + sin**2).sqrt()
            return size, torch.zeros_like(sin)
        return tables.abs().to(tables.dtype)

    hooks = [
        module.register_forward_hook(still)
        for module in model.modules()
        if "Rotary" in type(module).__name__ and not any(module.children())
    ]
    for module in model.modules():
        buffer = dict(module.named_buffers(recurse=False)).get("embed_positions")
        if buffer is not None:  # sin before cos
            sin, cos = buffer.chunk(2, -1)
            buffer.copy_(torch.cat([torch.zeros_like(sin), torch.ones_like(cos)], -1))
            hooks.append(None)
    return hooks


@pytest.mark.parametrize("family", CASES)
def test_every_family_is_read_and_left_as_it_was(family):
    model, tokens = tiny(family), text()
    state = {name: x.clone() for name, x in model.state_dict().items()}
    with torch.no_grad():
        before = model(input_ids=tokens)[0]
    implementation = model.config._attn_implementation
    found = tools.usage(model, tokens, fractions=(0,))
    with torch.no_grad():
        assert torch.equal(model(input_ids=tokens)[0], before)
    assert model.config._attn_implementation == implementation
    assert all(torch.equal(x, state[name]) for name, x in model.state_dict().items())
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())
    spec = ropewalk.ModelSpec.from_config(model.config)
    assert [each.layer for each in found.layers] == [
        layer for layer, each in enumerate(spec.layers) if each.rope is not None
    ]
    for layer in found.layers:
        pairs = spec.layers[layer.layer].rope.pairs
        assert len(layer.wavelengths) == pairs == len(layer.q_norms[0]) == len(layer.products[0])
        assert list(layer.wavelengths) == sorted(layer.wavelengths)
        assert len(layer.heads) == len(layer.q_norms)
        assert all(head.at_first is not None for head in layer.heads)
    if found.costs:
        assert found.costs[0].loss == pytest.approx(loss_of(model, tokens), abs=1e-5)
        if without_angles(model):
            assert found.costs[1].loss == pytest.approx(loss_of(model, tokens), abs=1e-4)


@pytest.mark.parametrize("family", NOT_READ)
def test_families_that_are_not_read_say_why(family):
    with pytest.raises(ValueError, match=NOT_READ[family]):
        tools.usage(tiny(family), text())


def keep(seen, role, module, given, output):
    seen[role] = output


@pytest.mark.parametrize(("family", "interleaved"), [("llama", False), ("gptj", True)])
def test_norms_are_those_of_the_projections(family, interleaved):
    """Fails if GPT-J, which rotates its keys first, has them taken for queries."""
    model, tokens = tiny(family), text()
    rope = ropewalk.ModelSpec.from_config(model.config).layers[0].rope
    seen = {}
    modules = dict(model.named_modules())
    for role in ("q_proj", "k_proj"):
        path = next(path for path in modules if path.endswith(role))
        modules[path].register_forward_hook(partial(keep, seen, role))
    with torch.no_grad():
        model(input_ids=tokens)
    for module in modules.values():
        module._forward_hooks.clear()
    found = tools.usage(model, tokens, fractions=()).layers[0]
    for role, norms in (("q_proj", found.q_norms), ("k_proj", found.k_norms)):
        x = seen[role].unflatten(-1, (len(norms), -1))[..., : rope.rotary_dim]
        pairs = x.unflatten(-1, (-1, 2) if interleaved else (2, -1))
        expected = pairs.square().sum(-1 if interleaved else -2).mean((0, 1)).sqrt()
        torch.testing.assert_close(torch.tensor(norms), expected, rtol=1e-4, atol=1e-6)


def test_a_patched_model_has_the_same_usage():
    model, tokens = tiny("llama"), text()
    plain = tools.usage(model, tokens)
    with ropewalk.patch(model):
        patched = tools.usage(model, tokens)
    for one, other in zip(plain.costs, patched.costs, strict=True):
        assert other.loss == pytest.approx(one.loss, abs=1e-5)
    for one, other in zip(plain.layers, patched.layers, strict=True):
        both = torch.tensor(one.q_norms), torch.tensor(other.q_norms)
        torch.testing.assert_close(*both, rtol=1e-4, atol=1e-6)


def test_several_batches_are_as_one(monkeypatch):
    """Fails if attention is known for the first batch alone."""
    model, tokens = tiny("llama"), text()
    whole = tools.usage(model, tokens, fractions=(0.5,))
    module = sys.modules["ropewalk.tools.usage.usage"]
    monkeypatch.setattr(module, "_batch", lambda *_, attention: 6)  # of 16 rows
    parts = tools.usage(model, tokens, fractions=(0.5,))
    for one, other in zip(whole.layers, parts.layers, strict=True):
        both = torch.tensor(one.k_norms), torch.tensor(other.k_norms)
        torch.testing.assert_close(*both, rtol=1e-4, atol=1e-6)
        for a, b in zip(one.heads, other.heads, strict=True):
            assert a.position_share == pytest.approx(b.position_share, rel=1e-3)
            assert a.at_distance == pytest.approx(b.at_distance, rel=1e-3)
    assert parts.costs[1].loss == pytest.approx(whole.costs[1].loss, abs=1e-5)


def test_a_model_is_as_it_was_after_an_error():
    model, tokens = tiny("llama"), text()
    module = type(model.model.layers[0].self_attn).forward.__globals__
    function = module["apply_rotary_pos_emb"]
    cost = sys.modules["ropewalk.tools.usage.usage"]
    stops = mock.patch.object(cost, "cross_entropy", side_effect=RuntimeError("stop"))
    with stops, pytest.raises(RuntimeError, match="stop"):
        tools.usage(model.train(), tokens)
    assert module["apply_rotary_pos_emb"] is function
    assert model.training
    assert model.config._attn_implementation == "sdpa"
    assert not any(m._forward_pre_hooks for m in model.modules())


def test_a_model_without_logits_has_no_loss():
    model = tiny("llama").model
    found = tools.usage(model, text())
    assert (found.costs, found.unmeasured) == ((), ("the loss: the model returns no logits",))


def test_a_model_without_a_rope_is_refused():
    config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=64)
    with pytest.raises(ValueError, match="gpt2"):
        tools.usage(transformers.GPT2LMHeadModel(config), text())


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("model.layers.1.self_attn.q_proj", "in the queries of layer 1"),
        ("model.layers.1.self_attn.k_proj", "in the keys of layer 1"),
        ("lm_head", "in its output"),
    ],
)
def test_numbers_that_are_not_finite_are_refused(where, says):
    """NaN makes every comparison false: such a model was said to look ahead."""
    model = tiny_model("llama", num_hidden_layers=2)
    before = model.get_submodule(where).weight
    with torch.no_grad():
        before[0, 0] = torch.nan
    with pytest.raises(ValueError, match=rf"must compute finite numbers, got NaN .*{says}$"):
        tools.usage(model, torch.randint(64, (16, 33)))


def test_float16_is_named_as_what_may_overflow():
    model = tiny_model("llama", num_hidden_layers=2).half()
    with torch.no_grad():
        model.lm_head.weight.fill_(6e4)
        model.model.norm.weight.fill_(6e4)
    with pytest.raises(ValueError, match=r"; float16 overflows early: use bfloat16 or float32$"):
        tools.usage(model, torch.randint(64, (16, 33)))
