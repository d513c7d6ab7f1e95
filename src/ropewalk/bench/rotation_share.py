"""The part of a running step that rotation takes: timed inside it, and with rotation left out.

On a CPU, a stopwatch counts the time in the functions that rotate and compute tables. A step and
its rotation are timed together, so that a busy machine slows both. The gradient counts too:
autograd runs the nodes of a rotation one after another, because they were created last.

Without rotation, tables are not computed, and queries and keys stay as they are. The time of such a
step is what no rotation, however fast, can go below.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from math import nan
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.tools.live_model import Part, replaced, rotating_parts

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


class WithoutRotation:
    """Leaves out the rotation of one model while `apart()` is active.

    calls: how often a function that rotates was left out.
    """

    def __init__(self, model: nn.Module):
        self.calls = 0
        self._model = model
        self._replacements = [
            (part, (_remembered if part.makes_tables else self._unrotated)(part.function))
            for part in rotating_parts(model)
        ]

    def apart(self) -> AbstractContextManager[None]:
        """Return a context in which the model runs without rotation; no other model may run."""
        return replaced(self._replacements)

    def why_not(self, tokens: Tensor) -> str | None:
        """Return why the rotation cannot be left out, None if it can.

        Without rotation, logits must not depend on positions.
        """
        near = torch.arange(tokens.shape[1], device=tokens.device)[None]
        given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "use_cache": False}
        self.calls = 0
        try:
            with self.apart(), torch.no_grad():
                here = self._model(**given, position_ids=near).logits
                there = self._model(**given, position_ids=3 * near).logits
        except Exception as error:
            return f"without rotation the model's code raises {type(error).__name__}"
        if not self.calls:
            return "no function that rotates was found by its name, such as apply_rotary_pos_emb"
        if not torch.equal(here, there):
            return "positions also act elsewhere than in the functions that rotate"
        return None

    def _unrotated(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that returns its vectors; the first call shows which these are."""
        places: list[int] | None = None
        single = False

        @functools.wraps(function)
        def unrotated(*args: Any, **kwargs: Any) -> Any:
            nonlocal places, single
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            if places is None:
                returned = function(*args, **kwargs)
                single = isinstance(returned, Tensor)
                places = _places([returned] if single else list(returned), given)
            self.calls += 1
            return given[places[0]] if single else tuple(given[at] for at in places)

        return unrotated


def _places(returned: list[Tensor], given: list[Tensor]) -> list[int]:
    """Return which argument each result has the shape of, each argument once."""
    places: list[int] = []
    for result in returned:
        fits = [i for i, x in enumerate(given) if x.shape == result.shape and i not in places]
        if not fits:
            raise ValueError("a function that rotates returns another shape than it receives")
        places.append(fits[0])
    return places


def _remembered(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a forward that computes its tables once for each shape of its arguments."""
    results: dict[Any, Any] = {}

    def remembered(*args: Any, **kwargs: Any) -> Any:
        values = [*args, *kwargs.values()]
        key = tuple(x.shape if isinstance(x, Tensor) else str(x) for x in values)
        if key not in results:
            results[key] = forward(*args, **kwargs)
        return results[key]

    return remembered
