"""Calls of a stack: by the kind of its signature, or as its class requires."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

TEXT = torch.tensor(
    [0, 1, 2, 3, 5, 8, 17, 64, 127, 255, 511, 777, 1024, 1536, 2047, 3000, 4095]
)  # spread out, not contiguous
SPREAD = (TEXT, TEXT.flip(0), TEXT.roll(7), TEXT.roll(12))  # one per axis
GRID = (1, 6, 4)  # of patches: frames, rows, columns; even, for models that merge 2 × 2


@dataclass
class Call:
    """A way to run a host; `positions` is set if its rotary module does not receive them."""

    run: Callable[[], Any]
    positions: Callable[[int], Tensor] | None = None
    layers: list[nn.Module] | None = None  # the layers to feed, if the host has no list of them


@dataclass
class Direct:
    """A rotation that needs no attention of the host."""

    heads: int
    kv_heads: int
    head_dim: int
    positions: Tensor
    rotate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    note: str


def parameters(module: nn.Module) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(type(module).forward).parameters)


def width(module: nn.Module) -> int:
    """The width of a host's hidden states."""
    config = module.config
    for name in ("hidden_size", "d_model", "embed_dim"):
        if isinstance(getattr(config, name, None), int):
            return getattr(config, name)
    return config.get_text_config().hidden_size


def by_sequence(host: nn.Module, axes: int, **more: Any) -> Call:
    """Embeddings or tokens, at spread positions."""
    taken = parameters(host)
    given = TEXT if axes == 1 else torch.stack(SPREAD[:axes])
    kwargs: dict[str, Any] = dict(more)
    if "use_cache" in taken:
        kwargs["use_cache"] = False
    if "position_ids" in taken:
        kwargs["position_ids"] = given.unsqueeze(-2)
    S = len(TEXT)
    if not kwargs.keys() & {"inputs_embeds", "input_ids", "hidden_states"}:
        if "inputs_embeds" in taken:
            kwargs["inputs_embeds"] = torch.zeros(1, S, width(host))
        elif "input_ids" in taken:
            kwargs["input_ids"] = torch.full((1, S), 5)
        else:
            kwargs["hidden_states"] = torch.zeros(1, S, width(host))
    return Call(lambda: host(**kwargs))


def by_layer(
    host: nn.Module,
    layers: Iterable[nn.Module],
    rotary: nn.Module | None,
    size: int | None = None,
    **more: Any,
) -> Call:
    """Each layer alone, at spread positions: the host makes its sequence from other data."""
    layers = list(layers)
    states = torch.zeros(1, len(TEXT), size or width(host))

    def run() -> None:
        table = None if rotary is None else rotary(states, TEXT[None])
        for layer in layers:
            taken = parameters(layer)
            offered = {
                "position_embeddings": table,
                "position_ids": TEXT[None],
                "attention_mask": None,
                **more,
            }
            layer(states.clone(), **{k: v for k, v in offered.items() if k in taken})

    return Call(run, lambda length: TEXT, layers)


def patch_width(host: nn.Module) -> int:
    """The number of values in a patch: the input size of the first projection."""
    parts = sorted(host.named_modules(), key=lambda part: "patch" not in part[0])
    for _, module in parts:
        if isinstance(module, (nn.Conv2d, nn.Conv3d)):
            return math.prod(module.weight.shape[1:])
        if isinstance(module, nn.Linear):
            return module.in_features
    raise LookupError(type(host).__name__)


def by_grid(host: nn.Module, axes: int, grid: tuple[int, int, int] = GRID, **more: Any) -> Call:
    """Flattened patches of one image, and its grid."""
    names = list(parameters(host))
    name = next(n for n in names if n.endswith("grid_thw"))
    patches = torch.zeros(math.prod(grid), patch_width(host))
    kwargs = {names[1]: patches, name: torch.tensor([grid]), **more}
    return Call(lambda: host(**kwargs))


def by_pixels(host: nn.Module, positions: Callable[[int], Tensor] | None = None) -> Call:
    """An image of GRID patches."""
    patch = host.config.patch_size
    pixels = torch.zeros(1, 3, GRID[1] * patch, GRID[2] * patch)
    return Call(lambda: host(pixel_values=pixels), positions)


def call_for(host: nn.Module, axes: int) -> Call | Direct | None:
    """A call that fits the host, or None if an outer module is needed."""
    from .calls import CALLS

    special = CALLS.get(type(host).__name__)
    if special is not None:
        return special(host)
    names = list(parameters(host))[1:]
    if any(n.endswith("grid_thw") for n in names[:2]):
        return by_grid(host, axes)
    if "inputs_embeds" in names or names[:1] == ["input_ids"]:
        return by_sequence(host, axes)
    if names[:1] == ["hidden_states"] and hasattr(host, "layers"):
        return by_sequence(host, axes)
    return None
