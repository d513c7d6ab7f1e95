"""`LearnedRotaryEmbedding`: a rope with frequencies that are learned.

Axes, in addition to those of the package: N sets of frequencies, each shared by H/N consecutive
heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from ropewalk.checks import check_bool, check_int, named_fields
from ropewalk.rotary.module import RotaryEmbedding
from ropewalk.rotary.spec import ELSEWHERE, RotarySpec
from ropewalk.rotary.tables import CPU, Length, RopeTables, Tables


class LearnedTables(RopeTables):
    """Tables of learned frequencies, computed at each call since an optimizer changes them.

    (…, S, R/2) if all heads rotate the same way, else (B or 1, N, S, R/2), as `rotate` takes them:
    float32, or float64 if the frequencies are. Gradients reach the frequencies through them.
    """

    def __init__(self, spec: RotarySpec, per_head: Tensor) -> None:
        super().__init__(spec)
        self.per_head = per_head

    def _build_tables(self, positions: Tensor, length: Length) -> Tables:
        home = positions.device
        device = CPU if home.type == "mps" else home  # Apple's GPUs have no float64
        per_head = self.per_head.to(device, torch.float64)
        positions = positions.to(device, torch.float64)
        if self.spec.axis_count == 1:
            positions = positions[None]
        if per_head.shape[1] == 1:
            positions, per_head = positions[..., None], per_head[:, 0]
        else:  # a head axis before the sequence: (A, B or 1, 1, S, 1) and (A, N, 1, R/2)
            positions = positions[:, None] if positions.ndim == 2 else positions
            positions, per_head = positions[:, :, None, :, None], per_head[:, :, None]
        # Sums of products, since autocast would round a matmul. Axis by axis, since all products
        # together take A times the memory of the angles.
        angles = positions[0] * per_head[0]
        for along_axis, per_axis in zip(positions[1:], per_head[1:], strict=True):
            angles = angles + along_axis * per_axis
        amplitude, wide = self.spec.amplitude_at(), self.per_head.dtype == torch.float64
        dtype = torch.float64 if wide else torch.float32
        cos, sin = (angles.cos() * amplitude).to(dtype), (angles.sin() * amplitude).to(dtype)
        return cos.to(home), sin.to(home)


@named_fields(ELSEWHERE, RotarySpec)
class LearnedRotaryEmbedding(RotaryEmbedding):
    """A `RotaryEmbedding` that learns its frequencies, starting from those of `spec`.

    In head h, pair i at a position p of A axes rotates by the angle

        Σ_a p[a] · frequencies[a, h, i],    frequencies: (A, N, R/2), float32.

    All entries are learned, also those that start at 0: an axial rope can learn to mix its axes.
    Scores depend only on the distance, whatever the frequencies are. The amplitude is fixed.

    spec: the initial frequencies, and all else. A rule that depends on the length is an error.
    heads: N. With GQA it must divide the number of key heads: query heads rotate as their key head.
    mixed: start each head with the axes rotated by a random rotation of its own (uniform).

    Positions may be floats, float32 or float64. Angles are float64 products of positions and the
    float32 parameter. It rounds a frequency by at most 6e-8 of itself, and an angle by as much:
    1e-3 radians at 16,000. `RotaryEmbedding` has exact tables; here nothing is cached. `.half()`
    and `.bfloat16()` leave the parameter in float32, since rounded frequencies give other angles.
    It moves between devices, and `.double()` widens it. Weight decay would slow the rotation:
    exclude the parameter from it, as the reference does.

    Source: learned, rotary-embedding-torch (`learned_freq`); mixed, Heo et al. 2024, RoPE-ViT,
    arXiv 2403.13298, section 3.2, and naver-ai/rope-vit, `init_random_2d_freqs`. Its axis 0 is
    x (the column); that of `positions.grid` is the row.

    Example:
        >>> import torch
        >>> from ropewalk import LearnedRotaryEmbedding, RotarySpec, axes, positions
        >>> plane = axes.axial((16, 16))  # RoPE-Mixed, as RoPE-ViT initializes it
        >>> spec = RotarySpec(64, theta=10.0, pairing="interleaved", axes=plane)
        >>> rope = LearnedRotaryEmbedding(spec, heads=12, mixed=True)
        >>> rope.frequencies.shape  # (A, N, R/2)
        torch.Size([2, 12, 32])
        >>> q, k = torch.randn(2, 1, 12, 196, 64)
        >>> q, k = rope(q, k, positions.grid(14, 14))
        >>> q.sum().backward()  # gradients of the frequencies
        >>> rope.frequencies.grad.shape
        torch.Size([2, 12, 32])
    """

    def __init__(self, spec: RotarySpec, heads: int = 1, mixed: bool = False) -> None:
        check_int("heads", heads, 1)
        check_bool("mixed", mixed)
        if isinstance(spec, RotarySpec):
            if spec.needs_length:
                raise ValueError(
                    f"spec must have frequencies that do not depend on the length, since they are "
                    f"learned, got scaling={spec.scaling}; leave the rule out"
                )
            if mixed and spec.axis_count == 1:
                raise ValueError(
                    "mixed must be False if positions have one axis, got True: there are no "
                    "axes to mix; pass axes to the spec, such as axes.axial((16, 16))"
                )
            spec = replace(spec, continuous=True)
        super().__init__(spec)
        self.mixed = mixed
        shape = (spec.axis_count, heads, spec.pairs)
        self.frequencies = nn.Parameter(torch.empty(shape, dtype=torch.float32))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Reset to the frequencies of the spec; rotations of `mixed` come from a CPU generator."""
        axis_count, heads, pairs = self.frequencies.shape
        start = torch.zeros(axis_count, 1, pairs, dtype=torch.float64, device="cpu")
        owners = torch.tensor(self.spec.axis_of_pair, device="cpu")
        start[owners, 0, torch.arange(pairs, device="cpu")] = self.spec.inverse_frequencies()
        if self.mixed:
            start = torch.einsum(
                "hab,bi->ahi", random_rotations(heads, axis_count, generator), start[:, 0]
            )
        self.frequencies.copy_(start.expand(-1, heads, -1))

    @property
    def _tables(self) -> LearnedTables:
        return LearnedTables(self.spec, self.frequencies)

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> LearnedRotaryEmbedding:
        def without_narrowing(t: Tensor) -> Tensor:
            changed = fn(t)
            narrow = changed.is_floating_point() and changed.element_size() < 4
            return t.to(changed.device) if narrow else changed

        super()._apply(without_narrowing, recurse)  # type: ignore[no-untyped-call]
        return self

    def extra_repr(self) -> str:
        heads = self.frequencies.shape[1]
        return f"{super().extra_repr()}, heads={heads}, mixed={self.mixed}"


def random_rotations(count: int, axes: int, generator: torch.Generator | None = None) -> Tensor:
    """Return uniform random rotations of A axes: float64 (count, A, A), determinant 1.

    In the plane, the angles are those that `init_random_2d_freqs` of naver-ai/rope-vit draws with
    the same seed. For more axes: Q of the QR decomposition of Gaussian matrices, with the diagonal
    of R made positive (Mezzadri 2006, arXiv math-ph/0609050, section 5).
    """
    if axes == 2:
        angles = torch.rand(count, generator=generator, dtype=torch.float32, device="cpu").double()
        cos, sin = (2 * torch.pi * angles).cos(), (2 * torch.pi * angles).sin()
        return torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -2)
    gaussian = torch.randn(
        count, axes, axes, generator=generator, dtype=torch.float64, device="cpu"
    )
    q, r = torch.linalg.qr(gaussian)
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None, :]
    # Reflections become rotations by flipping one column.
    return torch.cat((q[..., :1] * torch.linalg.det(q)[:, None, None], q[..., 1:]), dim=-1)
