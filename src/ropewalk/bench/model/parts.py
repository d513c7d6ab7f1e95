"""The parts of a model that rotate, found by their names, and their replacement for a while.

Functions that rotate have names such as `apply_rotary_pos_emb`. Modules that compute tables have
classes such as `LlamaRotaryEmbedding`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import nn

from ropewalk.tools.verify.capture import ROTATES

TABLES = re.compile(r"rot(ary|ate)?_?(pos)?_?emb|rope|rotary", re.IGNORECASE)


@dataclass(frozen=True)
class Part:
    """A function that rotates (`owner` is its module or class) or the forward of tables."""

    owner: Any
    name: str
    function: Callable[..., Any]
    makes_tables: bool

    @property
    def own(self) -> bool:
        """Whether the owner has the attribute itself, not through its class."""
        return self.name in vars(self.owner)


def rotating_parts(model: nn.Module) -> list[Part]:
    """Return the functions that rotate in the code of a model, and the modules of its tables."""
    classes = {cls for module in model.modules() for cls in type(module).__mro__}
    theirs = {cls for cls in classes if not cls.__module__.startswith(("torch.", "builtins"))}
    sources = {sys.modules[cls.__module__] for cls in theirs if cls.__module__ in sys.modules}
    rotate = [
        Part(owner, name, value, makes_tables=False)
        for owner in (*sources, *theirs)
        for name, value in vars(owner).items()
        if ROTATES.search(name) and callable(value) and not isinstance(value, type)
    ]
    tables = [
        Part(module, "forward", module.forward, makes_tables=True)
        for module in model.modules()
        if TABLES.search(type(module).__name__) and not any(True for _ in module.children())
    ]
    return rotate + tables


@contextmanager
def replaced(replacements: Sequence[tuple[Part, Callable[..., Any]]]) -> Iterator[None]:
    """Context in which parts are replaced. Functions are shared: no other model may run."""
    before = [(part, part.own) for part, _ in replacements]
    for part, replacement in replacements:
        setattr(part.owner, part.name, replacement)
    try:
        yield
    finally:
        for part, own in before:
            if own:
                setattr(part.owner, part.name, part.function)
            else:
                delattr(part.owner, part.name)
