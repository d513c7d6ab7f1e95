"""What to change in a model, what to keep unchanged and why, and how changes are undone."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from torch import Tensor, nn

from ropewalk.checks import ranges
from ropewalk.rotary.config.conventions import CONVERTED_PAIRING_KEY
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.pairing import Pairing
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.patch.exact_tables import (
    BUFFER,
    REPLACED_FORWARD,
    ExactTables,
    Match,
    NoMatchError,
    exact_buffer,
    exact_class,
    is_rotary,
    match,
)
from ropewalk.tools.patch.own_tables import called_functions, calling_class, is_rotation
from ropewalk.tools.patch.rotation_functions import (
    NotRebindableError,
    Place,
    Rotation,
    TableForm,
    measure,
    own_methods,
    rotating_class,
    rotating_functions,
)

NUMBER = re.compile(r"\.(\d+)(?=\.|$)")


@dataclass
class Change:
    """A change of one module: its class, plain attributes, and buffers."""

    path: str
    module: nn.Module
    cls: type | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    buffers: dict[str, Tensor] = field(default_factory=dict)
    _before: tuple[type, dict[str, Any], dict[str, Any]] | None = None

    def apply(self) -> None:
        """Make the change."""
        own = vars(self.module)
        self._before = (
            type(self.module),
            {name: own[name] for name in self.attributes if name in own},
            {name: self.module._buffers[name] for name in self.buffers},
        )
        if self.cls is not None:
            self.module.__class__ = self.cls
        own.update(self.attributes)
        self.module._buffers.update(self.buffers)

    def check(self) -> None:
        """Raise RuntimeError if other code has changed the module since."""
        own = vars(self.module)
        same = all(own.get(name) is value for name, value in self.attributes.items())
        if not same or (self.cls is not None and type(self.module) is not self.cls):
            raise RuntimeError(
                f"{self.path or 'model'} must not be changed after patch to be restored, "
                f"got another class or config; undo later changes first"
            )

    def undo(self) -> None:
        """Restore class, attributes and buffers; buffers get the current device and dtype."""
        assert self._before is not None
        cls, attributes, buffers = self._before
        if self.cls is not None:
            self.module.__class__ = cls
        own = vars(self.module)
        for name in self.attributes:
            own.pop(name, None)
        own.update(attributes)
        for name, buffer in buffers.items():
            today = self.module._buffers[name]
            moved = buffer if today is None else buffer.to(today.device, today.dtype)
            self.module._buffers[name] = moved


class Patch:
    """What `patch` did to a model. Call it to undo, or use it as a context manager.

    taken: paths of the modules whose rotation was replaced.
    tables: paths of the modules whose tables were replaced.
    left: paths of modules about ropes that stay unchanged, each with the reason.

    Example:
        >>> import ropewalk, transformers
        >>> config = transformers.GPTNeoXConfig(
        ...     hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4,
        ...     vocab_size=100)
        >>> model = transformers.GPTNeoXModel(config)
        >>> with ropewalk.patch(model) as patched:
        ...     print(patched.tables, patched.taken, patched.left)
        ('rotary_emb',) ('layers.0.attention', 'layers.1.attention') ()
    """

    def __init__(
        self,
        name: str,
        changes: Sequence[Change],
        left: Sequence[tuple[str, str]],
        warning: str | None = None,
        before_undo: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._warning = warning
        self._before_undo = before_undo
        self._changes = tuple(changes)
        self._active = False
        of_class = [change for change in changes if "config" not in change.attributes]
        tables = [change.path for change in of_class if "exact_tables" in change.attributes]
        with_buffers = [change.path for change in of_class if change.buffers]
        self.tables: tuple[str, ...] = (*tables, *with_buffers)
        self.taken = tuple(change.path for change in of_class if change.path not in tables)
        self.left: tuple[tuple[str, str], ...] = tuple(left)

    def apply(self) -> Patch:
        """Make all changes, or none if one fails."""
        with ExitStack() as undoing:
            for change in self._changes:
                change.apply()
                undoing.callback(change.undo)
            undoing.pop_all()
        self._active = True
        return self

    def __call__(self) -> None:
        """Restore the model; does nothing the second time.

        Raises RuntimeError, and restores nothing, if other code has changed a module's class since.
        """
        if not self._active:
            return
        for change in self._changes:
            change.check()
        self._before_undo()
        for change in reversed(self._changes):
            change.undo()
        self._active = False
        self._changes = ()  # keep no reference to the model
        if self._warning is not None:
            warnings.warn(self._warning, stacklevel=2)

    def __enter__(self) -> Patch:
        if not self._active:
            raise RuntimeError(
                "patch must not be undone yet to be used in a with statement; patch the model again"
            )
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a Patch cannot be pickled; pickle the model, which stays patched")

    def __exit__(self, *_: object) -> None:
        self()

    def __repr__(self) -> str:
        lines = [self._name]
        for word, paths in (("exact tables", self.tables), ("fast rotation", self.taken)):
            lines += [f"  {word}: {path}" for path in grouped(paths)]
        for reason in dict.fromkeys(reason for _, reason in self.left):
            left = grouped([path for path, why in self.left if why == reason])
            lines += [f"  left: {path}: {reason}" for path in left]
        if not self._active:
            lines.append("  (undone)")
        return "\n".join(lines)


def grouped(paths: Sequence[str]) -> list[str]:
    """Return paths that differ in their layer's number as one: "layers.0-3.self_attn"."""
    numbers: dict[tuple[str, ...], list[int]] = {}
    for path in paths:
        start, *number_and_end = NUMBER.split(path, maxsplit=1)
        layers = numbers.setdefault((start, *number_and_end[1:]), [])
        layers += map(int, number_and_end[:1])
    return [
        f"{start}.{ranges(layers)}{''.join(end)}" if layers else start
        for (start, *end), layers in numbers.items()
    ]


