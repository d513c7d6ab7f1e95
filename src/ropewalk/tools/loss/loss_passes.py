"""Forward passes for losses: which tokens are scored, with which contexts, at which positions.

- `Work`: the passages of a text, and the contexts that are measured.
- `run_pass`: one forward pass, and the losses of its last tokens.
- `measure_shifts`: the same passages at shifted positions. With a relative rope their loss must not
  change: a slope is an angle error or a broken rule. What rounding explains is measured, at offsets
  so small that no way to compute angles is wrong there.
- `check_bounds`: refuses what would take too long or too much memory, before it begins.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ropewalk.checks import check_int, shown
from ropewalk.machine import check_fits
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.scaling import Scaling
from ropewalk.tools.live_model import check_ids, preserved
from ropewalk.tools.loss.loss_measurement import NONE, OWN, ShiftLoss, Shifts, difference
from ropewalk.tools.model_cost import least_bytes, work_of


class Scored(NamedTuple):
    """Losses of the scored tokens (T,), in nats; the mean standard deviation of logits."""

    losses: Tensor
    spread: float


def run_pass(
    model: nn.Module, ids: Tensor, scored: int, offset: int | None = None, length: int | None = None
) -> Scored:
    """Return the losses of the last tokens of ids (S,).

    offset: the position of the first token; None for the positions that the model's code takes
        itself, from 0 on.
    length: let a rule that depends on the length use this one: a second sequence in the batch ends
        there, because such a rule takes the length of the longest sequence.
    """
    given: dict[str, Any] = {"input_ids": ids[None], "use_cache": False}
    if offset is not None:
        starts = [offset] if length is None else [offset, length - len(ids)]
        steps = torch.arange(len(ids), device=ids.device)
        given["position_ids"] = torch.stack([start + steps for start in starts])
        given["input_ids"] = ids.expand(len(starts), -1)
    if keeps_logits(model):
        given["logits_to_keep"] = scored + 1
    with preserved(model), torch.no_grad():
        logits = model(**given).logits[0, -scored - 1 : -1].float()
    losses = F.cross_entropy(logits, ids[-scored:], reduction="none")
    return Scored(losses.cpu().double(), float(logits.std(dim=-1).mean()))


def keeps_logits(model: nn.Module) -> bool:
    """Return whether the model's code can compute the logits of the last tokens only."""
    return "logits_to_keep" in inspect.signature(model.forward).parameters


def spec_of(model: nn.Module) -> ModelSpec:
    """Return the ropes that a model's config describes, with the rule of a patch."""
    config: Any = model.config
    return ModelSpec.from_config(config)


