"""What to change in a model, and what to leave, with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from ropewalk.rotary.config.conventions import CONVERTED_PAIRING_KEY
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.pairing import Pairing
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.patch.rebind import (
    NotRebindableError,
    Place,
    rotating_class,
    rotating_functions,
)
from ropewalk.tools.patch.report import Change
from ropewalk.tools.patch.rotation import Rotation, TableForm, measure, with_pairing
from ropewalk.tools.patch.tables import (
    BUFFER,
    ExactTables,
    Match,
    NoMatchError,
    exact_buffer,
    exact_class,
    is_rotary,
    match,
)

NewRopes = Mapping[tuple[str | None, RotarySpec], RotarySpec]
"""The rope with another rule, by the type of layers and the rope of the config."""

NAMED_ROTARY = re.compile("rotary", re.IGNORECASE)
Matches = dict[str | None, Match]

Left = list[tuple[str, str]]
"""Paths of modules that stay as they were, and the reasons."""


class Plan:
    """The changes of one model, and the modules that are left.

    tables_left: modules that compute tables. rotations_left: modules that rotate. others_left:
    modules about ropes that are neither. replaced: ropes of the config that tables were found for.
    """

    def __init__(self, model: nn.Module, spec: ModelSpec, new_ropes: NewRopes) -> None:
        self.changes: list[Change] = []
        self.tables_left: Left = []
        self.rotations_left: Left = []
        self.others_left: Left = []
        self.replaced: set[RotarySpec] = set()
        self._new_ropes = new_ropes
        self._modules = dict(model.named_modules())
        self._layers = [layer for stack in spec.stacks.values() for layer in stack]
        self.converted = _converted_pairing(spec)
        self._measured: dict[tuple[Callable[..., Any], TableForm], Rotation | None] = {}
        self._make()

    def _make(self) -> None:
        rotary = {path: module for path, module in self._modules.items() if is_rotary(module)}
        for root in _outermost(path.rpartition(".")[0] for path in rotary):
            self._scope(root, {p: m for p, m in rotary.items() if _within(p, root)})
        for path, module in self._modules.items():
            if BUFFER in module._buffers:
                self._layer_with_buffer(path, module)
        for path, module in self._modules.items():
            named = NAMED_ROTARY.search(type(module).__name__) and not any(module.children())
            if named and path not in rotary:
                self.others_left.append((path, "it does not take x and position_ids"))

    @property
    def left(self) -> Left:
        """All modules that are left."""
        return [*self.tables_left, *self.rotations_left, *self.others_left]

    def _scope(self, root: str, rotary: dict[str, nn.Module]) -> None:
        """Plan the modules that compute tables within a root, and those that use these tables."""
        matches: dict[str, Matches] = {}
        for path, module in rotary.items():
            found, unmatched = match(module, self._ropes_of)
            self.tables_left += [(path, reason) for reason in unmatched.values()]
            if found:
                matches[path] = found
        every = [each for found in matches.values() for each in found.values()]
        forms = {(each.form, each.reverse) for each in every}
        consumers = dict(self._consumers(root, rotary))
        reason = None
        if any(path in rotary for path, _ in self.tables_left):
            reason = "not all of its tables are exact"
        elif len(forms) != 1:
            reason = "its tables have different forms"
        if reason is not None:
            self.rotations_left += [(path, reason) for path in consumers]
        taken = {} if reason is not None else self._taken(consumers, *forms.pop())
        compact = reason is None and len(taken) == len(consumers) > 0
        self.replaced |= {each.rope for each in every}
        for path, found in matches.items():
            found = {
                layer_type: replace(each, rope=self._new_rope(layer_type, each.rope))
                for layer_type, each in found.items()
            }
            exact = {"exact_tables": ExactTables(found, compact=compact)}
            cls = exact_class(type(rotary[path]))
            self.changes.append(Change(path, rotary[path], cls, exact))
        if compact:
            for path, rotations in taken.items():
                cls = rotating_class(type(self._modules[path]), rotations)
                self.changes.append(Change(path, self._modules[path], cls))
        elif reason is None:
            others = "modules with the same tables were left"
            self.rotations_left += [(path, others) for path in taken]

    def _ropes_of(self, layer_type: str | None) -> Sequence[RotarySpec]:
        """Return the ropes of layers of a type, or of all layers if none has this type."""
        of_type = [layer for layer in self._layers if layer.layer_type == layer_type]
        ropes = [layer.rope for layer in of_type or self._layers if layer.rope is not None]
        return tuple(dict.fromkeys(ropes))

    def _new_rope(self, layer_type: str | None, rope: RotarySpec) -> RotarySpec:
        if layer_type is not None:
            return self._new_ropes.get((layer_type, rope), rope)
        new = {made for (_, old), made in self._new_ropes.items() if old == rope}
        return new.pop() if len(new) == 1 else rope

    def _consumers(
        self, root: str, rotary: Mapping[str, nn.Module]
    ) -> Iterator[tuple[str, dict[Place, Callable[..., Any]] | str]]:
        """Return the modules that rotate: the functions that each calls, or why it is left."""
        for path, module in self._modules.items():
            if not _within(path, root) or path in rotary:
                continue
            try:
                functions = rotating_functions(type(module))
            except NotRebindableError as error:
                yield path, str(error)
                continue
            if functions and "forward" in vars(module):
                yield path, "its forward was replaced on this object, as hooks of accelerate do"
            elif functions:
                yield path, functions

    def _taken(
        self,
        consumers: Mapping[str, dict[Place, Callable[..., Any]] | str],
        form: TableForm,
        reverse: bool,
    ) -> dict[str, tuple[tuple[Place, Rotation], ...]]:
        """Return the rotation of each function of each consumer; the others are left."""
        taken = {}
        for path, functions in consumers.items():
            if isinstance(functions, str):
                self.rotations_left.append((path, functions))
                continue
            try:
                taken[path] = tuple(
                    (place, self._rotation(place[1], function, form, reverse))
                    for place, function in functions.items()
                )
            except NoMatchError as error:
                self.rotations_left.append((path, str(error)))
        return taken

    def _rotation(
        self, name: str, function: Callable[..., Any], form: TableForm, reverse: bool
    ) -> Rotation:
        key = function, form
        if key not in self._measured:
            self._measured[key] = measure(function, form)
        found = self._measured[key]
        if found is None:
            raise NoMatchError(f"{name} is no rotation of a known form")
        if found.reverse is not reverse:
            raise NoMatchError(f"{name} rotates backwards")
        if self.converted is not None:
            return with_pairing(found, *self.converted)
        return found

    def _layer_with_buffer(self, path: str, module: nn.Module) -> None:
        """Plan an attention of GPT-J or CodeGen, which has a table of its own."""
        consumer = dict(self._consumers(path, {}))
        taken = self._taken({k: v for k, v in consumer.items() if k == path}, "once", False)
        try:
            buffers = {BUFFER: exact_buffer(module, self._ropes_of(None)[0])}
        except NoMatchError as error:
            self.tables_left.append((path, str(error)))
            return
        if path in taken:
            cls = rotating_class(type(module), taken[path])
            self.changes.append(Change(path, module, cls, buffers=buffers))


def _converted_pairing(spec: ModelSpec) -> tuple[Pairing, Pairing] | None:
    """Return how pairs are read and written in converted weights, or None if they are not."""
    for layer in spec.stacks.get("text", ()):
        if layer.rope is None or layer.origins.get("pairing") != CONVERTED_PAIRING_KEY:
            continue
        if layer.indexer is not None:
            raise ValueError(
                f"model must not have {CONVERTED_PAIRING_KEY} in its config if it has an indexer, "
                f"whose pairing it does not state"
            )
        return layer.rope.pairing, layer.rope.write_pairing
    return None


def _within(path: str, root: str) -> bool:
    return not root or path == root or path.startswith(f"{root}.")


def _outermost(roots: Any) -> list[str]:
    unique = sorted(set(roots))
    return [root for root in unique if not any(_within(root, o) for o in unique if o != root)]
