"""One stack of a hollow model: q and k replace the projections' results, and come out rotated."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .drivers import Call
from .hollow import Feed, hollow
from .plans import Fed, Measured, plan_for

# Factors by which attention itself multiplies q or k: they are not part of a rotation.
SCALES = ("scaling", "scale", "qk_scale_factor", "mla_scale_q_lora", "mla_scale_kv_lora")


class Caught(Exception):  # noqa: N818 – not an error: it ends a layer once its q and k are known
    """Raised when attention starts, with the q and k that it receives."""

    def __init__(self, q: Tensor, k: Tensor):
        super().__init__()
        self.q, self.k = q, k


class _Done(Exception):  # noqa: N818 – likewise
    """Raised when every requested layer has answered."""


@dataclass(eq=False)
class Layer:
    """A layer, its attention, and the shapes of its q and k."""

    index: int
    module: nn.Module
    attention: nn.Module
    heads: int
    kv_heads: int
    head_dim: int
    length: int = 0


def _catch(module: nn.Module, query: Tensor, key: Tensor, *args: Any, **kwargs: Any) -> None:
    raise Caught(query, key)


class _Catchers:
    """Replaces transformers' table of attention functions."""

    def get_interface(self, *args: Any) -> Callable:
        return _catch

    def __getitem__(self, name: str) -> Callable:
        return _catch


