"""The ways to translate that `translation.py` measures: ropewalk's, and searches without a cache.

The searches without a cache take one sentence at a time and compute the full prefix again at each
step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from annotated import LENGTH, AnnotatedTransformer, with_weights_of
from torch import Tensor
from torch.nn.functional import pad

from ropewalk.lab.decoding.beam_search import Hypothesis
from ropewalk.lab.decoding.translator import translate_ids
from ropewalk.lab.tokens import BOS, EOS, PAD
from ropewalk.model import Transformer

Found = list[list[Hypothesis]]  # of each sentence


def annotated_search(model: AnnotatedTransformer, source: list[int], beam: int) -> list[Hypothesis]:
    """Search as The Annotated Transformer decodes: source padded, the full prefix again."""
    ids = torch.tensor([[*source, EOS]])
    ids = pad(ids, (0, max(0, LENGTH - ids.shape[1])), value=PAD)
    mask = (ids != PAD)[:, None, None, :]
    memory = model.encode(ids, mask)

    def next_words(going: Tensor) -> Tensor:
        hidden = model.decode(going, memory.expand(len(going), -1, -1), mask)
        return model.generate(hidden[:, -1])

    return search_alone(next_words, 2 * (len(source) + 1) + 10, beam)


def uncached_search(model: Transformer, source: list[int], beam: int) -> list[Hypothesis]:
    """Search with ropewalk's own model, the full prefix again."""
    memory = model.encode(torch.tensor([[*source, EOS]]))
    limit = 2 * (len(source) + 1) + 10
    if model.decoder_encoding.max_positions is not None:
        limit = min(limit, model.decoder_encoding.max_positions)

    def next_words(going: Tensor) -> Tensor:
        hidden = model.decode(going, memory.expand(len(going), -1, -1))
        return model.logits(hidden[:, -1]).float().log_softmax(-1)

    return search_alone(next_words, limit, beam)


def search_alone(next_words: Callable[[Tensor], Tensor], limit: int, beam: int) -> list[Hypothesis]:
    """Search for one sentence with a function that returns log-probabilities `(B, V)` of prefixes.

    It follows the rules of `ropewalk.lab.decoding.beam_search.beam_search`, for lists: of the
    `2 * beam` likeliest continuations, those of the first `beam` that end are saved, and the first
    `beam` that do not end continue, until `beam` have ended or the length limit is reached.
    """
    going, scores = [[BOS]], torch.zeros(1)
    ended: list[Hypothesis] = []
    for length in range(1, limit + 1):
        log_p = next_words(torch.tensor(going))
        totals, places = (scores[:, None] + log_p).flatten().topk(2 * beam)
        ranked = [
            ([*going[place // log_p.shape[1]], place % log_p.shape[1]], total)
            for place, total in zip(places.tolist(), totals.tolist(), strict=True)
        ]
        ended += [
            Hypothesis(tuple(ids[1:-1]), total) for ids, total in ranked[:beam] if ids[-1] == EOS
        ]
        live = [(ids, total) for ids, total in ranked if ids[-1] != EOS][:beam]
        if len(ended) >= beam:
            break
        if length == limit:
            ended += [Hypothesis(tuple(ids[1:]), total) for ids, total in live]
        going, scores = [ids for ids, _ in live], torch.tensor([total for _, total in live])
    return sorted(ended[:beam], key=lambda hypothesis: -hypothesis.log_probability)


@dataclass
class Way:
    """A way to translate, its measurements, and its last translation of each sentence."""

    name: str
    beam: int
    sampled: bool  # too slow for all sentences: each round takes other ones
    run: Callable[[list[list[int]]], Found]
    seconds: list[float] = field(default_factory=list)  # for all sentences, one of each round
    found: dict[int, list[Hypothesis]] = field(default_factory=dict)

    def measure(self, sources: list[list[int]], rows: Sequence[int]) -> None:
        """Translate these rows, and record the seconds that all sources take at that speed."""
        began = time.perf_counter()
        found = self.run([sources[i] for i in rows])
        self.seconds.append((time.perf_counter() - began) * len(sources) / len(rows))
        self.found.update(zip(rows, found, strict=True))


def ways_of(model: Transformer, beam: int) -> list[Way]:
    """Return the ways to search with this beam, the baselines first."""
    same = with_weights_of(model)

    @torch.inference_mode()
    def annotated(sources: list[list[int]]) -> Found:
        return [annotated_search(same, source, beam) for source in sources]

    @torch.inference_mode()
    def uncached(sources: list[list[int]]) -> Found:
        return [uncached_search(model, source, beam) for source in sources]

    def cached(sources: list[list[int]]) -> Found:
        return [translate_ids(model, [source], beam=beam)[0] for source in sources]

    def batched(sources: list[list[int]]) -> Found:
        return translate_ids(model, sources, beam=beam)

    return [
        Way("The Annotated Transformer's, no cache", beam, True, annotated),
        Way("one by one, no cache", beam, True, uncached),
        Way("one by one, cache", beam, True, cached),
        Way("batched, cache = ropewalk", beam, False, batched),
    ]