NewRopes = Mapping[tuple[str | None, RotarySpec], RotarySpec]
"""The rope with another rule, by the type of layers and the rope of the config."""

NAMED_ROTARY = re.compile("rotary", re.IGNORECASE)
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
        config: Any = model.config
        of_several = len(spec.stacks) > 1 and hasattr(config, "get_text_config")
        self._text_config = config.get_text_config() if of_several else None
        self._measured: dict[tuple[Callable[..., Any], TableForm], Rotation | None] = {}
        rotary = {path: module for path, module in self._modules.items() if is_rotary(module)}
        roots = {path.rpartition(".")[0] for path in rotary}
        inner = {root for root in roots if any(_within(root, o) for o in roots - {root})}
        for root in sorted(roots - inner):
            self._below(root, {p: m for p, m in rotary.items() if _within(p, root)})
        for path, module in self._modules.items():
            if BUFFER in module._buffers:
                self._layer_with_buffer(path, module)
            named = NAMED_ROTARY.search(type(module).__name__) and not any(module.children())
            if named and path not in rotary:
                self.others_left.append((path, "it does not take x and position_ids"))

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
        matches: dict[str, dict[str | None, Match]] = {}
        for path, module in rotary.items():
            matched, unmatched = match(module, self._ropes_of)
            self.tables_left += [(path, reason) for reason in unmatched.values()]
            if matched:
                matches[path] = matched
        tables = [table for matched in matches.values() for table in matched.values()]
        self.replaced |= {table.rope for table in tables}
        forms = {(table.form, table.reverse) for table in tables}
        rotations_left = len(self.rotations_left)
        for path, functions in self._rotating(root, rotary):
            if len(forms) == 1:
                self._take(path, functions, next(iter(forms)))
            else:
                why = "its tables have several forms" if forms else "its tables were not replaced"
                self.rotations_left.append((path, why))
        wide = len(self.rotations_left) == rotations_left
        for path, matched in matches.items():
            scaled = {
                layer_type: replace(table, rope=self._new_rope(path, layer_type, table.rope))
                for layer_type, table in matched.items()
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
        rotation = self._measured[key]
        if rotation is None:
            raise NoMatchError(f"{name} is not a rotation of a known form")
        if rotation.reverse is not reverse:
            raise NoMatchError(f"{name} rotates backwards")
        if self.converted is not None and self.is_text(path):
            pairing, write_pairing = self.converted
            return replace(rotation, pairing=pairing, write_pairing=write_pairing)
        return rotation

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


def own_table_changes(model: nn.Module) -> tuple[list[Change], Left]:
    """Return the changes of modules and attention processors that rotate by the model's tables."""
    changes: list[Change] = []
    left: Left = []
    names: Callable[[type], Any] = cache(_called_names)
    for path, module in model.named_modules():
        for part in (module, vars(module).get("processor")):
            rotations, others = names(type(part))
            left += [(path, f"{name} is not a rotation of a known form") for name in others]
            if rotations and part is module and "forward" in vars(module):
                left.append((path, REPLACED_FORWARD))
            elif rotations and part is module:
                changes.append(Change(path, module, calling_class(type(part), rotations)))
            elif rotations:  # other models may have this processor; both objects share their state
                processor: Any = object.__new__(calling_class(type(part), rotations))
                processor.__dict__ = vars(part)
                changes.append(Change(path, module, attributes={"processor": processor}))
    return changes, left


def _called_names(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return names of functions that methods of a class call: of rotations, and of others."""
    found = [f for _, _, method in own_methods(cls) for f in called_functions(method).items()]
    others = {name for name, function in found if not is_rotation(function)}
    return tuple(sorted({name for name, _ in found} - others)), tuple(sorted(others))


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


def _within(path: str, root: str) -> bool:
    return not root or path == root or path.startswith(f"{root}.")
