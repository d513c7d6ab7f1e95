"""Exact tables for a rotary module of a model, and which rope of the config it computes.

Axes: A position axes, B batch, S sequence, R rotary_dim.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.checks import shown
from ropewalk.rotary.shape_checks import is_hidden
from ropewalk.rotary.spec import RotarySpec
from ropewalk.rotary.tables import MAX_CACHED_ROWS, RotaryTables, Tables
from ropewalk.tools.patch.rotation_functions import (
    TABLE_FORMS,
    TableForm,
    as_model_has_them,
    subclass,
)


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
        self._tables = {kind: RotaryTables(match.rope) for kind, match in matches.items()}
        self._rows: dict[str | None, tuple[Tensor, ...]] = {}

    def at(self, x: Tensor, position_ids: Tensor, layer_type: str | None) -> Any:
        """Return what the model's own module would return, exact, or None.

        Fractions of a position, and layer types without a match, need the model's own tables.
        """
        if layer_type not in self.matches or position_ids.is_floating_point():
            return None
        tables = self._cached(x, position_ids, layer_type)
        if tables is None:
            tables = self._computed(position_ids.to(x.device), layer_type)
        if self.matches[layer_type].follows and not self.wide:
            tables = tuple(table.to(x.dtype) for table in tables)
        return tables if len(tables) > 1 else tables[0]

    def _computed(self, positions: Tensor, layer_type: str | None) -> tuple[Tensor, ...]:
        match = self.matches[layer_type]
        cos, sin = tables_at(self._tables[layer_type], positions)
        return as_model_has_them((cos, -sin if match.reverse else sin), match.form)

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
        if (tables := self.exact_tables.at(x, position_ids, layer_type)) is not None:
            return tables
        more = () if layer_type is None else (layer_type,)
        return cls.forward(self, x, position_ids, *more)

    return subclass(cls, {"forward": forward}, exact_class)


#: Parameters that the forward of a rotary module may have.
PARAMETERS = (("x", "position_ids"), ("x", "position_ids", "layer_type"))
BUFFER = "embed_positions"  # GPT-J and CodeGen: the table of each layer, sin before cos

REPLACED_FORWARD = "its forward was replaced on this object, as hooks of accelerate do"

NEAR = (0, 1, 2, 3, 5, 17, 130, 1_003, 2_047)
# A float32 frequency is off by up to about 1e-6 of itself, which the angle multiplies.
ROUNDING = {torch.float32: 4e-6, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}


class NoMatchError(Exception):
    """Tables that are those of no rope of the config, with the reason."""


class NotCallableError(NoMatchError):
    """A module that cannot be called with positions (B, S), with the reason."""


class NoTablesError(Exception):
    """A layer type without tables: its layers have no rope."""


def is_rotary(module: nn.Module) -> bool:
    """Return whether a module's forward takes x and positions, and maybe the type of a layer."""
    if type(module).__module__.partition(".")[0] == "torch":
        return False
    return tuple(inspect.signature(type(module).forward).parameters)[1:] in PARAMETERS


def match(
    module: nn.Module, ropes_of: Callable[[str | None], Sequence[RotarySpec]]
) -> tuple[dict[str | None, Match], dict[str | None, str]]:
    """Return which rope a module computes for each of its layer types, and why others match none.

    ropes_of: the ropes that are possible for a type. A type without tables is in neither result.

    Its tables are compared with exact ones, at positions up to 2,047, and beyond the original
    length if a rule depends on it. A copy of the module is called, because some remember lengths.
    """
    if "forward" in vars(module):
        return {}, {None: REPLACED_FORWARD}
    if any(buffer.is_meta for buffer in module.buffers()):
        return {}, {None: "it is on the meta device; patch the model after it is loaded"}
    matched: dict[str | None, Match] = {}
    unmatched: dict[str | None, str] = {}
    by_type = "layer_type" in inspect.signature(type(module).forward).parameters
    named = (getattr(module, "layer_types", None) or ()) if by_type else ()
    types: list[str | None] = [*sorted({name for name in named if isinstance(name, str)})]
    for layer_type in types or [None]:
        try:
            matched[layer_type] = _match_one(module, layer_type, ropes_of(layer_type))
        except NoTablesError:
            continue
        except NoMatchError as error:
            unmatched[layer_type] = str(error)
    if not matched and not unmatched:
        unmatched[None] = "it computes no tables"
    return matched, unmatched


