"""What `measure_loss` returns, as frozen dataclasses, and the intervals of paired differences.

Losses are in nats per token. Intervals are a bootstrap over passages, or over blocks of tokens: the
losses of neighboring tokens depend on each other, so single tokens are never drawn. Passages are
far apart in a long text. If there are few, their blocks are drawn: such an interval is about these
passages only, and is too narrow if dependence reaches farther than a block.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ropewalk.bootstrap import mean_half_width
from ropewalk.rotary.scaling import Scaling
from ropewalk.tools.inspect.rope_facts import Plain

NONE, OWN = "none", "own"


@dataclass(frozen=True)
class Difference:
    """The mean difference of the same tokens' losses, with its 95 % interval.

    low, high: None if there are too few passages and blocks for an interval.
    """

    mean: float
    low: float | None
    high: float | None

    @property
    def shown(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True)
class ContextLoss:
    """The loss of the scored tokens with a context, in tokens, that includes them.

    by_passage: the mean of each passage. from_none: minus the loss without a rule, with the same
    context. from_original: minus the loss without a rule, with the original context.
    """

    context: int
    loss: float
    by_passage: tuple[float, ...]
    from_none: Difference
    from_original: Difference


@dataclass(frozen=True)
class ShiftLoss:
    """The loss of the same passages with positions that start at `offset`.

    change: minus the loss with positions from 0. largest: of the changes of single tokens.
    """

    offset: int
    loss: float
    change: Difference
    largest: float


@dataclass(frozen=True)
class Shifts:
    """The same passages at shifted positions.

    rounding: the change of a token's loss that rounding explains: four times the largest at the
    offsets 1, 2 and 3. slope: of the mean change, in nats per 1,000 positions. flat: whether no
    change is larger than `rounding`. not_compared: why positions may change the loss, or why there
    are no numbers; then `flat` is None.
    """

    losses: tuple[ShiftLoss, ...] = ()
    rounding: float | None = None
    slope: float | None = None
    flat: bool | None = None
    not_compared: str | None = None


@dataclass(frozen=True)
class RuleLoss:
    """The losses of a model under one rule.

    rule: None for the model's own ropes. refused: why there are no numbers, or None.
    """

    method: str
    rule: Scaling | None
    contexts: tuple[ContextLoss, ...] = ()
    shifts: Shifts = Shifts()
    refused: str | None = None


@dataclass(frozen=True)
class LossMeasurement(Plain):
    """The loss of the same tokens by context, and at shifted positions, under each rule.

    original: the context in training. to: the longest context. scored: tokens of each passage whose
    loss is measured, the last ones. ends: where the passages end in the text. unit: what intervals
    are drawn from, "passages" or "blocks" of neighboring tokens. shifted_length: tokens of each
    passage at shifted positions. results: the first is without another rule: "none", or "own" if
    the model's config has a rule. unpatched: its shifts as transformers computes them, in float32
    angles. lowest: the method with the lowest loss at `to`. tied: methods that are not shown to be
    worse there. not_patched: why patch cannot replace the model's own ropes, so that they are
    measured as transformers computes them; else None.
    """

    original: int
    to: int
    scored: int
    ends: tuple[int, ...]
    unit: str
    shifted_length: int
    results: tuple[RuleLoss, ...]
    unpatched: Shifts
    lowest: str
    tied: tuple[str, ...]
    not_patched: str | None = None

    def result(self, method: str) -> RuleLoss:
        """Return the result of a method. Raises ValueError if it was not measured."""
        results = {result.method: result for result in self.results}
        if method not in results:
            known = ", ".join(results)
            raise ValueError(f"method must be one that was measured: {known}, got {method!r}")
        return results[method]


PASSAGES, BLOCKS = "passages", "blocks"
FEWEST_PASSAGES = 8
FEWEST_UNITS = 4
BLOCK = 32  # tokens
DRAWS = 4_000


def unit_of(passages: int) -> str:
    """Return what intervals are drawn from."""
    return PASSAGES if passages >= FEWEST_PASSAGES else BLOCKS


def difference(first: Tensor, second: Tensor) -> Difference:
    """Return the mean of first - second, losses of the same tokens (P, T), with its interval.

    The interval is symmetric, from resampled means of the units.
    """
    apart = first - second
    passages, tokens = apart.shape
    blocks = 1 if unit_of(passages) == PASSAGES else max(1, tokens // BLOCK)
    units = torch.cat([block.mean(1) for block in apart.tensor_split(blocks, dim=1)])
    mean = float(apart.mean())
    if len(units) < FEWEST_UNITS:
        return Difference(mean, None, None)
    half = mean_half_width(units, DRAWS)
    return Difference(mean, mean - half, mean + half)
