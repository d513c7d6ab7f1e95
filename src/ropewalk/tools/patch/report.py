"""What `patch` changed in a model, and how it is undone."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from torch import Tensor, nn

from ropewalk.tools.ranges import ranges

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
        shown = [each for each in changes if each.cls is not None]
        tables = [each for each in shown if "exact_tables" in each.attributes]
        with_buffers = [each for each in shown if each.buffers]
        self.tables: tuple[str, ...] = tuple(each.path for each in (*tables, *with_buffers))
        self.taken: tuple[str, ...] = tuple(each.path for each in shown if each not in tables)
        self.left: tuple[tuple[str, str], ...] = tuple(left)

    def apply(self) -> Patch:
        """Make all changes, or none if one fails."""
        done: list[Change] = []
        try:
            for change in self._changes:
                change.apply()
                done.append(change)
        except BaseException:
            for change in reversed(done):
                change.undo()
            raise
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
    numbers: dict[tuple[str, str], list[int]] = {}
    for path in paths:
        found = NUMBER.search(path)
        key = (path, "") if found is None else (path[: found.start()], path[found.end() :])
        numbers.setdefault(key, [])
        if found is not None:
            numbers[key].append(int(found[1]))
    return [
        f"{start}.{ranges(layers)}{end}" if layers else start
        for (start, end), layers in numbers.items()
    ]
