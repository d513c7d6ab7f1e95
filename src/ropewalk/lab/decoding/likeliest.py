"""The likeliest next words of all beams of a sentence."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ropewalk.lab.tokens import BOS

#: Words in a group: of fewer, finding the maxima takes longer than sorting them saves.
GROUP = 64
#: topk on CPU is several times as fast if it chooses at most one of 64 numbers.
ONE_OF = 64


class Continuations(NamedTuple):
    """Beams and the words that follow them, best first, each `(B, n)`."""

    parents: Tensor
    words: Tensor
    scores: Tensor  # sums of log-probabilities


def likeliest(logits: Tensor, scores: Tensor, count: int) -> Continuations:
    """Return the `count` likeliest continuations of beams with logits `(B, beams, V)`.

    scores: sums of log-probabilities so far, `(B, beams)`. If there are fewer continuations, the
    rest have score -inf.
    """
    log_p = logits.float().log_softmax(-1)
    vocabulary = logits.shape[-1]
    if vocabulary >= 4 * GROUP * count:
        return _leading(log_p, scores, count)
    everything = (log_p + scores[..., None]).flatten(1)
    lacking = max(0, count - everything.shape[1])  # a tiny vocabulary
    summed, places = pad(everything, (0, lacking), value=-torch.inf).topk(count, -1)
    words = places.remainder(vocabulary)
    if lacking:
        padded = places >= everything.shape[1]
        places, words = places.masked_fill(padded, 0), words.masked_fill(padded, BOS)
    return Continuations(places.div(vocabulary, rounding_mode="floor"), words, summed)


def _leading(log_p: Tensor, scores: Tensor, count: int) -> Continuations:
    """Choose among the `count` groups of words with the highest maxima, which have the best words.

    This is many times as fast as topk over all words.
    """
    beams, vocabulary = log_p.shape[1:]
    groups, device = vocabulary // GROUP, log_p.device
    maxima = log_p[..., : groups * GROUP].unflatten(-1, (groups, GROUP)).amax(-1)
    maxima = maxima.add_(scores[..., None]).flatten(1)
    lacking = max(0, ONE_OF * count - beams * groups)
    best = pad(maxima, (0, lacking), value=-torch.inf).topk(count, -1).indices
    best = best.clamp_(max=beams * groups - 1)  # of words with probability 0, one is padding
    parents = best.div(groups, rounding_mode="floor")
    words = ((best - parents * groups) * GROUP)[..., None] + torch.arange(GROUP, device=device)
    parents, words = parents[..., None].expand_as(words).flatten(1), words.flatten(1)
    if groups * GROUP < vocabulary:  # the words after the last group
        rest = torch.arange(groups * GROUP, vocabulary, device=device)
        owners = torch.arange(beams, device=device).repeat_interleave(len(rest))
        parents = torch.cat((parents, owners.expand(len(parents), -1)), 1)
        words = torch.cat((words, rest.repeat(beams).expand(len(words), -1)), 1)
    summed = log_p.flatten(1).gather(1, parents * vocabulary + words)
    summed, chosen = summed.add_(scores.gather(1, parents)).topk(count, -1)
    return Continuations(parents.gather(1, chosen), words.gather(1, chosen), summed)
