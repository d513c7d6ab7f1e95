"""A model while a tool runs it: parts that rotate, replaced for a while; its state, restored.

Also what it may read and must compute: ids of its vocabulary, and finite numbers.

Functions that rotate have names such as `apply_rotary_pos_emb`. Modules that compute tables have
classes such as `LlamaRotaryEmbedding`.
"""

from __future__ import annotations

import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from ropewalk.tools.patch.rotation_functions import own_methods, unwrapped

ROTATES = re.compile(r"apply_\w*(rot|rope)|(rot|rope|rotary)\w*_apply|^_?rotary_\w*emb\w*$", re.I)
TABLES = re.compile(r"rot(ary|ate)?_?(pos)?_?emb|rope|rotary", re.IGNORECASE)


@dataclass(frozen=True)
class Part:
    """A function that rotates, or the forward of a module that computes tables.

    owner: a class or module that has it as an attribute, or the globals of the code that calls it.
    """

    owner: Any
    name: str
    function: Callable[..., Any]
    makes_tables: bool


def rotating_parts(model: nn.Module) -> list[Part]:
    """Return the functions that rotate in the code of a model, and the modules of its tables.

    Methods of a patched model have globals of their own, so functions are looked up in these.
    """
    functions: dict[tuple[int, str], Part] = {}
    read: set[int] = set()  # most methods of a model have the same globals, of thousands of names
    for cls in {type(module) for module in model.modules()}:
        for owner, name, method in own_methods(cls):
            if ROTATES.search(name) and inspect.isfunction(vars(owner)[name]):
                functions[id(owner), name] = Part(owner, name, method, makes_tables=False)
            for scope in (inner.__globals__ for inner in unwrapped(method)):
                if id(scope) in read:
                    continue
                read.add(id(scope))
                for name, value in scope.items():
                    if ROTATES.search(name) and inspect.isroutine(value):
                        functions[id(scope), name] = Part(scope, name, value, makes_tables=False)
    tables = [
        Part(module, "forward", module.forward, makes_tables=True)
        for module in model.modules()
        if TABLES.search(type(module).__name__) and not any(True for _ in module.children())
    ]
    return [*functions.values(), *tables]


@contextmanager
def replaced(replacements: Sequence[tuple[Part, Callable[..., Any]]]) -> Iterator[None]:
    """Context in which parts are replaced. Functions are shared: no other model may run."""
    with ExitStack() as stack:
        for part, replacement in replacements:
            if isinstance(part.owner, dict):
                stack.callback(part.owner.__setitem__, part.name, part.function)
                part.owner[part.name] = replacement
            else:
                stack.enter_context(mock.patch.object(part.owner, part.name, replacement))
        yield


CONTAINERS = (list, dict, set, OrderedDict)


@contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Context after which a model has the state of before, in each of its modules.

    Rules that depend on the length store frequencies and lengths while a model runs. Buffers and
    tensors are copied; weights are not, because no run changes them. Hooks too are as before:
    transformers leaves some that collect outputs.
    """
    before = [(module, dict(vars(module)), _copies(module)) for module in model.modules()]
    try:
        yield
    finally:
        with torch.no_grad():
            for module, attributes, copies in before:
                vars(module).clear()
                vars(module).update(attributes)
                for value, copy in copies:
                    _restore(value, copy)


def _copies(module: nn.Module) -> list[tuple[Any, Any]]:
    values = (*vars(module).values(), *module._buffers.values())
    tensors = [x for x in values if isinstance(x, Tensor) and not isinstance(x, nn.Parameter)]
    containers = [x for x in vars(module).values() if type(x) in CONTAINERS]
    return [*((x, x.detach().clone()) for x in tensors), *((x, x.copy()) for x in containers)]


def _restore(value: Any, copy: Any) -> None:
    if isinstance(value, Tensor):
        if not value.is_meta and not torch.equal(value, copy):
            value.copy_(copy)
    elif isinstance(value, list):
        value[:] = copy
    else:
        value.clear()
        value.update(copy)


def check_ids(name: str, ids: Tensor, vocabulary: int) -> None:
    """Raise ValueError unless ids are those of a vocabulary; on a GPU, others end the process."""
    low, high = (int(bound) for bound in ids.aminmax())
    if low < 0 or high >= vocabulary:
        wrong = high if high >= vocabulary else low
        raise ValueError(f"{name} must be ids from 0 to {vocabulary - 1}, got {wrong}")


def check_finite(model: nn.Module, x: Tensor, where: str) -> None:
    """Raise ValueError if numbers that a model computed are NaN or infinite."""
    if not bool(x.isfinite().all()):
        raise ValueError(
            f"model must compute finite numbers, got NaN or infinity in {where}{overflow(model)}"
        )


def overflow(model: nn.Module) -> str:
    """Return the way out, for the end of a message, if a model may compute too large numbers."""
    half = next(model.parameters()).dtype == torch.float16
    return "; float16 overflows early: use bfloat16 or float32" if half else ""
