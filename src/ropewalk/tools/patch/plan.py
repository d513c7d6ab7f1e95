"""What to change in a model, and what to keep unchanged, with the reason."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from ropewalk.rotary.config.conventions import CONVERTED_PAIRING_KEY
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.pairing import Pairing
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.patch.match import (
    BUFFER,
    REPLACED_FORWARD,
    NoMatchError,
    exact_buffer,
    is_rotary,
    match,
)
from ropewalk.tools.patch.rebind import (
    NotRebindableError,
    Place,
    rotating_class,
    rotating_functions,
)
from ropewalk.tools.patch.report import Change
from ropewalk.tools.patch.rotation import Rotation, TableForm, measure
from ropewalk.tools.patch.tables import ExactTables, Match, exact_class

NewRopes = Mapping[tuple[str | None, RotarySpec], RotarySpec]
"""The rope with another rule, by the type of layers and the rope of the config."""

NAMED_ROTARY = re.compile("rotary", re.IGNORECASE)
Matches = dict[str | None, Match]

Left = list[tuple[str, str]]
"""Paths of modules that stay unchanged, and the reasons."""


class Plan:
    """The changes of one model, and the modules that stay unchanged.

    A rotary module computes tables; a rotating module calls a function that rotates q and k by
    them. Modules with the same tables are below one root in the model.

    tables_left, rotations_left, others_left: unchanged rotary modules, rotating modules, and others
    about ropes, each with the reason. replaced: ropes of the config that tables were found for.
    rotating: paths of the modules whose rotation is replaced.
    """

    def __init__(self, model: nn.Module, spec: ModelSpec, new_ropes: NewRopes) -> None:
        self.changes: list[Change] = []
        self.tables_left: Left = []
        self.rotations_left: Left = []
        self.others_left: Left = []
        self.replaced: set[RotarySpec] = set()
        self.rotating: list[str] = []
        self.converted = _converted_pairing(spec)
        self._new_ropes = new_ropes
        self._modules = dict(model.named_modules())
        self._layers = [layer for stack in spec.stacks.values() for layer in stack]
        self._text_config = _text_config(model.config) if len(spec.stacks) > 1 else None
        self._measured: dict[tuple[Callable[..., Any], TableForm], Rotation | None] = {}

    @classmethod
    def of(cls, model: nn.Module, spec: ModelSpec, new_ropes: NewRopes) -> Plan:
        """Return what to change in a model."""
        plan = cls(model, spec, new_ropes)
        modules = plan._modules
        rotary = {path: module for path, module in modules.items() if is_rotary(module)}
        for root in _outermost(path.rpartition(".")[0] for path in rotary):
            plan._below(root, {p: m for p, m in rotary.items() if _within(p, root)})
        for path, module in modules.items():
            if BUFFER in module._buffers:
                plan._layer_with_buffer(path, module)
            named = NAMED_ROTARY.search(type(module).__name__) and not any(module.children())
            if named and path not in rotary:
                plan.others_left.append((path, "it does not take x and position_ids"))
        return plan

    @property
    def left(self) -> Left:
        """All modules that stay unchanged."""
        return [*self.tables_left, *self.rotations_left, *self.others_left]

    def is_text(self, path: str) -> bool:
        """Return whether a module belongs to the text stack, by the config that it has."""
        config = vars(self._modules[path]).get("config")
        return self._text_config is None or config is None or config is self._text_config

    def _below(self, root: str, rotary: dict[str, nn.Module]) -> None:
        """Plan the rotary modules below a root, and the rotating modules that have their tables."""
        matches: dict[str, Matches] = {}
        for path, module in rotary.items():
            found, unmatched = match(module, self._ropes_of)
            self.tables_left += [(path, reason) for reason in unmatched.values()]
            if found:
                matches[path] = found
        every = [each for found in matches.values() for each in found.values()]
        self.replaced |= {each.rope for each in every}
        forms = {(each.form, each.reverse) for each in every}
        rotations_left = len(self.rotations_left)
        for path, functions in self._rotating(root, rotary):
            if len(forms) == 1:
                self._take(path, functions, next(iter(forms)))
            else:
                why = "its tables have several forms" if forms else "its tables were not replaced"
                self.rotations_left.append((path, why))
        wide = len(self.rotations_left) == rotations_left
        for path, found in matches.items():
            scaled = {
                layer_type: replace(each, rope=self._new_rope(path, layer_type, each.rope))
                for layer_type, each in found.items()
            }
            exact = {"exact_tables": ExactTables(scaled, wide=wide)}
            cls = exact_class(type(rotary[path]))
            self.changes.append(Change(path, rotary[path], cls, exact))

    def _ropes_of(self, layer_type: str | None) -> Sequence[RotarySpec]:
        """Return the ropes of layers of a type, or of all layers if none has this type."""
        of_type = [each for each in self._layers if layer_type == each.layer_type is not None]
        ropes = [layer.rope for layer in of_type or self._layers if layer.rope is not None]
        return tuple(dict.fromkeys(ropes))

    def _new_rope(self, path: str, layer_type: str | None, rope: RotarySpec) -> RotarySpec:
        if not self.is_text(path):
            return rope
        if layer_type is not None:
            return self._new_ropes.get((layer_type, rope), rope)
        new = {made for (_, old), made in self._new_ropes.items() if old == rope}
        return new.pop() if len(new) == 1 else rope

    def _rotating(
        self, root: str, rotary: Mapping[str, nn.Module]
    ) -> Iterator[tuple[str, dict[Place, Callable[..., Any]]]]:
        """Return the modules that rotate, with the functions that each calls."""
        for path, module in self._modules.items():
            if not _within(path, root) or path in rotary:
                continue
            try:
                functions = rotating_functions(type(module))
            except NotRebindableError as error:
                self.rotations_left.append((path, str(error)))
                continue
            if functions and "forward" in vars(module):
                self.rotations_left.append((path, REPLACED_FORWARD))
            elif functions:
                yield path, functions

    def _take(
        self,
        path: str,
        functions: Mapping[Place, Callable[..., Any]],
        tables: tuple[TableForm, bool],
        buffers: dict[str, Tensor] | None = None,
    ) -> None:
        """Plan a rotating module, or list it as unchanged, with the reason."""
        try:
            rotations = tuple(
                (place, self._rotation(path, place[1], function, *tables))
                for place, function in functions.items()
            )
        except NoMatchError as error:
            self.rotations_left.append((path, str(error)))
            return
        module = self._modules[path]
        cls = rotating_class(type(module), rotations)
        self.changes.append(Change(path, module, cls, buffers=buffers or {}))
        self.rotating.append(path)

    def _rotation(
        self, path: str, name: str, function: Callable[..., Any], form: TableForm, reverse: bool
    ) -> Rotation:
        key = function, form
        if key not in self._measured:
            self._measured[key] = measure(function, form)
        found = self._measured[key]
        if found is None:
            raise NoMatchError(f"{name} is not a rotation of a known form")
        if found.reverse is not reverse:
            raise NoMatchError(f"{name} rotates backwards")
        if self.converted is not None and self.is_text(path):
            pairing, write_pairing = self.converted
            return replace(found, pairing=pairing, write_pairing=write_pairing)
        return found

    def _layer_with_buffer(self, path: str, module: nn.Module) -> None:
        """Plan an attention module of GPT-J or CodeGen, which has its own table."""
        try:
            buffers = {BUFFER: exact_buffer(module, self._ropes_of(None)[0])}
        except NoMatchError as error:
            self.tables_left.append((path, str(error)))
            return
        for where, functions in self._rotating(path, {}):
            if where == path:
                self._take(path, functions, ("once", False), buffers)


def _converted_pairing(spec: ModelSpec) -> tuple[Pairing, Pairing] | None:
    """Return how pairs are read and written, or None if the weights were not converted."""
    for stack, layers in spec.stacks.items():
        for layer in layers:
            if layer.rope is None or layer.origins.get("pairing") != CONVERTED_PAIRING_KEY:
                continue
            if layer.indexer is not None or stack != "text":
                what = "an indexer" if layer.indexer is not None else f"a stack {stack!r}"
                raise ValueError(
                    f"model must not have {CONVERTED_PAIRING_KEY} in its config if it has {what}, "
                    f"got {layer.rope.pairing!r}; convert its weights back"
                )
            return layer.rope.pairing, layer.rope.write_pairing
    return None


def _text_config(config: Any) -> Any:
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _within(path: str, root: str) -> bool:
    return not root or path == root or path.startswith(f"{root}.")


def _outermost(roots: Iterable[str]) -> list[str]:
    unique = sorted(set(roots))
    return [root for root in unique if not any(_within(root, o) for o in unique if o != root)]
