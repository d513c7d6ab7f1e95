"""The next token of running text, predicted by a decoder."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ropewalk.files import Facts
from ropewalk.lab.decoding.greedy import generate
from ropewalk.lab.tasks.base import Metric
from ropewalk.lab.tasks.language_task import LanguageBatch
from ropewalk.lab.tasks.text import LOSS, PASSAGES_SHOWN, TextTask, mean_loss

CONTINUED = 20  # approximate number of tokens that a decoder predicts in a report's passage


def _perplexity(sums: Tensor) -> Tensor:
    return mean_loss(sums).exp()


PERPLEXITY = Metric("perplexity", "perplexity", _perplexity, higher_is_better=False, digits=2)


class CausalText(TextTask):
    """Predict each token of a window from the tokens before it, scored by perplexity."""

    metrics: ClassVar = (PERPLEXITY, LOSS)
    goal: ClassVar = "the next token of running text"

    def windows(self, split: str, starts: Tensor, length: int, draw: int) -> LanguageBatch:
        ids = self.data[split][starts[:, None] + torch.arange(length + 1)]
        return LanguageBatch(ids[:, :-1], ids[:, 1:])

    def examples(self, results: Facts) -> Facts:
        length, decode = self.config.train_length, self.tokens.decode
        starts = self.passage_starts(length, PASSAGES_SHOWN)
        ids = [self.data["test"][s : s + length].tolist() for s in starts]
        # The prompt ends at the end of a word; all remaining tokens are predicted.
        prompts = [self.whole_words(row[: length - min(CONTINUED, length // 2)]) for row in ids]
        found = {
            slug: [
                decode(self.whole_words(row))
                for prompt in prompts
                for row in generate(model, torch.tensor([prompt]), max_tokens=length - len(prompt))
            ]
            for slug, model in self.first_models(results)
        }
        sentences = [
            {
                "index": start,
                "source": decode(prompts[i]),
                "reference": decode(self.whole_words(ids[i][len(prompts[i]) :])),
                "hypotheses": {slug: texts[i] for slug, texts in found.items()},
            }
            for i, start in enumerate(starts)
        ]
        rule = (
            f"{PASSAGES_SHOWN} passages of {length} tokens, evenly spaced over the test text; "
            f"about the last {min(CONTINUED, length // 2)} are predicted, the likeliest token each "
            f"time, and shown up to their last complete word; "
            f"seed {self.config.seeds[0]}"
        )
        terms = ("text", "continuation")
        return {"split": self.splits[0], "rule": rule, "terms": terms, "sentences": sentences}
