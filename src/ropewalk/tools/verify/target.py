"""One call form for every target: vectors `(B, H, S, D)` and positions in, rotated vectors out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MethodType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ropewalk.checks import shown
from ropewalk.rotary.rotate import rotate
from ropewalk.rotary.spec import RotarySpec
from ropewalk.rotary.tables import Tables
from ropewalk.tools.verify.roles import Role

TableForm = Literal["none", "pairs", "half", "interleaved"]


class TargetError(ValueError):
    """The target raised, or returned something that is not the rotated vectors."""


@dataclass(frozen=True)
class Target:
    """A function, and how to call it.

    roles: of its arguments. keywords: the names of those that must be passed by name. seq_dim: -2
    for (B, H, S, D), -3 for (B, S, H, D). batched_positions: whether positions are (B, S), not
    (S,). tables: how cos and sin are laid out if the target takes them: R/2 columns, or R with the
    halves or the neighbors the same. tables_of: makes them. makes_tables: whether the target
    returns tables, which `rotate` then applies. ignores_positions: whether the target was found to
    ignore them, so that calls must start at position 0.
    """

    function: Callable[..., Any]
    roles: tuple[Role, ...]
    head_dim: int
    keywords: Mapping[Role, str] = field(default_factory=dict)
    seq_dim: int = -2
    batched_positions: bool = False
    tables: TableForm = "none"
    tables_of: Callable[[Tensor], Tables] | None = None
    makes_tables: bool = False
    ignores_positions: bool = False
    spec: RotarySpec | None = None

    @property
    def takes(self) -> Literal["positions", "offset", "nothing"]:
        """How positions reach the target; tables of ours count as positions."""
        if self.ignores_positions:
            return "nothing"
        if "positions" in self.roles or self.tables_of is not None:
            return "positions"
        return "offset" if "offset" in self.roles else "nothing"

    @property
    def rotates(self) -> tuple[Role, ...]:
        """The roles of the vectors that it takes."""
        return tuple(role for role in self.roles if role in ("x", "q", "k", "v"))

    def fresh(self) -> Target:
        """Return this target as it was before the first call, if it is a module or its method."""
        if isinstance(self.function, (nn.Module, MethodType)):
            return replace(self, function=copy.deepcopy(self.function))
        return self

    def rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Return x `(B, H, S, D)` as the target rotates it at positions `(S,)` or `(B, S)`."""
        return self.rotate_all(dict.fromkeys(self.rotates, x), positions)[self.rotates[0]]

    def rotate_all(self, vectors: Mapping[Role, Tensor], positions: Tensor) -> dict[Role, Tensor]:
        """Return all vectors as the target returns them. Raises TargetError."""
        if self.takes != "positions":
            self._check_contiguous(positions)
        inputs = {role: self._turned(x).clone() for role, x in vectors.items()}
        returned = self._call(inputs, positions)
        if self.makes_tables:
            first = self.rotates[0]
            return {first: self._with_tables(vectors[first], returned)}
        outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
        needed = [role for role in inputs if role != "v"]
        if len(outputs) < len(needed):
            raise TargetError(f"returned {len(outputs)} tensor for {' and '.join(needed)}")
        rotated = {}
        for (role, x), y in zip(inputs.items(), outputs, strict=False):
            if not isinstance(y, Tensor) or y.shape != x.shape:
                got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
                raise TargetError(f"returned {got} for {role} of shape {tuple(x.shape)}")
            if not y.is_floating_point():
                raise TargetError(f"returned {y.dtype} for {role}".replace("torch.", ""))
            rotated[role] = self._turned(y)
        return rotated

    def changes_input(self, x: Tensor, positions: Tensor) -> bool:
        """Return whether a call changes the tensors that it is given."""
        inputs = {role: self._turned(x).clone() for role in self.rotates}
        self._call(inputs, positions)
        return any(not torch.equal(y, self._turned(x)) for y in inputs.values())

    def _turned(self, x: Tensor) -> Tensor:
        return x.transpose(-2, -3) if self.seq_dim == -3 else x

    def _check_contiguous(self, positions: Tensor) -> None:
        first = int(positions[0])
        expected = torch.arange(first, first + len(positions))
        if positions.ndim > 1 or not torch.equal(positions, expected):
            raise TargetError("takes no positions")
        if first and self.takes == "nothing":
            raise TargetError("takes no positions")

    def _call(self, inputs: Mapping[Role, Tensor], positions: Tensor) -> Any:
        made: dict[str, Any] = {str(role): x for role, x in inputs.items()}
        batch = next(iter(inputs.values())).shape[0]
        if self.batched_positions and positions.ndim == 1:
            made["positions"] = positions.expand(batch, -1)
        else:
            made["positions"] = positions
        if "offset" in self.roles:
            made["offset"] = int(positions.flatten()[0])
        if self.tables_of is not None:
            made |= self._tables(positions)
        plain = [made[role] for role in self.roles if role not in self.keywords]
        named = {self.keywords[role]: made[role] for role in self.keywords}
        try:
            return self.function(*plain, **named)
        except (Exception, SystemExit) as error:
            says = " ".join(str(error).split()) or "no message"
            raise TargetError(f"{type(error).__name__}: {shown(says, 160)}") from error

    def _tables(self, positions: Tensor) -> dict[str, Tensor]:
        assert self.tables_of is not None
        cos, sin = self.tables_of(positions)
        angles = torch.atan2(sin, cos)
        made = {"cos": cos, "sin": sin, "freqs": angles}
        if self.tables == "half":
            made = {name: torch.cat((t, t), -1) for name, t in made.items()}
        elif self.tables == "interleaved":
            made = {name: t.repeat_interleave(2, -1) for name, t in made.items()}
        if self.batched_positions and positions.ndim == 1:
            made = {name: table.unsqueeze(0) for name, table in made.items()}
        return {**made, "freqs_cis": torch.complex(cos, sin)}

    def _with_tables(self, x: Tensor, returned: Any) -> Tensor:
        cos, sin = read_tables(returned, x.shape[-2])
        pairing = "half" if self.spec is None else self.spec.pairing
        start = 0 if self.spec is None else self.spec.start
        try:
            return rotate(x, cos, sin, pairing=pairing, start=start)
        except (TypeError, ValueError) as error:
            raise TargetError(f"returned no tables for {tuple(x.shape)}: {error}") from error


def read_tables(returned: Any, length: int) -> Tables:
    """Return cos and sin `(…, S, R/2)` of what a module returned. Raises TargetError."""
    if isinstance(returned, Tensor) and returned.is_complex():
        returned = (returned.real, returned.imag)
    if not isinstance(returned, (tuple, list)) or len(returned) != 2:
        raise TargetError("returned no pair of cos and sin")
    cos, sin = (t.detach() for t in returned)
    while cos.ndim > 2 and cos.shape[0] == 1:
        cos, sin = cos[0], sin[0]
    if cos.shape != sin.shape or cos.ndim < 2 or cos.shape[-2] != length:
        raise TargetError(f"returned tables of shapes {tuple(cos.shape)} and {tuple(sin.shape)}")
    half = cos.shape[-1] // 2
    dtype = torch.float64 if cos.dtype == torch.float64 else torch.float32
    cos, sin = cos.to(dtype), sin.to(dtype)
    for first, second in (
        (slice(0, half), slice(half, None)),
        (slice(0, None, 2), slice(1, None, 2)),
    ):
        same = [t[..., first].shape == t[..., second].shape for t in (cos, sin)]
        if all(same) and all(torch.equal(t[..., first], t[..., second]) for t in (cos, sin)):
            return cos[..., first], sin[..., first]
    return cos, sin
