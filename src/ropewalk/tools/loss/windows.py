"""Which tokens are scored, with which contexts, and at which positions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.checks import check_int, shown
from ropewalk.rotary.scaling import Scaling
from ropewalk.tools.loss.facts import NONE, OWN

SCORED = 256  # tokens of a passage
MOST_SHIFTED = 1024  # tokens of a passage at shifted positions
NEAR = (1, 2, 3)  # offsets at which angles are exact enough, so that they show rounding alone
FAR = 5  # offsets


@dataclass(frozen=True)
class Work:
    """The passages of a text and the contexts that are measured.

    ids: the text (N,), on the model's device. first: special tokens before each context (F,).
    grid: the contexts. shifted: the tokens of each passage at shifted positions.
    """

    ids: Tensor
    first: Tensor
    original: int
    to: int
    scored: int
    ends: tuple[int, ...]
    grid: tuple[int, ...]
    shifted: int

    @classmethod
    def of(
        cls,
        model: nn.Module,
        tokens: Tensor,
        start: Tensor | None,
        original: int,
        to: int,
        passages: int,
    ) -> Work:
        """Return the work. Raises TypeError or ValueError for wrong arguments of `measure_loss`."""
        ids = _ids("tokens", tokens, model)
        first = ids[:0] if start is None else _ids("start", start, model)
        scored, least = scored_tokens(original), 8 + 2 * len(first)
        check_int("original", original, least)
        check_int("to", to, original + 1)
        check_int("passages", passages, 1)
        if len(ids) < to:
            raise ValueError(
                f"tokens must be at least {to:,}, the longest context, got {len(ids):,}"
            )
        ends = passage_ends(len(ids), to, scored, passages)
        grid = context_grid(original, to, scored)
        return cls(ids, first, original, to, scored, ends, grid, shifted_tokens(original))

    def windows(self, context: int) -> list[Tensor]:
        """Return the tokens (S,) of each passage with a context, start tokens included."""
        own = context - len(self.first)
        return [torch.cat((self.first, self.ids[end - own : end])) for end in self.ends]

    def counts(self, rules: int) -> list[int]:
        """Return the tokens of each pass, for the model as it is and this number of rules."""
        offsets = 1 + len(NEAR) + len(far_offsets(self.to, self.shifted))
        shifts = [self.shifted] * offsets * len(self.ends)
        return [*self.grid] * len(self.ends) * rules + shifts * (rules + 1)


def check_rules(rules: Mapping[str, Scaling]) -> None:
    """Raise TypeError or ValueError for what are no rules by name."""
    if not isinstance(rules, Mapping):
        raise TypeError(f"rules must be a dict of rules by name, got {shown(rules)}")
    for name, rule in rules.items():
        if not isinstance(rule, Scaling):
            raise TypeError(
                f"rules[{shown(name)}] must be a rule of ropewalk.scaling, got {shown(rule)}"
            )
        if name in (NONE, OWN):
            raise ValueError(f"rules must not have the name {name}, which is that of no new rule")


def _ids(name: str, tokens: Any, model: nn.Module) -> Tensor:
    if not isinstance(tokens, Tensor) or tokens.ndim != 1 or tokens.is_floating_point():
        found = f"shape {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else shown(tokens)
        raise ValueError(f"{name} must be the ids of tokens (N,), got {found}")
    embeddings: Any = getattr(model, "get_input_embeddings", lambda: None)()
    known = getattr(embeddings, "num_embeddings", None)
    if known is not None and tokens.numel():  # on a GPU, such an id would break the process
        low, high = (int(each) for each in tokens.aminmax())
        if low < 0 or high >= known:
            raise ValueError(
                f"{name} must be ids from 0 to {known - 1}, got {high if high >= known else low}"
            )
    return tokens.to(next(model.parameters()).device, torch.int64)


def scored_tokens(original: int) -> int:
    """Return how many tokens of a passage are scored: 256, or fewer if the model is tiny."""
    return max(1, min(SCORED, original // 4))


def context_grid(original: int, to: int, scored: int) -> tuple[int, ...]:
    """Return the contexts, which include the scored tokens: doublings of original / 4, and `to`."""
    grid = [original // 4, original // 2, original]
    while grid[-1] * 2 < to:
        grid.append(grid[-1] * 2)
    return tuple(sorted({each for each in grid if 2 * scored <= each < to} | {original, to}))


def passage_ends(count: int, to: int, scored: int, most: int) -> tuple[int, ...]:
    """Return where passages end in a text of `count` tokens, so that each has the longest context.

    They are spread evenly over the text. Their scored tokens do not overlap; contexts may.
    """
    room = count - to
    passages = min(most, 1 + room // scored)
    if passages == 1:
        return (count,)
    return tuple(to + room * i // (passages - 1) for i in range(passages))


def shifted_tokens(original: int) -> int:
    """Return the tokens of a passage at shifted positions."""
    return min(original, MOST_SHIFTED)


def far_offsets(to: int, length: int) -> tuple[int, ...]:
    """Return the offsets of the first position, up to the last at which the passage fits."""
    last = to - length
    return tuple(sorted({last >> i for i in range(FAR)} - {0, *NEAR}))
