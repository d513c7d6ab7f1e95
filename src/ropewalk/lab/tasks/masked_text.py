"""Masked tokens of running text, filled in by an encoder."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ropewalk.files import Facts
from ropewalk.lab.tasks.language_task import LanguageBatch
from ropewalk.lab.tasks.text import LOSS, PASSAGES_SHOWN, SEED, TextTask
from ropewalk.lab.tokens import PAD, SPECIAL

FIRST_WORD = len(SPECIAL)


def masked(ids: Tensor, mask: int, ratio: float, seed: int) -> LanguageBatch:
    """Return rows of ids `(B, S)` with chosen tokens masked, which are the targets.

    A share of each row's tokens, at least one, is chosen: 80 % of these are masked, 10 % replaced
    by a random word and 10 % unchanged. Source: Devlin et al. 2019, arXiv 1810.04805, section 3.1.
    """
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(ids.shape, generator=generator)
    chosen = (draws < ratio) | (draws == draws.amin(1, keepdim=True))
    how = torch.rand(ids.shape, generator=generator)
    others = torch.randint(FIRST_WORD, mask, ids.shape, generator=generator)
    changed = torch.where(how < 0.8, mask, torch.where(how < 0.9, others, ids))
    return LanguageBatch(
        torch.where(chosen, changed, ids), torch.where(chosen, ids, torch.tensor(PAD))
    )


class MaskedText(TextTask):
    """Fill in masked tokens of a window from all others, chosen as in BERT (`masked`)."""

    metrics: ClassVar = (LOSS,)
    goal: ClassVar = "masked tokens of running text"

    @property
    def mask(self) -> int:
        """The id of the mask token, after the ids of all words."""
        return self.vocabulary - 1

    @property
    def scored(self) -> str:
        return f"tokens, of which {100 * self.config.mask_ratio:g} % are masked and scored"

    def windows(self, split: str, starts: Tensor, length: int, draw: int) -> LanguageBatch:
        ids = self.data[split][starts[:, None] + torch.arange(length)]
        seed = (draw * 1_000_003 + int(starts[0])) % 2**63
        return masked(ids, self.mask, self.config.mask_ratio, seed)

    @torch.no_grad()
    def examples(self, results: Facts) -> Facts:
        length = self.config.train_length
        starts = self.passage_starts(length, PASSAGES_SHOWN)
        batch = self.windows("test", torch.tensor(starts), length, draw=SEED)
        asked = batch.targets != PAD
        found = {
            slug: torch.where(asked, model.logits(model(batch.tokens)).argmax(-1), batch.tokens)
            for slug, model in self.first_models(results)
        }
        right = torch.where(asked, batch.targets, batch.tokens)
        ends = [len(self.whole_words(row)) for row in right.tolist()]
        sentences = [
            {
                "index": start,
                "source": self._text(batch.tokens[i, : ends[i]]),
                "reference": self._text(right[i, : ends[i]]),
                "hypotheses": {slug: self._text(ids[i, : ends[i]]) for slug, ids in found.items()},
            }
            for i, start in enumerate(starts)
        ]
        rule = (
            f"{PASSAGES_SHOWN} passages of {length} tokens, evenly spaced over the test text; the "
            f"likeliest token at each mask; seed {self.config.seeds[0]}"
        )
        terms = ("masked", "text")
        return {"split": self.splits[0], "rule": rule, "terms": terms, "sentences": sentences}

    def _text(self, ids: Tensor) -> str:
        parts: list[list[int]] = [[]]
        for i in ids.tolist():
            parts[-1].append(i) if i != self.mask else parts.append([])
        return " [mask] ".join(self.tokens.decode(part) for part in parts)