class _Products(TorchFunctionMode):
    """Catches q and k at their product, in attention that does not use the table."""

    def __torch_function__(
        self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func in (torch.matmul, Tensor.matmul, Tensor.__matmul__) and args[0].ndim == 4:
            raise Caught(args[0], args[1].transpose(-1, -2))
        if func is torch.baddbmm:  # heads are folded into the batch
            raise Caught(args[1][None], args[2].transpose(-1, -2)[None])
        return func(*args, **(kwargs or {}))


class Tower:
    """A stack `host` with its layers; `call` runs the host on sequences that it makes."""

    def __init__(self, host: nn.Module, call: Call, rotaries: tuple[type, ...]):
        self.host, self.call = host, call
        self.layers: list[Layer] = []
        self.calls: list[tuple[str, tuple, dict]] = []  # to rotary modules: class, arguments
        self._fed = Fed()
        self._wanted: set[nn.Module] = set()
        self._reached: set[nn.Module] = set()
        self._caught: dict[nn.Module, tuple[Tensor, Tensor]] = {}
        self._measured: dict[nn.Module, tuple[int, ...]] = {}  # shapes of projections' results
        self._errors: dict[nn.Module, Exception] = {}
        self._ndim = 0  # of the hidden states
        self._width = 0  # a layer returns hidden states (0), or a tuple of this length
        feeds: dict[nn.Module, Feed] = {}
        if call.layers is not None:
            self._prepare(call.layers, feeds)
        else:
            for module in host.modules():
                if isinstance(module, nn.ModuleList) and not any(
                    "forward" in vars(x) for x in module
                ):
                    self._prepare(module, feeds)
        for module in host.modules():
            if isinstance(module, rotaries):
                module.register_forward_pre_hook(self._record, with_kwargs=True)
        hollow(host, feeds)
        self._measure()

    def _record(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        self.calls.append((type(module).__name__, args, kwargs))

    def _prepare(self, modules: Iterable[nn.Module], feeds: dict[nn.Module, Feed]) -> None:
        modules = list(modules)
        lists = [m for x in modules for m in x.modules() if isinstance(m, nn.ModuleList)]
        if self.call.layers is None and any(plan_for(x, self._fed) for m in lists for x in m):
            return  # the inner lists contain the layers
        plans = [plan_for(module, self._fed) for module in modules]
        if not any(plans):
            return
        for index, (module, plan) in enumerate(zip(modules, plans, strict=True)):
            if plan is not None:
                feeds.update(plan.feeds)
                self.layers.append(
                    Layer(index, module, plan.attention, plan.heads, plan.kv_heads, plan.head_dim)
                )
            module.forward = self._forward(module, plan and plan.attention)

    def _forward(self, module: nn.Module, attention: nn.Module | None) -> Callable:
        true_forward = type(module).forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            hidden = args[0] if args else next(iter(kwargs.values()))
            if "attention_scaling" in kwargs:  # Beam's, by position, without rotation
                kwargs["attention_scaling"] = None
            self._ndim = self._ndim or hidden.ndim
            if hidden.ndim != self._ndim:
                raise TypeError("the layer before was to answer with another width")
            self._reached.add(module)
            if attention is not None and module in self._wanted:
                try:
                    with self._catching(attention):
                        true_forward(module, *args, **kwargs)
                except Caught as caught:
                    self._caught[module] = caught.q, caught.k
                except Measured as measured:
                    self._measured.setdefault(module, measured.shape)
                except Exception as error:
                    self._errors[module] = error
            if self._wanted <= self._reached:
                raise _Done
            if not self._width:
                return hidden
            chosen = torch.zeros(*hidden.shape[:2], 1, dtype=torch.long)  # keys, where it is that
            return (hidden, chosen, None, None)[: self._width]

        return forward

    @contextlib.contextmanager
    def _catching(self, attention: nn.Module) -> Iterator[None]:
        for name in SCALES:
            if isinstance(getattr(attention, name, None), float):
                setattr(attention, name, 1.0)
        source = sys.modules[type(attention).__module__]
        if hasattr(source, "ALL_ATTENTION_FUNCTIONS"):
            with mock.patch.object(source, "ALL_ATTENTION_FUNCTIONS", _Catchers()):
                yield
        else:
            with _Products():
                yield

    def _drive(self, wanted: set[nn.Module]) -> None:
        """Run the host until every wanted layer has been reached."""
        first: Exception | None = None
        for width in (self._width, 0, 1, 2, 3, 4):
            self._width = width
            self._wanted, self._reached, self._ndim = wanted, set(), 0
            self._caught, self._errors, self.calls = {}, {}, []
            try:
                with torch.no_grad():
                    self.call.run()
            except _Done:
                return
            except Exception as error:
                first = first or error
            else:
                return
        raise RuntimeError(f"{type(self.host).__name__} did not run") from first

    def _measure(self) -> None:
        """Set the number of tokens that each layer sees; 0 if the host does not reach it."""
        self._fed.q = self._fed.k = None
        if self.layers:
            self._drive({layer.module for layer in self.layers})
        for layer in self.layers:
            if layer.module in self._errors:
                raise RuntimeError(f"layer {layer.index}") from self._errors[layer.module]
            if layer.module in self._measured:
                layer.length = math.prod(self._measured[layer.module][:-1])

    def rotated(
        self, q: Tensor, k: Tensor, layers: Iterable[Layer]
    ) -> dict[Layer, tuple[Tensor, Tensor]]:
        """Rotate q (1, H, S, D) and k (1, K, S, D) in these layers."""
        layers = list(layers)
        self._fed.q, self._fed.k = q, k
        self._drive({x.module for x in layers})
        if self._errors:
            raise RuntimeError("no rotation") from next(iter(self._errors.values()))
        found = {}
        for layer in layers:
            q_out, k_out = self._caught[layer.module]
            # some repeat the keys' heads for the queries, or also attend to an encoder's keys
            found[layer] = q_out, k_out[:, :: k_out.shape[1] // layer.kv_heads, : k.shape[2]]
        return found

    def rotation(self, layer: Layer) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """`rotate` of a case: the layer's own rotation of q (B, H, S, D) and k (B, K, S, D)."""

        def rotate(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
            rotated_qk = [
                self.rotated(q[i : i + 1], k[i : i + 1], [layer])[layer] for i in range(len(q))
            ]
            return torch.cat([a for a, _ in rotated_qk]), torch.cat([b for _, b in rotated_qk])

        return rotate

    def rotary(self) -> str:
        """The rotary class that the last run called, or the attention class without one."""
        return self.calls[-1][0]

    def positions(self, length: int) -> Tensor:
        """Positions of the last run's tokens: (S,) or (A, S)."""
        if self.call.positions is not None:
            return self.call.positions(length)
        for _, args, kwargs in reversed(self.calls):
            given = kwargs.get("position_ids", args[1] if len(args) > 1 else None)
            if isinstance(given, Tensor):
                given = given.squeeze()
                return given if given.shape[-1] == length else given.T
        return torch.arange(length)
