"""Tiny models whose every parameter matters, and the rotation of a model with another pairing.

The rotation here is written from the formula, with none of ropewalk's code.
"""

import inspect
import sys
from contextlib import contextmanager
from unittest import mock

import torch

NAMES = (
    "apply_rotary_pos_emb",
    "apply_rotary_emb",
    "apply_rotary_pos_emb_interleave",
    "apply_multimodal_rotary_pos_emb",
)


def randomize(model):
    """Draw every parameter, so that norms and biases are not the same for all dimensions."""
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or "norm" in name:
                center = 0.0 if name.endswith("bias") else 1.0
                parameter.copy_(center + 0.4 * torch.randn(parameter.shape))
            else:
                parameter.copy_(torch.randn(parameter.shape) * parameter.shape[-1] ** -0.5)
            if any(word in name for word in ("q_proj", "k_proj", "q_b_proj", "query", "qkv")):
                parameter.mul_(2.0)
    return model


def logits(model, length=24):
    """Return the logits of fixed tokens."""
    ids = torch.arange(3, 3 + length)[None] * 7 % 60 + 3
    with torch.no_grad():
        output = model(input_ids=ids, use_cache=False)
    return output.logits if "logits" in output else output.last_hidden_state


def rotated(x, cos, sin, pairing):
    """Rotate the first R dimensions of x; cos and sin have R/2."""
    pairs = cos.shape[-1]
    part, rest = x[..., : 2 * pairs].float(), x[..., 2 * pairs :]
    if pairing == "half":
        first, second = part[..., :pairs], part[..., pairs:]
        new = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
    else:
        first, second = part[..., 0::2], part[..., 1::2]
        new = torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1)
        new = new.flatten(-2)
    return torch.cat([new.to(x.dtype), rest], dim=-1)


def by_pair(table, width):
    """Return a table of R/2 columns from one of R/2, or of R in either order."""
    if 2 * table.shape[-1] == width:
        return table
    half = table.shape[-1] // 2
    if torch.equal(table[..., :half], table[..., half:]):
        return table[..., :half]
    assert torch.equal(table[..., 0::2], table[..., 1::2])
    return table[..., 0::2]


def _replacement(original, pairing, sign):
    def one(x, cos, sin, unsqueeze_dim=1):
        # gpt_oss has R/2 columns; all others have R, which may be less than the head
        width = x.shape[-1] if "gpt_oss" in original.__module__ else -1
        cos, sin = (by_pair(t, width).unsqueeze(unsqueeze_dim) for t in (cos, sin))
        return rotated(x, cos, sign * sin, pairing)

    def q_and_k(q, k, cos, sin, *args, unsqueeze_dim=1, **kwargs):
        return one(q, cos, sin, unsqueeze_dim), one(k, cos, sin, unsqueeze_dim)

    def gptj(tensor, sin, cos):
        return rotated(tensor, cos[:, :, None], sin[:, :, None], pairing)

    def complex_tables(xq, xk, freqs_cis):
        cis = freqs_cis.unsqueeze(2 if "llama4" in original.__module__ else 1)
        return tuple(rotated(x, cis.real, cis.imag, pairing) for x in (xq, xk))

    functions = {"q": q_and_k, "x": one, "tensor": gptj, "xq": complex_tables}
    return functions[next(iter(inspect.signature(original).parameters))]


@contextmanager
def rotating(model, pairing):
    """Rotate as `pairing` says, in all calls of this model's code."""
    # the text model's own code, in a model of several stacks
    inner = getattr(getattr(model, "model", model), "language_model", model)
    module = sys.modules[type(inner).__module__]
    sign = -1.0 if "nanochat" in module.__name__ else 1.0
    originals = {name: getattr(module, name) for name in NAMES if hasattr(module, name)}
    assert originals
    others = {name: _replacement(x, pairing, sign) for name, x in originals.items()}
    with mock.patch.multiple(module, **others):
        yield
