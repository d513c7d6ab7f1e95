"""Complete transformers models at default sizes, without weights: only the rotation is real.

A model is built with its large weights on the meta device. Then every leaf that owns weights is
hollowed: a norm returns its input, any other leaf returns zeros of the right shape. Only the
model's own wiring still runs: positions, tables, and what the attention does to q and k.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

Feed = Callable[[tuple[int, ...]], Tensor]  # the shape a leaf would answer with → its answer


class _BigOnMeta(TorchFunctionMode):
    """Puts large new tensors on the meta device; buffers with tables stay real.

    No weight is drawn: the large ones have no values, and `hollow` makes the others zero.
    """

    # By name: transformers puts functions of its own in place of those of `nn.init`.
    DRAWS = ("normal_", "uniform_", "kaiming_uniform_")
    FILLS = ("constant_", "zero_", "fill_")
    LARGEST = 1 << 17
    MAKERS = {  # noqa: RUF012 – a constant
        torch.empty: LARGEST,
        torch.randn: LARGEST,
        torch.rand: LARGEST,
        torch.zeros: LARGEST << 6,
        torch.ones: LARGEST << 6,
    }

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func.__name__ in self.DRAWS + self.FILLS:
            tensor = args[0] if args else kwargs["tensor"]
            if not tensor.is_meta and func.__name__ in self.DRAWS:
                tensor.detach().zero_()
            if tensor.is_meta or func.__name__ in self.DRAWS:
                return tensor
        largest = self.MAKERS.get(func)
        if largest is not None:
            size = kwargs.get("size", args)
            size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
            if all(isinstance(n, int) for n in size) and math.prod(size) > largest:
                kwargs["device"] = "meta"
        return func(*args, **kwargs)


@contextlib.contextmanager
def big_on_meta() -> Iterator[None]:
    """Context in which models of any size are built in milliseconds, with real buffers."""
    with _BigOnMeta():
        yield


def hollow(model: nn.Module, feeds: dict[nn.Module, Feed]) -> None:
    """Hollow every leaf of `model` that owns weights; a leaf in `feeds` answers with its feed."""
    for module in model.modules():
        if "forward" in vars(module):
            continue  # an inner stack has done so
        leaf = not any(True for _ in module.children())
        if module in feeds and not isinstance(module, nn.Linear):
            module.forward = _fed(feeds[module])
        elif leaf and re.search("norm|SoftmaxScaling", type(module).__name__, re.IGNORECASE):
            module.forward = _norm(type(module).forward.__get__(module))
        elif (
            leaf
            and "Sinusoid" not in type(module).__name__
            and any(True for _ in module.parameters(recurse=False))
        ):
            module.forward = _answer(module, feeds)
        for name, parameter in module.named_parameters(recurse=False):
            used_by_hand = not isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d))
            if (
                "Sinusoid" in type(module).__name__
                or type(module).__name__ == "TimesFm2_5Attention"
            ):
                continue  # tables, and what `plans` has set
            if not parameter.is_meta:
                parameter.data = _zeros(parameter)
            elif used_by_hand and parameter.numel() <= 1 << 23:
                setattr(module, name, nn.Parameter(torch.zeros(parameter.shape)))


def _norm(true_forward: Callable) -> Callable:
    def forward(*args: Any, **kwargs: Any) -> Any:
        given = args[0] if args else next(iter(kwargs.values()))
        made = true_forward(*args, **kwargs)
        return given if isinstance(made, Tensor) and made.shape == given.shape else made

    return forward


def _fed(feed: Feed) -> Callable:
    return lambda *args, **kwargs: feed(tuple((args or tuple(kwargs.values()))[0].shape))


def _zeros(like: Tensor) -> Tensor:
    return torch.zeros(like.shape, dtype=like.dtype)


def _answer(module: nn.Module, feeds: dict[nn.Module, Feed]) -> Callable:
    shadow = functools.cache(lambda: copy.deepcopy(module).to("meta"))

    def forward(*args: Any, **kwargs: Any) -> Any:
        if type(module) is nn.Linear and args:  # most frequent, needs no meta run
            shape = (*args[0].shape[:-1], module.out_features)
        else:
            meta_args, meta_kwargs = tree_map_only(Tensor, lambda t: t.to("meta"), (args, kwargs))
            try:
                out = type(module).forward(shadow(), *meta_args, **meta_kwargs)
            except RuntimeError:  # some need real values
                out = type(module).forward(module, *args, **kwargs)
            if not isinstance(out, Tensor):
                return tree_map_only(Tensor, _zeros, out)
            shape = tuple(out.shape)
        return feeds[module](shape) if module in feeds else torch.zeros(shape)

    return forward
