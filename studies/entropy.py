"""Sharpness of attention: its entropy by layer, over a complete split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ropewalk.lab.data.batches import EncodedSplit, in_order, make_batch
from ropewalk.lab.tokens import PAD

if TYPE_CHECKING:
    from ropewalk.model import Transformer


@dataclass(frozen=True)
class Entropy:
    """Mean entropy of one layer in bits, and as a share of the entropy of uniform attention."""

    bits: float
    share: float


@torch.no_grad()
def attention_entropy(
    model: Transformer, split: EncodedSplit, *, tokens: int = 2048
) -> dict[str, list[Entropy]]:
    """Return each layer's entropy of "encoder", "decoder" and "cross" attention.

    The mean is over all heads and all non-padding queries of the split; the decoder reads the
    references. A query that sees n keys has log2 n bits if it attends to all of them evenly. One
    that sees a single key is left out. Linear attention has no probabilities, so its lists are
    empty.
    """
    model.eval()
    device = model.embedding.weight.device
    sums: dict[str, Tensor] = {}
    for rows in in_order(split, tokens=tokens):
        batch = make_batch(split, rows).to(device)
        maps = model.attention_maps(batch.source, batch.target_in, batch.source_mask)
        target = batch.target_out != PAD
        read = batch.source_mask.sum(1, keepdim=True)  # number of keys that each row's queries see
        back = torch.arange(1, target.shape[1] + 1, device=device).expand_as(target)
        for kind, layers, real, seen in (
            ("encoder", maps.encoder, batch.source_mask, read.expand_as(batch.source_mask)),
            ("decoder", maps.decoder, target, back),
            ("cross", maps.cross, target, read.expand_as(target)),
        ):
            found = torch.stack([_sums(layer, real, seen) for layer in layers])
            sums[kind] = sums.get(kind, 0) + found
    return {
        kind: [Entropy(bits / n, share / n) for bits, share, n in total.tolist()]
        for kind, total in sums.items()
    }


def _sums(probabilities: Tensor, real: Tensor, seen: Tensor) -> Tensor:
    """Return sums of entropies and shares over the queries with at least two keys, and their count.

    real, seen: `(B, S)`.
    """
    p = probabilities.double()
    bits = torch.special.entr(p).sum(-1).mean(1) / torch.log(torch.tensor(2.0).double())  # (B, S)
    choice = real & (seen > 1)
    most = seen[choice].double().log2()
    return torch.stack((bits[choice].sum(), (bits[choice] / most).sum(), choice.sum().double()))
