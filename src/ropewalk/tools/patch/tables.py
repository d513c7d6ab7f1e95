"""A rotary module of a model, with exact tables instead of float32 angles.

Axes: A position axes, B batch, S sequence, R rotary_dim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ropewalk.rotary.shape_checks import is_hidden
from ropewalk.rotary.spec import RotarySpec
from ropewalk.rotary.tables import MAX_CACHED_ROWS, RotaryTables, Tables
from ropewalk.tools.patch.rebind import subclass
from ropewalk.tools.patch.rotation import TableForm, as_model_has_them


@dataclass(frozen=True)
class Match:
    """A rope of the config, and how a module returns its tables.

    reverse: the module's angles are the negative of the rope's (nanochat). follows: the tables have
    the dtype of x.
    """

    rope: RotarySpec
    form: TableForm
    reverse: bool
    follows: bool


def tables_at(tables: RotaryTables, positions: Tensor) -> Tables:
    """Return tables at positions (B, S) or (A, B, S).

    The length of a rule is that of the longest sequence in the batch, as in transformers: when it
    changes, caches of the model are dropped for the complete batch.
    """
    spec = tables.spec
    if spec.axis_count > 1 and (positions.ndim == 2 or positions.shape[0] == 1):
        positions = positions.expand(spec.axis_count, -1, -1)  # text: the same on every axis
    if not spec.needs_length:
        return tables.at(positions)
    return tables.at(positions, positions.max().clamp(min=0).reshape(1) + 1)


class ExactTables:
    """The tables of a rotary module, for each of its layer types, in the form that the model has.

    wide: float32 whatever x is, because all functions that take them compute in float32; else in
    the dtype of the model's own tables.

    On the CPU, rows of the first positions are cached as `RotaryTables` caches them, but in the
    model's form. Copies and pickles do not have them.
    """

    def __init__(self, matches: Mapping[str | None, Match], *, wide: bool) -> None:
        self.matches = dict(matches)
        self.wide = wide
        self._tables = {each: RotaryTables(found.rope) for each, found in matches.items()}
        self._rows: dict[str | None, tuple[Tensor, ...]] = {}

    def serves(self, position_ids: Tensor, layer_type: str | None) -> bool:
        """Return whether there are exact tables for a call.

        Fractions of a position, and layer types without a match, need the model's own tables.
        """
        return layer_type in self.matches and not position_ids.is_floating_point()

    def at(self, x: Tensor, position_ids: Tensor, layer_type: str | None) -> Any:
        """Return what the model's own module would return, exact."""
        found = self.matches[layer_type]
        tables = self._cached(x, position_ids, layer_type)
        if tables is None:
            tables = self._computed(position_ids.to(x.device), layer_type)
        if found.follows and not self.wide:
            tables = tuple(table.to(x.dtype) for table in tables)
        return tables if len(tables) > 1 else tables[0]

    def _computed(self, positions: Tensor, layer_type: str | None) -> tuple[Tensor, ...]:
        found = self.matches[layer_type]
        cos, sin = tables_at(self._tables[layer_type], positions)
        return as_model_has_them((cos, -sin if found.reverse else sin), found.form)

    def _cached(
        self, x: Tensor, positions: Tensor, layer_type: str | None
    ) -> tuple[Tensor, ...] | None:
        """Return rows of the cache, or None if the positions need tables of their own."""
        rope = self.matches[layer_type].rope
        if torch.compiler.is_compiling() or rope.needs_length or rope.axis_count > 1:
            return None
        if not x.is_cpu or is_hidden(positions) or not positions.numel():
            return None
        first, last = (int(each) for each in positions.aminmax())
        if first < 0 or last >= MAX_CACHED_ROWS:
            return None
        rows = self._rows.get(layer_type)
        if rows is None or len(rows[0]) <= last:
            # Rows made in inference mode could not serve a later training step.
            with torch.inference_mode(False):
                count = 1 << last.bit_length()
                rows = self._computed(torch.arange(count, device="cpu"), layer_type)
            self._rows[layer_type] = rows
        return tuple(each[positions] for each in rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_rows": {}}


def exact_class(cls: Any) -> type:
    """Return a subclass of a rotary module's class that returns the tables in `exact_tables`."""

    def forward(self: Any, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Any:
        if self.exact_tables.serves(position_ids, layer_type):
            return self.exact_tables.at(x, position_ids, layer_type)
        more = () if layer_type is None else (layer_type,)
        return cls.forward(self, x, position_ids, *more)

    return subclass(cls, {"forward": forward}, exact_class)
