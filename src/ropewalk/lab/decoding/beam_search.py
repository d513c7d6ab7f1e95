"""Beam search over a batch of sentences, with cached keys and values if the encoding allows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from ropewalk.lab.batches import EncodedSplit, in_order, source_batch
from ropewalk.lab.decoding.greedy import can_cache
from ropewalk.lab.tokens import BOS, EOS
from ropewalk.model import DecoderCache, Transformer

X = TypeVar("X")
Y = TypeVar("Y")


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its token ids without end mark, and the sum of its log-probabilities."""

    ids: tuple[int, ...]
    log_probability: float

    def score(self, length_penalty: float) -> float:
        """Return log-probability / `((5 + length) / 6) ** length_penalty`; end mark included.

        Source: Wu et al. 2016, arXiv 1609.08144, eq. 14.
        """
        return float(self.log_probability / ((6 + len(self.ids)) / 6) ** length_penalty)


@dataclass
class _Sentence:
    """A sentence in the search: its index in the batch, and its ended hypotheses so far."""

    index: int
    limit: int
    ended: list[Hypothesis]


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
        """Continue each beam of the next step from this beam of the last step."""
        if self.cache is not None and self.cache.branching:
            self.cache.follow(parents)


@torch.inference_mode()
def beam_search(
    model: Transformer, source: Tensor, mask: Tensor, *, beam: int, max_tokens: int | None = None
) -> list[list[Hypothesis]]:
    """Return `beam` hypotheses for each row of source `(B, S)`, the likeliest first.

    A search ends when `beam` hypotheses have ended, or at `max_tokens` tokens (default: twice
    the source's plus ten; fewer if a learned position table is shorter). Hypotheses that are cut
    at that length are returned as they are. `beam=1` is greedy decoding. A row has fewer than
    `beam` hypotheses only if the vocabulary is too small for more. If the encoding's method allows
    no cache, each step computes everything from scratch. Raises ValueError if beam or max_tokens
    is below 1.
    """
    for name, value in (("beam", beam), ("max_tokens", max_tokens)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    limits = [_limit(model, n, max_tokens) for n in mask.sum(1).tolist()]
    live = [_Sentence(i, limit, []) for i, limit in enumerate(limits)]
    done: list[list[Hypothesis]] = [[] for _ in live]
    cache = None
    if can_cache(model.decoder):
        cache = model.shape.new_cache(model.shape.decoder_layers, branching=beam > 1)
    steps = _Steps(model, model.encode(source, mask), mask, cache)
    # All beams of a sentence begin the same, so the first step has one beam.
    tokens = source.new_full((len(live), 1, 1), BOS)
    scores = steps.memory.new_zeros((len(live), 1), dtype=torch.float32)
    while live:
        parents, words, scores = _continue(model.logits(steps.hidden(tokens)), scores, beam)
        tokens = torch.cat([_rows(tokens, parents), words[..., None]], -1)
        kept, chosen = _harvest(live, done, tokens, scores, beam)
        if len(kept) < len(live):
            live = [live[i] for i in kept]
            keep = torch.tensor(kept, dtype=torch.int64, device=source.device)
            steps.select(keep)
            parents, tokens, scores = parents[keep], tokens[keep], scores[keep]
        if live:
            slots = torch.tensor(chosen, device=source.device)  # (live, beam) among 2 * beam
            steps.follow(parents.gather(1, slots))
            tokens, scores = _rows(tokens, slots), scores.gather(1, slots)
    return [sorted(h, key=lambda x: -x.log_probability) for h in done]


def best(hypotheses: list[Hypothesis], length_penalty: float) -> Hypothesis:
    """Return the hypothesis with the highest length-normalized score."""
    return max(hypotheses, key=lambda h: h.score(length_penalty))


def translate_ids(
    model: Transformer, sources: Sequence[list[int]], *, beam: int, tokens: int = 2048
) -> list[list[Hypothesis]]:
    """Search for each source (ids without end mark) in batches of similar length.

    The results are in the order of the sources.
    """
    split = EncodedSplit(list(sources), [[] for _ in sources])
    device = model.embedding.weight.device
    batches = list(in_order(split, tokens=tokens))

    def search(rows: list[int]) -> list[list[Hypothesis]]:
        source, mask = source_batch([sources[i] for i in rows])
        return beam_search(model, source.to(device), mask.to(device), beam=beam)

    found: list[list[Hypothesis]] = [[] for _ in sources]
    results = _on_each_core(search, batches) if device.type == "cpu" else map(search, batches)
    for rows, hypotheses in zip(batches, results, strict=True):
        for i, ranked in zip(rows, hypotheses, strict=True):
            found[i] = ranked
    return found


def _on_each_core(search: Callable[[X], Y], batches: list[X]) -> list[Y]:
    """Search batches in parallel: the steps of one are too small to use several cores."""
    threads = torch.get_num_threads()
    workers = min(threads, len(batches))
    if workers < 2:
        return [search(rows) for rows in batches]
    share = max(1, threads // workers)
    with ThreadPoolExecutor(workers, initializer=lambda: torch.set_num_threads(share)) as pool:
        try:
            # Long sentences first, so that no core waits long for the last batch.
            return list(pool.map(search, reversed(batches)))[::-1]
        finally:
            pool.shutdown(cancel_futures=True)


def _limit(model: Transformer, source: int, max_tokens: int | None) -> int:
    """Return the number of tokens at which the search for a source of this length is cut."""
    limit = 2 * source + 10 if max_tokens is None else max_tokens
    positions = model.decoder_encoding.max_positions
    return limit if positions is None else min(limit, positions)


def _rows(tokens: Tensor, chosen: Tensor) -> Tensor:
    """Gather rows `(B, n)` of each sentence's tokens `(B, beams, length)`."""
    return tokens.gather(1, chosen[..., None].expand(-1, -1, tokens.shape[-1]))


def _continue(logits: Tensor, scores: Tensor, beam: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return beams, words and scores `(B, 2 * beam)` of the likeliest continuations, best first.

    At most `beam` of them can be end marks, so at least `beam` others remain to continue.
    """
    logits = logits.float()
    # The order of words needs no normalization, so only the best few are normalized.
    top, words = _leading(logits, min(2 * beam, logits.shape[-1]))
    # In place: allocating memory of this size costs more than the arithmetic.
    normalizer = logits.sub_(top[..., :1]).exp_().sum(-1, keepdim=True).log()
    log_p = scores[..., None] + (top - top[..., :1] - normalizer)
    if (lacking := 2 * beam - log_p[0].numel()) > 0:  # a tiny vocabulary, at the first step
        log_p = pad(log_p, (0, lacking), value=-torch.inf)
        words = pad(words, (0, lacking), value=BOS)
    summed, flat = log_p.flatten(1).topk(2 * beam, -1)
    return flat // log_p.shape[-1], words.flatten(1).gather(1, flat), summed


def _leading(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` highest values of the last axis and their indices, in order, like topk.

    They are in the `count` groups with the highest maxima. Finding these groups is 4 times as fast
    as topk over thousands of single words.
    """
    size = logits.shape[-1]
    group = 64
    if size < 4 * group * count:
        return logits.topk(count, -1)
    whole = size - size % group
    groups = logits[..., :whole].unflatten(-1, (-1, group))
    best = groups.amax(-1).topk(count, -1).indices
    places = best[..., None] * group + torch.arange(group, device=logits.device)
    rest = torch.arange(whole, size, device=logits.device)
    places = torch.cat((places.flatten(-2), rest.expand(*logits.shape[:-1], -1)), -1)
    top, chosen = logits.gather(-1, places).topk(count, -1)
    return top, places.gather(-1, chosen)


def _harvest(
    live: list[_Sentence],
    done: list[list[Hypothesis]],
    tokens: Tensor,
    scores: Tensor,
    beam: int,
) -> tuple[list[int], list[list[int]]]:
    """Collect ended hypotheses; return the sentences that continue, and their continuations."""
    ends = (tokens[..., -1] == EOS).tolist()
    values = scores.tolist()
    length = tokens.shape[-1] - 1
    kept, chosen = [], []
    for i, sentence in enumerate(live):
        found = [_hypothesis(tokens[i, j], values[i][j]) for j in range(beam) if ends[i][j]]
        going = [j for j, end in enumerate(ends[i]) if not end][:beam]
        at_limit = length >= sentence.limit
        if at_limit:
            found += [_hypothesis(tokens[i, j], values[i][j]) for j in going]
        # If a vocabulary has fewer words than there are beams, padding beams have score -inf.
        sentence.ended += [h for h in found if h.log_probability != -math.inf]
        if at_limit or len(sentence.ended) >= beam:
            done[sentence.index] = sentence.ended[:beam]
        else:
            kept.append(i)
            chosen.append(going)
    return kept, chosen


def _hypothesis(tokens: Tensor, score: float) -> Hypothesis:
    """Return the hypothesis of one beam's tokens, which begin with the begin mark."""
    ids = tokens[1:].tolist()
    return Hypothesis(tuple(ids[:-1] if ids[-1] == EOS else ids), score)
