"""`patch` in tiny models of all families of transformers.

These fail when a family's logits, cached steps or gradients move by more than float32 rounding,
when a layer with a rope is not taken, or when undoing leaves a trace.
"""

import re
from unittest import mock

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
import transformers
from tiny_models import FAMILIES, any_tiny_model

import ropewalk
from ropewalk import ModelSpec
from ropewalk.tools.patch.exact_tables import ExactTables

NOT_PATCHED = {"roformer": "its attention rotates in a method of its own, by tables of its own"}
NAMED = """
    llama mistral qwen2 qwen3 gemma2 gemma3_text phi phi3 gpt_neox gptj olmo2 stablelm cohere
    granite starcoder2 mixtral deepseek_v3 glm4 smollm3 persimmon
""".split()  # noqa: SIM905
QUICK = ("llama", "gptj", "deepseek_v3", "gemma3_text", "llama4_text", "qwen2_vl_text")
PATCHED = [family for family in FAMILIES if family not in NOT_PATCHED]
SLOW = [family for family in PATCHED if family not in QUICK]
CASES = [*QUICK, *(pytest.param(family, marks=pytest.mark.slow) for family in SLOW)]

# Families whose forward returns no cache that a second call takes, or that look both ways.
WITHOUT_CACHE = """
    eurobert gte jina_embeddings_v3 modernbert neomme nomic_bert openai_privacy_filter ultrabert
""".split()  # noqa: SIM905
WITH_BUFFERS = {"gptj", "codegen"}  # tables that positions index
QUERIES_AND_KEYS = re.compile(
    "q_proj|k_proj|qkv|query|key|Wqkv|q_b_proj|kv_a|kv_proj|wq|wk|in_proj"
)
NUMBERED_OTHERWISE = {"hrm_text"}  # two lists of layers run in turns


def test_at_least_forty_families():
    assert len(set(PATCHED)) >= 40
    assert set(NAMED) <= set(PATCHED)


def tiny(family: str) -> nn.Module:
    if family not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {family}")
    model = any_tiny_model(family, causal=True)
    with torch.no_grad():  # so that scores matter, and with them the rotation
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and QUERIES_AND_KEYS.search(name):
                parameter.mul_(12)
            elif not parameter.any():  # gates that begin closed
                parameter.normal_(std=0.3)
    return model


def tokens(count: int = 20) -> torch.Tensor:
    return torch.randint(3, 60, (2, count), generator=torch.Generator().manual_seed(1))


def output(model: nn.Module, ids: torch.Tensor, **more: object) -> torch.Tensor:
    with torch.no_grad():
        return model(ids, **more)[0]


def by_steps(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """The output of a prefill, and of three tokens decoded with the cache."""
    outputs, cache = [], None
    with torch.no_grad():
        for part in (ids[:, :-3], *ids[:, -3:].split(1, dim=1)):
            result = model(part, past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            outputs.append(result[0])
    return torch.cat(outputs, dim=1)


def gradients(model: nn.Module, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    model(ids)[0].float().square().mean().backward()
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def by_other_angles(model: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """The output of a patched model with twice the positions."""
    at = ExactTables.at
    with mock.patch.object(ExactTables, "at", lambda self, x, p, kind: at(self, x, 2 * p, kind)):
        return output(model, ids)


def close(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool((one - other).abs().max() <= 1e-4 * max(1.0, float(one.abs().max())))


@pytest.mark.parametrize("family", CASES)
def test_a_family(family):
    model, ids = tiny(family), tokens()
    before = output(model, ids)
    classes = {path: type(module) for path, module in model.named_modules()}
    grads = gradients(model, ids)
    steps = None if family in WITHOUT_CACHE else by_steps(model, ids)

    undo = ropewalk.patch(model)
    assert undo.left == ()
    assert undo.taken
    layers = ModelSpec.from_config(model.config).layers
    rotates = [number for number, layer in enumerate(layers) if layer.rope is not None]
    for number in rotates if family not in NUMBERED_OTHERWISE else ():
        assert any(f".{number}." in f".{path}." for path in undo.taken), (number, undo)
    assert close(output(model, ids), before)
    if family not in WITH_BUFFERS:
        assert not close(by_other_angles(model, ids), before)
    if steps is not None:
        assert close(by_steps(model, ids), steps)
    patched = gradients(model, ids)
    assert patched.keys() == grads.keys()
    for name, gradient in grads.items():
        assert close(patched[name], gradient), name

    undo()
    assert {path: type(module) for path, module in model.named_modules()} == classes
    assert torch.equal(output(model, ids), before)


@pytest.mark.parametrize("family", NOT_PATCHED)
def test_a_family_that_cannot_be_patched(family):
    """Fails if it is patched by now, or if it is patched in part in silence."""
    model = tiny(family)
    before = output(model, tokens())
    with pytest.raises(ValueError, match="model must have a rope that patch can replace"):
        ropewalk.patch(model)
    assert torch.equal(output(model, tokens()), before)