SCORED = 256  # tokens of a passage; fewer if the model is tiny
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
        check_int("original", original, 8 + 2 * len(first))
        check_int("to", to, original + 1)
        check_int("passages", passages, 1)
        if len(ids) < to:
            raise ValueError(
                f"tokens must be at least {to:,}, the longest context, got {len(ids):,}"
            )
        scored = min(SCORED, original // 4)
        ends = passage_ends(len(ids), to, scored, passages)
        grid = context_grid(original, to, scored)
        return cls(ids, first, original, to, scored, ends, grid, min(original, MOST_SHIFTED))

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
        got = f"shape {tuple(tokens.shape)}" if isinstance(tokens, Tensor) else shown(tokens)
        raise ValueError(f"{name} must be the ids of tokens (N,), got {got}")
    embeddings: Any = getattr(model, "get_input_embeddings", lambda: None)()
    known = getattr(embeddings, "num_embeddings", None)
    if known is not None and tokens.numel():
        check_ids(name, tokens, known)
    return tokens.to(next(model.parameters()).device, torch.int64)


def context_grid(original: int, to: int, scored: int) -> tuple[int, ...]:
    """Return the contexts, which include the scored tokens: doublings of original / 4, and `to`."""
    grid = [original // 4, original // 2, original]
    while grid[-1] * 2 < to:
        grid.append(grid[-1] * 2)
    return tuple(sorted({n for n in grid if 2 * scored <= n < to} | {original, to}))


def passage_ends(count: int, to: int, scored: int, most: int) -> tuple[int, ...]:
    """Return where passages end in a text of `count` tokens, so that each has the longest context.

    They are spread evenly over the text. Their scored tokens do not overlap; contexts may.
    """
    room = count - to
    passages = min(most, 1 + room // scored)
    if passages == 1:
        return (count,)
    return tuple(to + room * i // (passages - 1) for i in range(passages))


def far_offsets(to: int, length: int) -> tuple[int, ...]:
    """Return the offsets of the first position, up to the last at which the passage fits."""
    last = to - length
    return tuple(sorted({last >> i for i in range(FAR)} - {0, *NEAR}))


TIMES = 4  # as large as the largest change nearby may a change be far away
LEAST_ROUNDING = 1e-5  # nats


def measure_shifts(model: nn.Module, passages: Sequence[Tensor], scored: int, to: int) -> Shifts:
    """Return the losses of passages (S,), all of the same length, with positions up to `to`."""
    layers = spec_of(model).layers
    if any(layer.query_temperature is not None for layer in layers):
        return Shifts(not_compared="the model scales queries by their position")
    last = max(to, len(passages[0]) + max(NEAR))  # all offsets have one length
    needed = any(layer.rope is not None and layer.rope.needs_length for layer in layers)
    losses, spread = {}, 0.0
    for offset in (0, *NEAR, *far_offsets(to, len(passages[0]))):
        runs = [run_pass(model, ids, scored, offset, last if needed else None) for ids in passages]
        losses[offset] = torch.stack([run.losses for run in runs])
        spread = max(spread, *(run.spread for run in runs))
    if not all(bool(of_offset.isfinite().all()) for of_offset in losses.values()):
        return Shifts(not_compared="the loss is not a finite number")
    rows = []
    for offset, shifted in losses.items():
        largest = float((shifted - losses[0]).abs().max())
        change = difference(shifted, losses[0])
        rows.append(ShiftLoss(offset, float(shifted.mean()), change, largest))
    near = max(row.largest for row in rows if row.offset in NEAR)
    # A loss changes at most by twice what rounding changes a logit in `bench --model`.
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    most = 2 * spread * max(1e-3, 64 * torch.finfo(dtype).eps)
    rounding = min(max(LEAST_ROUNDING, TIMES * near), most)
    # The least-squares slope of the mean change, per 1,000 positions.
    x = torch.tensor([row.offset for row in rows], dtype=torch.float64)
    y = torch.tensor([row.change.mean for row in rows], dtype=torch.float64)
    x = x - x.mean()
    slope = float(1000 * (x @ (y - y.mean())) / (x @ x))
    return Shifts(tuple(rows), rounding, slope, all(row.largest <= rounding for row in rows))


FIRST = 32  # tokens of the first timed pass
RELIABLE = 512  # tokens; the time of a shorter pass may be that of reading the weights


def check_bounds(
    model: nn.Module,
    ids: Tensor,
    passes: Sequence[int],
    scored: int,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Raise ValueError if passes of these lengths do not fit into memory or into `seconds`.

    ids: tokens (N,), at least as many as the longest pass. Passes of 32, 128, 512, … tokens are
    timed; the next one runs only if the estimate is not safely short or too long already.
    """
    longest = max(passes)
    logits = scored + 1 if keeps_logits(model) else longest
    check_fits(
        least_bytes(model, longest, logits),
        ids.device,
        rule="to must be smaller",
        what=f"a pass of {longest:,} tokens needs at least",
    )
    work, length = sum(work_of(model, count) for count in passes), FIRST
    while length <= longest:
        try:
            taken = _seconds(model, ids[:length], clock)
        except Exception:  # the measurement itself reports what the model's code raises
            return
        whole = taken * work / work_of(model, length)
        if whole < seconds / 10:
            return
        if whole > seconds and (length >= RELIABLE or 4 * length > longest):
            raise ValueError(
                f"to or passages must be smaller, or rules fewer: {len(passes):,} passes would "
                f"take about {_rounded(whole)} s, more than {_rounded(seconds)} s; seconds can "
                f"allow more"
            )
        length *= 4


def _seconds(model: nn.Module, ids: Tensor, clock: Callable[[], float]) -> float:
    for _ in range(2 if len(ids) == FIRST else 1):  # the first pass warms up
        began = clock()
        run_pass(model, ids, 1)
        if ids.device.type != "cpu":
            torch.accelerator.synchronize(ids.device)
    return clock() - began


def _rounded(seconds: float) -> str:
    """Return a number of seconds; short ones keep two digits, so that none is 0."""
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.2g}"
