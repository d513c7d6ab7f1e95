"""Time inside the functions that rotate and compute tables, in a running step, on a CPU.

A step and its rotation are timed together, so that a busy machine slows both. The gradient counts
too: autograd runs the nodes of a rotation one after another, because they were created last.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import nan
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.tools.rotating import Part, replaced, rotating_parts

Mark = Callable[[], None]


class Stopwatch:
    """Adds up the time inside the rotation of one model while `running()` is active.

    seconds: one number for each time that the context was left; NaN if a gradient began or ended
        without the other. rotations: calls of functions that rotate.
    """

    def __init__(self, model: nn.Module, clock: Callable[[], float] = time.perf_counter):
        self.seconds: list[float] = []
        self.rotations = 0
        self._clock = clock
        self._sum, self._open = 0.0, 0
        self._depth = 0
        self._replacements = [(part, self._timed(part)) for part in rotating_parts(model)]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Context of one step; no other model may run."""
        self._sum, self._open = 0.0, 0
        with replaced(self._replacements):
            yield
        self.seconds.append(self._sum if self._open == 0 else nan)

    def _begin(self) -> None:
        self._open += 1
        self._sum -= self._clock()

    def _end(self) -> None:
        self._sum += self._clock()
        self._open -= 1

    def _timed(self, part: Part) -> Callable[..., Any]:
        """Return a function whose time counts; functions that it calls in turn are in its time."""
        function = part.function

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._depth:
                return function(*args, **kwargs)
            self.rotations += not part.makes_tables
            given = _with_edge((*args, *kwargs.values()), self._end)
            kwargs = dict(zip(kwargs, given[len(args) :], strict=True))
            self._depth += 1
            self._begin()
            try:
                returned = function(*given[: len(args)], **kwargs)
            finally:
                self._end()
                self._depth -= 1
            if isinstance(returned, Tensor):
                return _with_edge((returned,), self._begin)[0]
            return _with_edge(returned, self._begin) if type(returned) is tuple else returned

        return timed


class _Edge(torch.autograd.Function):
    """Calls a mark when all gradients of some tensors have arrived."""

    @staticmethod
    def forward(ctx: Any, mark: Mark, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.mark = mark
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ctx.mark()
        return (None, *gradients)


def _with_edge(values: tuple[Any, ...], mark: Mark) -> tuple[Any, ...]:
    """Return the values; the backward pass calls the mark where it crosses them."""
    if not torch.is_grad_enabled():
        return values
    at = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.requires_grad]
    if not at:
        return values
    crossing: Any = _Edge.apply
    marked = dict(zip(at, crossing(mark, *(values[i] for i in at)), strict=True))
    return tuple(marked.get(i, x) for i, x in enumerate(values))