def _match_one(module: nn.Module, layer_type: str | None, ropes: Sequence[RotarySpec]) -> Match:
    if not ropes:
        raise NoTablesError
    reasons: list[str] = []
    failed: NotCallableError | None = None
    for rope, form, sign in product(ropes, TABLE_FORMS, (1, -1)):
        try:
            reason = _difference(module, layer_type, rope, form, sign)
        except NotCallableError as error:  # perhaps the next rope has the right axes
            failed = failed or error
            continue
        if reason is None:
            probes = call_rotary(_copied(module), _probes(rope)[0], layer_type, torch.float64)
            return Match(rope, form, sign < 0, probes[0].dtype == torch.float64)
        reasons.append(reason)
    if failed is not None and not reasons:
        raise failed
    of = "" if layer_type is None else f" for {layer_type}"
    worst = next((f": {reason}" for reason in reasons if reason), "")
    raise NoMatchError(
        f"its tables{of} are those of no rope in the config{worst}; `ropewalk verify --model` "
        f"tells what they are"
    )


def _probes(rope: RotarySpec) -> list[Tensor]:
    """Return positions to compare at, one call each: (1, S), or (A, 1, S) for several axes."""
    original = getattr(rope.scaling, "original_length", None) if rope.needs_length else None
    near = torch.tensor([[p for p in NEAR if original is None or p < original]])
    calls = [near] if original is None else [near, torch.tensor([[original]])]
    axes = range(1, rope.axis_count + 1)
    return [torch.stack([at * n % 2_048 for n in axes]) if len(axes) > 1 else at for at in calls]


def _difference(
    module: nn.Module, layer_type: str | None, rope: RotarySpec, form: TableForm, sign: int
) -> str | None:
    """Return None if the module's tables are the rope's, "" if the shape differs, else how far."""
    rounding = max([ROUNDING.get(x.dtype, 0.0) for x in module.buffers()], default=0.0)
    fresh = _copied(module)  # it may remember lengths; a short call makes it forget them
    for at in _probes(rope):
        theirs = call_rotary(fresh, at, layer_type, torch.float32)
        cos, sin = tables_at(RotaryTables(rope), at)
        ours = as_model_has_them((cos, sign * sin), form)
        if len(ours) != len(theirs) or ours[0].shape != theirs[0].shape:
            return ""
        farthest = at if rope.axis_count == 1 else at.amax(0)
        length = int(farthest.max()) + 1
        angles = (rope.inverse_frequencies(length) * farthest[..., None]).abs()
        allowed = 3e-6 + max(rounding, ROUNDING[torch.float32]) * angles.float()
        (allowed, *_) = as_model_has_them((rope.amplitude_at(length) * allowed,) * 2, form)
        allowed = allowed.real if allowed.is_complex() else allowed
        for mine, other in zip(ours, theirs, strict=True):
            off = (mine - other).abs().nan_to_num(torch.inf)
            if not bool((off <= allowed).all()):
                place = int((off - allowed).amax((0, -1)).argmax())
                worst = float(off[..., place, :].max())
                return f"off by {worst:.2g} at position {int(farthest[0, place])}"
    return None


def _copied(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # such as of a lock
        raise NoMatchError(f"it cannot be copied: {shown(str(error))}") from error


def call_rotary(
    module: nn.Module, at: Tensor, layer_type: str | None, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """Return what a rotary module computes at positions, on the CPU."""
    device = next((x.device for x in module.buffers()), torch.device("cpu"))
    x = torch.zeros(1, at.shape[-1], 1, dtype=dtype, device=device)
    more = () if layer_type is None else (layer_type,)
    try:
        tables = type(module).forward(module, x, at.to(device), *more)  # without its hooks
    except (AttributeError, KeyError):  # where a module has its buffers by layer type
        raise NoTablesError from None
    except Exception as error:  # code of a model may raise anything
        says = f"{type(error).__name__}: {shown(str(error))}"
        raise NotCallableError(f"it does not take positions (B, S): {says}") from error
    tables = (tables,) if isinstance(tables, Tensor) else tuple(tables)
    if not 1 <= len(tables) <= 2 or not all(isinstance(table, Tensor) for table in tables):
        raise NoMatchError("it does not return cos and sin")
    return tuple(table.cpu() for table in tables)


def exact_buffer(module: nn.Module, rope: RotarySpec) -> Tensor:
    """Return the exact values of GPT-J's buffer of tables (positions, R).

    Raises NoMatchError if the buffer has other values.
    """
    buffer = module.get_buffer(BUFFER)
    if buffer.is_meta:
        raise NoMatchError("it is on the meta device; patch the model after it is loaded")
    made = torch.cat(RotaryTables(rope).at(torch.arange(len(buffer)))[::-1], -1)
    if made.shape != buffer.shape:
        raise NoMatchError("its table is that of no rope in the config: its shape differs")
    near = min(len(buffer), NEAR[-1])
    angles = (rope.inverse_frequencies() * torch.arange(near)[:, None]).repeat(1, 2)
    off = (buffer[:near].cpu().float() - made[:near]).abs().nan_to_num(torch.inf)
    # The buffer itself was rounded too, not only its angles.
    if not bool((off <= 3e-6 + ROUNDING.get(buffer.dtype, 4e-6) * (1 + angles)).all()):
        raise NoMatchError(f"its table is off by {float(off.max()):.2g}")
    return made.to(buffer.device)
