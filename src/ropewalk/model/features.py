"""Feature maps of linear attention: φ, with φ(q)·φ(k) in place of exp(q·k/√D).

Axes: `B` batch, `H` heads, `S` tokens, `D` head_dim, `M` features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn

from ropewalk.checks import check_int
from ropewalk.encodings.parsing import check_arguments, read_call

RotateWhen = Literal["after", "before"]


class Features(NamedTuple):
    """φ(x) as `values * exp(log_scale)`, because exponentials alone exceed float's range."""

    values: Tensor  # (..., M)
    log_scale: Tensor  # (...)


class RandomFeatures(nn.Module):
    """Positive random features whose products have the mean exp(q·k/√D): FAVOR+.

    φ(x) = exp(w_i·y - |y|²/2)/√M with y = x D^(-1/4) and random rows w_i of `projection`
    `(M, D)`. They are not learned, but saved like weights, always in float32.
    Source: Choromanski et al. 2021, arXiv 2009.14794, lemma 1 and section 2.4.
    """

    projection: Tensor

    def __init__(self, head_dim: int, features: int) -> None:
        super().__init__()
        self.register_buffer("projection", torch.empty(features, head_dim, dtype=torch.float32))
        self.draw()

    @torch.no_grad()
    def draw(self, generator: Generator | None = None) -> None:
        """Draw new rows."""
        features, head_dim = self.projection.shape
        self.projection.copy_(orthogonal_rows(features, head_dim, generator))

    def forward(self, x: Tensor) -> Features:
        """Return the features of x `(..., D)`."""
        y = x * x.shape[-1] ** -0.25
        log = y @ self.projection.to(y.dtype).mT
        log = log - (y.square().sum(-1, keepdim=True) + math.log(log.shape[-1])) / 2
        top = log.detach().amax(-1, keepdim=True)
        return Features((log - top).exp(), top.squeeze(-1))

    def extra_repr(self) -> str:
        return f"head_dim={self.projection.shape[1]}, features={self.projection.shape[0]}"

    def _apply(self, fn: Any, recurse: bool = True) -> RandomFeatures:
        """Move the rows, but never round them: `.half()` applies to learned parameters only."""
        held = self.projection
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.projection.dtype != held.dtype:
            self.projection = held.to(self.projection.device)
        return self


class EluFeatures(nn.Module):
    """The features elu(x) + 1, one per dimension; they do not approximate exp(q·k).

    Source: Katharopoulos et al. 2020, arXiv 2006.16236, eq. 7.
    """

    def forward(self, x: Tensor) -> Features:
        """Return the features of x `(..., D)`."""
        # Computed as elu(x) + 1, e^x would be rounded to steps of 1e-7 for negative x.
        # At 0, the gradient of clamp depends on torch's version; that of masked_fill is 1.
        return Features(x.masked_fill(x > 0, 0).exp() + x.relu(), x.new_zeros(x.shape[:-1]))


def orthogonal_rows(count: int, width: int, generator: Generator | None = None) -> Tensor:
    """Draw rows `(count, width)`, each from N(0, 1); each block of `width` rows is orthogonal.

    Directions are the rows of random rotations, lengths those of normal vectors, in float64.
    Source: Choromanski et al. 2021, arXiv 2009.14794, section 2.4.
    """

    def normal(rows: int) -> Tensor:
        return torch.randn(rows, width, generator=generator, dtype=torch.float64, device="cpu")

    blocks = []
    for _ in range(math.ceil(count / width)):
        q, r = torch.linalg.qr(normal(width))
        blocks.append((q * r.diagonal().sign()).mT)  # without the signs, q is not uniform
    directions = torch.cat(blocks)[:count]
    lengths: Tensor = torch.linalg.vector_norm(normal(count), dim=1, keepdim=True)
    return directions * lengths


@dataclass(frozen=True)
class Performer:
    """Linear attention with random features; with more features it approaches softmax attention.

    `features`: their number; by default D ln D, the order in the paper's theorem 4. `rotate`:
    whether an encoding rotates features (`after`; Su et al. 2021, arXiv 2104.09864, eq. 19), or
    queries and keys `before` features are computed (as in lucidrains/performer-pytorch).
    """

    features: int | None = None
    rotate: RotateWhen = "after"

    def __post_init__(self) -> None:
        _check_rotate(self.rotate)
        if self.features is not None:
            check_int("features", self.features, 2)
            if self.features % 2 and self.rotate == "after":
                raise ValueError(
                    f"features must be even if an encoding rotates pairs of them, got "
                    f"{self.features}; with rotate=before it rotates queries and keys instead"
                )

    def feature_count(self, head_dim: int) -> int:
        """Return M, the number of features, for heads of this size."""
        if self.features is not None:
            return self.features
        return max(2, 2 * math.ceil(head_dim * math.log(head_dim) / 2))

    def feature_map(self, head_dim: int) -> RandomFeatures:
        """Return the module with the random rows of one attention."""
        return RandomFeatures(head_dim, self.feature_count(head_dim))


@dataclass(frozen=True)
class Elu:
    """Linear attention with the features elu(x) + 1; `rotate` as in `Performer`."""

    rotate: RotateWhen = "after"

    def __post_init__(self) -> None:
        _check_rotate(self.rotate)

    def feature_count(self, head_dim: int) -> int:
        """Return M, the number of features, for heads of this size."""
        return head_dim

    def feature_map(self, head_dim: int) -> EluFeatures:
        """Return the module, which has no parameters."""
        return EluFeatures()


KINDS: dict[str, type[Performer] | type[Elu]] = {"performer": Performer, "elu": Elu}


def parse_attention(text: str) -> Performer | Elu | None:
    """Read `softmax` (None), `performer` or `performer(features=64, rotate=before)`, `elu`.

    Raises ValueError or TypeError with a message that names the mistake.
    """
    name, arguments = read_call("attention", text, ["softmax", *KINDS])
    kind = KINDS.get(name)
    known = [] if kind is None else [field.name for field in fields(kind)]
    check_arguments("attention", name, arguments, known)
    return None if kind is None else kind(**arguments)


def rotated_dim(attention: str, head_dim: int) -> int:
    """Return the size of the vectors that an encoding's `rotate` receives in this attention.

    Use it as the `head_dim` of the `StackShape` for which the encoding is built.

    Example:
        >>> from ropewalk.model import rotated_dim
        >>> rotated_dim("softmax", 64), rotated_dim("performer(features=256)", 64)
        (64, 256)
    """
    kind = parse_attention(attention)
    if kind is None or kind.rotate == "before":
        return head_dim
    return kind.feature_count(head_dim)


def _check_rotate(rotate: object) -> None:
    if rotate not in ("after", "before"):
        raise ValueError(f"rotate must be 'after' or 'before', got {rotate!r}")
