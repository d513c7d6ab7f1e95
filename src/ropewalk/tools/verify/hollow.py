"""Run a model for its ropes alone: projections return random vectors, the same at all positions.

What attention then gets differs between positions by the rope and by nothing else. Weights are not
read, so that a large model takes seconds, and badly conditioned weights do no harm. Norms return
their input: they would leave out a dimension, or hide what they follow. Everything that belongs to
the rope is the model's own: its buffers, tables and functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

SMALL = 2**22  # numbers in a parameter that is worth a float32 copy
EXPERTS = re.compile(r"(?<!Parallel)Experts$")
NORMS = re.compile(r"Norm")
ROUTERS = re.compile(r"Router|Gate")  # linear layers that return more than a vector


class Shape:
    """The number of rows and of positions in the current run."""

    def __init__(self) -> None:
        self.rows, self.positions = 1, 3


@contextmanager
def hollow(model: nn.Module, shape: Shape) -> Iterator[None]:
    """Context in which projections, embeddings and experts are replaced, in float32."""
    embedding = _input_embedding(model)
    with ExitStack() as stack:
        for number, module in enumerate(model.modules()):
            width = _projection_width(module)
            if width is not None:
                stack.enter_context(_forward(module, _projection(width, number, shape)))
            elif module is embedding:
                width = module.weight.shape[-1]
                stack.enter_context(_forward(module, _embedded(width, shape)))
            elif EXPERTS.search(type(module).__name__):
                stack.enter_context(_forward(module, _nothing))
            elif NORMS.search(type(module).__name__) and not any(True for _ in module.children()):
                stack.enter_context(_forward(module, _unchanged))
            else:
                stack.enter_context(_single_precision(module))
        yield


def _input_embedding(model: nn.Module) -> Any:
    """Return the module that embeds tokens: the model's own word, or its first `nn.Embedding`."""
    try:
        found = model.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        found = next((m for m in model.modules() if type(m) is nn.Embedding), None)
    return found if type(found) is nn.Embedding else None


def _projection_width(module: nn.Module) -> int | None:
    """Return the number of outputs of a linear layer of any make, None for other modules."""
    if any(True for _ in module.children()) or ROUTERS.search(type(module).__name__):
        return None
    for name in ("out_features", "nf"):
        width = getattr(module, name, None)
        if isinstance(width, int) and not isinstance(width, bool):
            return width
    return None


@contextmanager
def _forward(module: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    """Replace the forward of one instance."""
    before = vars(module).get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


def _projection(width: int, seed: int, shape: Shape) -> Callable[..., Tensor]:
    """Return a forward that draws a vector for each row and repeats it at all positions."""

    def forward(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        rows, positions = shape.rows, shape.positions
        generator = torch.Generator().manual_seed(seed)
        sizes = [*x.shape[:-1], width]
        if rows * positions in sizes[:-1]:  # rows and positions are one axis
            at = sizes.index(rows * positions)
            drawn = [*sizes[:at], rows, 1, *sizes[at + 1 :]]
            repeated = [*sizes[:at], rows, positions, *sizes[at + 1 :]]
        else:
            drawn = [1 if size == positions else size for size in sizes[:-1]] + [width]
            repeated = sizes
        made = torch.randn(drawn, generator=generator).expand(repeated).reshape(sizes)
        return made.to(x.device).contiguous()

    return forward


def _embedded(width: int, shape: Shape) -> Callable[..., Tensor]:
    def forward(ids: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        drawn = torch.randn(shape.rows, 1, width, generator=torch.Generator().manual_seed(0))
        return drawn.expand(*ids.shape, width).contiguous().to(ids.device)

    return forward


def _unchanged(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return x


def _nothing(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return torch.zeros_like(x)


@contextmanager
def _single_precision(module: nn.Module) -> Iterator[None]:
    """Read small parameters of a half-precision model in float32; buffers are left alone."""
    halves = [
        p
        for p in module.parameters(recurse=False)
        if p.dtype in (torch.bfloat16, torch.float16) and p.numel() <= SMALL
    ]
    before = [p.data for p in halves]
    for parameter in halves:
        parameter.data = parameter.data.to(torch.float32)
    try:
        yield
    finally:
        for parameter, data in zip(halves, before, strict=True):
            parameter.data = data
