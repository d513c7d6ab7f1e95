"""Greedy generation by a causal language model, with cached keys and values if possible."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ropewalk.encodings import AttentionEncoding
from ropewalk.lab.tokens import EOS
from ropewalk.model import LanguageModel


def can_cache(stack: nn.Module) -> bool:
    """Return whether every encoding in these layers allows cached keys."""
    sites = (m for m in stack.modules() if isinstance(m, AttentionEncoding))
    return all(site.cached_keys != "none" for site in sites)


@torch.inference_mode()
def generate(model: LanguageModel, prompts: Tensor, *, max_tokens: int) -> list[list[int]]:
    """Continue prompts `(B, S)` with the likeliest token at each step, up to the end mark.

    Returns the new tokens of each row without the end mark, at most `max_tokens`. If the encoding
    allows no cache, all tokens so far are computed again for each new one.
    """
    cache = model.shape.new_cache(len(model.layers)) if can_cache(model.layers) else None
    tokens, answers = prompts, prompts.new_empty((len(prompts), 0))
    for _ in range(max_tokens):
        hidden = model(tokens, cache=cache)[:, -1]
        word = model.logits(hidden).argmax(-1, keepdim=True)
        answers = torch.cat([answers, word], 1)
        if bool((answers == EOS).any(1).all()):
            break
        tokens = word if cache is not None else torch.cat([tokens, word], 1)
    return [row[: row.index(EOS)] if EOS in row else row for row in answers.tolist()]


def answer(
    model: LanguageModel, prompts: Sequence[Sequence[int]], max_tokens: Sequence[int], tokens: int
) -> list[list[int]]:
    """Return the tokens that the model generates after each prompt, in the order of the prompts.

    Prompts of the same length are put into batches.

    max_tokens: the maximum number of tokens of each answer, without the end mark.
    tokens: the maximum number of tokens of a batch.
    """
    found: list[list[int]] = [[] for _ in prompts]
    device = model.embedding.weight.device
    order = sorted(range(len(prompts)), key=lambda i: (len(prompts[i]), max_tokens[i]))
    batch: list[int] = []
    for i, after in zip(order, [*order[1:], None], strict=False):
        batch.append(i)
        full = (len(batch) + 1) * (len(prompts[i]) + max_tokens[i] + 1) > tokens
        if after is not None and len(prompts[after]) == len(prompts[i]) and not full:
            continue
        rows = torch.tensor([prompts[j] for j in batch], device=device)
        most = max(max_tokens[j] for j in batch) + 1  # plus the end mark
        for j, ids in zip(batch, generate(model, rows, max_tokens=most), strict=True):
            found[j] = ids
        batch = []
    return found
