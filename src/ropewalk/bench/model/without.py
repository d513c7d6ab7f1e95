"""A model without its rotation: tables are not computed, and queries and keys stay as they are.

The time of its step is what no rotation, however fast, can go below.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.tools.rotating import replaced, rotating_parts


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
