"""The state of a model that runs change: its mode, its buffers and its plain attributes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

CONTAINERS = (list, dict, set)


@contextmanager
def preserved(model: nn.Module) -> Iterator[None]:
    """Context after which a model has the state of before, in each of its modules.

    Rules that depend on the length store frequencies and lengths while a model runs. Buffers and
    tensors are copied; weights are not, because no run changes them.
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
    tensors = [x for x in (*vars(module).values(), *module._buffers.values()) if _is_buffer(x)]
    copies: list[tuple[Any, Any]] = [(x, x.detach().clone()) for x in tensors]
    containers = [x for x in vars(module).values() if type(x) in CONTAINERS]
    return copies + [(x, x.copy()) for x in containers]


def _is_buffer(x: Any) -> bool:
    return isinstance(x, Tensor) and not isinstance(x, nn.Parameter)


def _restore(value: Any, copy: Any) -> None:
    if isinstance(value, Tensor):
        if not value.is_meta and not torch.equal(value, copy):
            value.copy_(copy)
    elif isinstance(value, list):
        value[:] = copy
    else:
        value.clear()
        value.update(copy)
