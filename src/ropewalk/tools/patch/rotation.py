"""What a model's function that rotates q and k does, found by calling it, and what replaces it.

Axes: B batch, H heads, S sequence, D head_dim, R rotary_dim.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor

from ropewalk.rotary.interop import to_freqs_cis, to_transformers
from ropewalk.rotary.kernels import operator
from ropewalk.rotary.pairing import PAIRINGS, Pairing
from ropewalk.rotary.reference import Layout, rotate_reference
from ropewalk.rotary.rotate import check_tables
from ropewalk.rotary.tables import Tables

TableForm = Literal["half", "interleaved", "once", "complex"]
"""Columns of a model's tables: each frequency twice, in halves or next to each other (cos and sin
of R columns); once (R/2 columns); or once as complex numbers."""

TABLE_FORMS: tuple[TableForm, ...] = ("half", "interleaved", "once", "complex")
SIZES = B, H, S, R = 2, 3, 5, 8
TOLERANCE = 1e-5  # float32 rounding of random numbers is about 1e-6


def as_model_has_them(tables: Tables, form: TableForm) -> tuple[Tensor, ...]:
    """Return tables (…, S, R/2) with the columns of a form: (cos, sin), or one complex tensor."""
    if form == "complex":
        return (to_freqs_cis(*tables),)
    return tables if form == "once" else to_transformers(*tables, pairing=form)


@dataclass(frozen=True)
class Rotation:
    """How a function rotates the tensors that it is called with.

    parameters: names of its parameters, in order. trailing: the last R dimensions of a wider head
    rotate, not the first. reverse: by the negative angle. seq_dim: as `rotate` has it.
    """

    parameters: tuple[str, ...]
    pairing: Pairing
    write_pairing: Pairing
    reverse: bool = False
    trailing: bool = False
    seq_dim: int = -2

    def apply(
        self, xs: Sequence[Tensor], cos: Tensor, sin: Tensor, unsqueeze_dim: int | None = None
    ) -> tuple[Tensor, ...]:
        """Rotate tensors by tables (B, S, R/2), in one call.

        unsqueeze_dim: the axis of heads, 1 or 2, or None for the function's own.
        """
        if unsqueeze_dim is not None and unsqueeze_dim not in (1, 2):
            raise ValueError(
                f"unsqueeze_dim must be 1 or 2, the axis of heads, got {unsqueeze_dim}"
            )
        seq_dim = {None: self.seq_dim, 1: -2, 2: -3}[unsqueeze_dim]
        if cos.ndim == 3 and cos.shape[0] == 1:  # all sequences have the same positions
            cos, sin = cos[0], sin[0]
        for x in xs:
            check_tables(cos, sin, x, seq_dim)
        return tuple(self._rotate(operator.dispatch, xs, cos, sin, seq_dim))

    def _rotate(
        self, rotate: Callable[..., Any], xs: Any, cos: Tensor, sin: Tensor, seq_dim: int
    ) -> Any:
        width = (xs if isinstance(xs, Tensor) else xs[0]).shape[-1]
        start = width - 2 * cos.shape[-1] if self.trailing else 0
        layout = Layout.of(self.pairing, self.write_pairing, start, seq_dim)
        return rotate(xs, cos, -sin if self.reverse else sin, layout)


def measure(function: Callable[..., Any], form: TableForm) -> Rotation | None:
    """Return what a function does with tables of a form, or None if it is no known rotation.

    It is called on random numbers. If it takes heads wider than R, their other dimensions must stay
    as they are.
    """
    parameters = tuple(inspect.signature(function).parameters)
    if parameters not in REPLACEMENTS:
        return None
    generator = torch.Generator().manual_seed(0)
    angles = torch.rand(B, S, R // 2, generator=generator) * 6
    tables = angles.cos(), angles.sin()
    given = as_model_has_them(tables, form)
    if (len(given) == 1) != (parameters[-1] == "freqs_cis"):
        return None
    possible = list(_all_rotations(parameters))
    for width in (R, R + 4):
        q, k = (torch.randn(B, heads, S, width, generator=generator) for heads in (H, 1))
        answers = {
            seq_dim: _call(function, parameters, q, k, given, seq_dim) for seq_dim in (-2, -3)
        }
        if width > R and all(answer is None for answer in answers.values()):
            break  # it takes only dimensions that rotate
        possible = [
            each for each in possible if _is_as(each, answers[each.seq_dim], (q, k), tables)
        ]
    return possible[0] if possible else None


def _all_rotations(parameters: tuple[str, ...]) -> Any:
    for seq_dim, trailing, reverse, write, read in itertools.product(
        (-2, -3), (False, True), (False, True), PAIRINGS, PAIRINGS
    ):
        yield Rotation(parameters, read, write, reverse, trailing, seq_dim)


def _call(
    function: Callable[..., Any],
    parameters: tuple[str, ...],
    q: Tensor,
    k: Tensor,
    tables: tuple[Tensor, ...],
    seq_dim: int,
) -> tuple[Tensor, ...] | None:
    """Return what is rotated as (B, H, S, D), or None if the function takes no such tensors."""
    xs = [q, k] if parameters[0] in ("q", "xq") else [q]
    if seq_dim == -3:
        xs = [x.transpose(1, 2).contiguous() for x in xs]
    if parameters[1] == "sin":
        tables = tables[::-1]
    try:
        with torch.no_grad():
            rotated = function(*xs, *tables)
    except Exception:  # code of a model may raise anything for a shape that it does not expect
        return None
    rotated = (rotated,) if isinstance(rotated, Tensor) else tuple(rotated)
    if [y.shape for y in rotated] != [x.shape for x in xs]:
        return None
    return tuple(y.transpose(1, 2) for y in rotated) if seq_dim == -3 else rotated


def _is_as(
    rotation: Rotation,
    answers: tuple[Tensor, ...] | None,
    xs: tuple[Tensor, ...],
    tables: Tables,
) -> bool:
    if answers is None:
        return False
    expected = [rotation._rotate(rotate_reference, x, *tables, -2) for x in xs]
    # A function of one tensor has one answer.
    pairs = zip(answers, expected, strict=False)
    return all(bool((mine - theirs).abs().max() < TOLERANCE) for mine, theirs in pairs)


@lru_cache(maxsize=256)
def replacement(rotation: Rotation) -> Callable[..., Any]:
    """Return the function that does the same by tables (B, S, R/2), with the same parameters."""
    return REPLACEMENTS[rotation.parameters](rotation)


def with_pairing(rotation: Rotation, pairing: Pairing, write_pairing: Pairing) -> Rotation:
    """Return a rotation with other pairs, for weights that were converted."""
    return replace(rotation, pairing=pairing, write_pairing=write_pairing)


def _of_two(rotation: Rotation) -> Callable[..., Any]:
    def apply_rotary_pos_emb(
        q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
    ) -> tuple[Tensor, Tensor | None]:
        if k is None:
            return rotation.apply((q,), cos, sin, unsqueeze_dim)[0], None
        q, k = rotation.apply((q, k), cos, sin, unsqueeze_dim)
        return q, k

    return apply_rotary_pos_emb


def _of_two_with_positions(rotation: Rotation) -> Callable[..., Any]:
    rotate = _of_two(rotation)

    def apply_rotary_pos_emb(
        q: Tensor,
        k: Tensor,
        cos: Tensor,
        sin: Tensor,
        position_ids: Tensor | None = None,
        unsqueeze_dim: int = 1,
    ) -> Any:
        return rotate(q, k, cos, sin, unsqueeze_dim)

    return apply_rotary_pos_emb


def _of_one(rotation: Rotation) -> Callable[..., Any]:
    def apply_rotary_pos_emb(x: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Tensor:
        return rotation.apply((x,), cos, sin, unsqueeze_dim)[0]

    return apply_rotary_pos_emb


def _sin_first(rotation: Rotation) -> Callable[..., Any]:
    def apply_rotary_pos_emb(tensor: Tensor, sin: Tensor, cos: Tensor) -> Tensor:
        # These tables are a buffer of the model, which has the dtype of its weights.
        return rotation.apply((tensor,), cos.float(), sin.float())[0]

    return apply_rotary_pos_emb


def _by_complex(rotation: Rotation) -> Callable[..., Any]:
    def apply_rotary_emb(xq: Tensor, xk: Tensor, freqs_cis: Tensor) -> tuple[Tensor, ...]:
        return rotation.apply((xq, xk), freqs_cis.real, freqs_cis.imag)

    return apply_rotary_emb


#: By the names of the parameters that a model's function has.
REPLACEMENTS: dict[tuple[str, ...], Callable[[Rotation], Callable[..., Any]]] = {
    ("q", "k", "cos", "sin", "unsqueeze_dim"): _of_two,
    ("q", "k", "cos", "sin", "position_ids", "unsqueeze_dim"): _of_two_with_positions,
    ("x", "cos", "sin", "unsqueeze_dim"): _of_one,
    ("tensor", "sin", "cos"): _sin_first,
    ("xq", "xk", "freqs_cis"): _by_complex,
}
