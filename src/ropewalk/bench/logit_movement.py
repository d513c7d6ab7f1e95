"""How far logits move if the same tokens stand at far positions.

Rotation is relative: moved by the same number, positions must give the same logits. What differs
is rounding, above all of the angles. Each pass has the passage alone, without a cache.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ropewalk.bench.rotation_bench import error_line
from ropewalk.files import Facts
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.tools.live_model import preserved
from ropewalk.tools.model_files import Source, random_tokens

PASSAGE = 64  # tokens


def passage(source: Source, count: int = PASSAGE) -> tuple[Tensor, str]:
    """Return the tokens of a passage, (1, count), and what they are.

    They are English text if the folder has a tokenizer.json, else random.
    """
    size = int(source.config.get_text_config(decoder=True).vocab_size)
    file = source.path / "tokenizer.json"
    if source.has_weights and file.is_file():
        with suppress(Exception):  # a broken tokenizer, or another format: random tokens serve
            from tokenizers import Tokenizer

            ids = list(Tokenizer.from_file(str(file)).encode(TEXT).ids)
            if len(ids) >= count and max(ids) < size:
                return torch.tensor([ids[:count]]), "English text"
    return random_tokens(source, count), "random tokens"


TEXT = (
    "A ropewalk is a long, straight, covered path where strands of material are laid before they "
    "are twisted into rope. Workers walked backwards along the hall, paying out hemp fiber from a "
    "bundle around the waist, while a boy turned the wheel that spun it. The longest rope that a "
    "yard could make was as long as its hall, so that a port with large ships needed a hall of "
    "several hundred meters. Fires were common, because hemp dust burns easily and tar was heated "
    "near it. Most halls closed when wire rope and machines replaced the work by hand."
)


ENDS = (4_096, 32_768, 131_072)


def logit_movement(
    before: nn.Module, after: nn.Module, tokens: Tensor, spec: ModelSpec, promised: int | None
) -> Facts:
    """Return how far logits move at each of `ENDS`, before and after `patch`.

    tokens: the passage (1, S); it ends just below each position. promised: positions that the
        config has.

    Largest differences are in units of logits; `spread` is their standard deviation at one token,
    and `rounding` the part of it that different rounding may explain.
    """
    why_not = not_relative(spec)
    facts: Facts = {"passage": tokens.shape[1], "not_compared": why_not, "rows": []}
    try:
        near = _at(before, tokens, 0), _at(after, tokens, 0)
    except Exception as error:
        return {**facts, "not_measured": error_line(error)}
    facts["spread"] = float(near[0].std(dim=-1).mean())
    facts["near"] = compare(*near)
    dtype = next(p.dtype for p in before.parameters() if p.is_floating_point())
    facts["rounding"] = max(1e-3, 64 * torch.finfo(dtype).eps)
    for end in ENDS:
        start = end - tokens.shape[1]
        row: Facts = {"first": start, "last": end - 1}
        row["beyond_config"] = None if promised is None else end > promised
        try:
            far = _at(before, tokens, start), _at(after, tokens, start)
        except Exception as error:
            facts["rows"].append({**row, "not_measured": error_line(error)})
            continue
        row["between"] = compare(*far)
        row["before"], row["after"] = (
            None if why_not else compare(a, b) for a, b in zip(near, far, strict=True)
        )
        row["kl_after"] = None if why_not else _paired(near, far)
        facts["rows"].append(row)
    return facts


def compare(first: Tensor, second: Tensor) -> Facts:
    """Return how far two logits (S, V) are apart.

    largest: of all differences. kl: mean KL divergence of the next token's distribution from the
    first, in nats. top_changed: tokens of the passage after which another token is the likeliest.
    """
    a, b = first.double(), second.double()
    return {
        "largest": float((a - b).abs().max()),
        "kl": max(0.0, float(_kl(a, b).mean())),
        "top_changed": int((a.argmax(dim=-1) != b.argmax(dim=-1)).sum()),
    }


def _paired(near: tuple[Tensor, Tensor], far: tuple[Tensor, Tensor]) -> Facts:
    """Return after how many tokens patch makes the KL divergence smaller, and larger.

    near, far: logits (S, V) before and after `patch`.
    """
    before, after = (_kl(a.double(), b.double()) for a, b in zip(near, far, strict=True))
    return {"smaller": int((after < before).sum()), "larger": int((after > before).sum())}


def _kl(first: Tensor, second: Tensor) -> Tensor:
    """Return the KL divergence of each token (S), in nats, of logits (S, V)."""
    log_a, log_b = F.log_softmax(first, dim=-1), F.log_softmax(second, dim=-1)
    return (log_a.exp() * (log_a - log_b)).sum(dim=-1)


def not_relative(spec: ModelSpec) -> str | None:
    """Return why logits may differ between near and far positions by design, None if not."""
    ropes = [layer.rope for layer in spec.layers if layer.rope is not None]
    if any(rope.needs_length for rope in ropes):
        return "the model's scaling rule depends on the length"
    if any(layer.query_temperature is not None for layer in spec.layers):
        return "the model scales queries by their position"
    return None


def _at(model: nn.Module, tokens: Tensor, start: int) -> Tensor:
    """Return the logits (S, V) of the passage from a position on."""
    positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)[None]
    call: Callable[..., Any] = model
    with preserved(model), torch.no_grad():
        return call(input_ids=tokens, position_ids=positions, use_cache=False).logits[0]  # type: ignore[no-any-return]
