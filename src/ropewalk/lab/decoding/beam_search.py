"""Beam search over a batch of sentences, with cached keys and values if the encoding allows it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from ropewalk.lab.decoding.greedy import can_cache
from ropewalk.lab.tokens import BOS, EOS
from ropewalk.model import DecoderCache, Transformer

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


#: Sentences whose search has ended leave their batch once they are more than an eighth of it. They
#: do not leave at once: each removal copies the caches, and oneDNN must prepare its matrix products
#: again for the new number of rows.
SPARE = 8


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its token ids without end mark, and the sum of its log-probabilities."""

    ids: tuple[int, ...]
    log_probability: float

    def score(self, length_penalty: float) -> float:
        """Return log-probability / `((5 + length) / 6) ** length_penalty`.

        The length counts an end mark, also if the hypothesis was cut. Source: Wu et al. 2016, arXiv
        1609.08144, eq. 14.
        """
        return float(self.log_probability / ((6 + len(self.ids)) / 6) ** length_penalty)


@dataclass
class _Sentence:
    """A sentence in the search: its maximum number of tokens, and its complete hypotheses."""

    limit: int
    ended: list[Hypothesis]
    finished: bool = False


@dataclass
class _Steps:
    """The state that each step decodes with: the memory, and a cache if encodings allow one."""

    model: Transformer
    memory: Tensor
    mask: Tensor
    cache: DecoderCache | None

    def hidden(self, tokens: Tensor) -> Tensor:
        """Return the last hidden states `(B, beams, width)` of tokens `(B, beams, length)`."""
        if self.cache is not None:
            return self.model.decode(tokens[..., -1], self.memory, self.mask, self.cache)
        beams = tokens.shape[1]
        memory, mask = (x.repeat_interleave(beams, 0) for x in (self.memory, self.mask))
        last = self.model.decode(tokens.flatten(0, 1), memory, mask)[:, -1]
        return last.view(-1, beams, last.shape[-1])

    def select(self, rows: Tensor) -> None:
        """Keep these sentences."""
        self.memory, self.mask = self.memory[rows], self.mask[rows]
        if self.cache is not None:
            self.cache.select(rows)

    def follow(self, parents: Tensor) -> None:
        """Let beam j of the next step continue the present beam `parents[:, j]`."""
        if self.cache is not None and self.cache.branching:
            self.cache.follow(parents)


@torch.inference_mode()
def beam_search(
    model: Transformer, source: Tensor, mask: Tensor, *, beam: int, max_tokens: Sequence[int]
) -> list[list[Hypothesis]]:
    """Return `beam` hypotheses for each row of source `(B, S)`, the likeliest first.

    A search ends when `beam` hypotheses have ended, or at the row's number of `max_tokens`.
    Hypotheses that are cut there are returned as they are. `beam=1` is greedy decoding. A row has
    fewer than `beam` hypotheses only if the vocabulary is too small for more. If the encoding's
    method allows no cache, each step decodes all tokens so far again. beam and max_tokens are at
    least 1.
    """
    sentences = [_Sentence(limit, []) for limit in max_tokens]
    live = list(sentences)
    cache = None
    if can_cache(model.decoder):
        cache = model.shape.new_cache(model.shape.decoder_layers, branching=beam > 1)
    steps = _Steps(model, model.encode(source, mask), mask, cache)
    # All beams of a sentence begin the same, so the first step has one beam.
    tokens = source.new_full((len(live), 1, 1), BOS)
    scores = steps.memory.new_zeros((len(live), 1), dtype=torch.float32)
    # Each beam has one continuation that ends it, the end mark. So among the 2 * beam best ones, at
    # most `beam` have ended, and at least `beam` can go on.
    count = 2 * beam if beam > 1 else 1
    while live:
        found = likeliest(model.logits(steps.hidden(tokens)), scores, count)
        _harvest(live, tokens, found, beam)
        kept = [i for i, sentence in enumerate(live) if not sentence.finished]
        if len(live) - len(kept) > len(live) // SPARE:
            kept = _rounded_up(kept, live)
            live = [live[i] for i in kept]
            rows = torch.tensor(kept, dtype=torch.int64, device=source.device)
            steps.select(rows)
            tokens, found = tokens[rows], Continuations(*(x[rows] for x in found))
        if live:
            if beam > 1:  # the best continuations that are no end marks
                slots = (found.words == EOS).to(torch.uint8).argsort(dim=-1, stable=True)[:, :beam]
                found = Continuations(*(x.gather(1, slots) for x in found))
            parents, words, scores = found
            steps.follow(parents)
            tokens = torch.cat([_rows(tokens, parents), words[..., None]], -1)
    return [sorted(s.ended[:beam], key=lambda x: -x.log_probability) for s in sentences]


def best(hypotheses: list[Hypothesis], length_penalty: float) -> Hypothesis:
    """Return the hypothesis with the highest length-normalized score."""
    return max(hypotheses, key=lambda h: h.score(length_penalty))


def _rounded_up(kept: list[int], live: list[_Sentence]) -> list[int]:
    """Keep some of the ended sentences too, so that their number is 8 to 16 times a power of two.

    Batches of one process then share sizes, for which oneDNN has prepared its products.
    """
    step = max(1, (1 << (len(kept) - 1).bit_length()) // 16) if kept else 1
    spare = -len(kept) % step
    ended = [i for i, sentence in enumerate(live) if sentence.finished]
    return sorted(kept + ended[:spare])


def _rows(tokens: Tensor, chosen: Tensor) -> Tensor:
    """Gather rows `(B, n)` of each sentence's tokens `(B, beams, length)`."""
    return tokens.gather(1, chosen[..., None].expand(-1, -1, tokens.shape[-1]))


def _harvest(live: list[_Sentence], tokens: Tensor, found: Continuations, beam: int) -> None:
    """Collect hypotheses of beams `(B, beams, length)` that have ended or reached the limit."""
    length = tokens.shape[-1]
    ends = (found.words == EOS).tolist()
    at_limit = [length >= sentence.limit for sentence in live]
    rows = [
        i
        for i, sentence in enumerate(live)
        if not sentence.finished and (at_limit[i] or any(ends[i][:beam]))
    ]
    if not rows:
        return
    of_rows = torch.tensor(rows, device=tokens.device)
    parents, words, scores = (x[of_rows] for x in found)
    ids = torch.cat([_rows(tokens[of_rows], parents), words[..., None]], -1)[..., 1:].tolist()
    for i, row, values in zip(rows, ids, scores.tolist(), strict=True):
        sentence, places = live[i], range(len(row))
        chosen = [j for j in places[:beam] if ends[i][j]]
        if at_limit[i]:
            chosen += [j for j in places if not ends[i][j]][:beam]
        for j in chosen:
            # If a vocabulary has fewer words than there are beams, padding beams have score -inf.
            if values[j] != -math.inf:
                words_of_beam = row[j][:-1] if row[j][-1] == EOS else row[j]
                sentence.ended.append(Hypothesis(tuple(words_of_beam), values[j]))
        if at_limit[i] or len(sentence.ended) >= beam:
            sentence.finished = True
