"""Find out how a target must be called: size of heads, order of axes, shape of positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from ropewalk.checks import check_int, shown
from ropewalk.rotary.module import RotaryEmbedding
from ropewalk.rotary.spec import RotarySpec
from ropewalk.rotary.tables import Tables
from ropewalk.tools.verify.roles import Role, detect_form, head_dims, keywords_of, read_form
from ropewalk.tools.verify.target import TableForm, Target, TargetError

MOST_DIMS = 2_048
SEQ_DIM: dict[str, int] = {"bhsd": -2, "bshd": -3}
FIRST, LENGTH, HEADS = 3, 5, 2  # the first call is not at position 0, so that its cache shows


def resolve(
    function: Callable[..., Any],
    *,
    form: str | None = None,
    axes: str | None = None,
    head_dim: int | None = None,
    spec: RotarySpec | None = None,
    length: int | None = None,
) -> Target:
    """Return the target with the call form that works.

    Each form is tried on a copy if the target is a module. Raises ValueError if none works.
    """
    if not callable(function):
        raise TypeError(f"target must be a function or module, got {shown(function)}")
    if axes is not None and axes not in SEQ_DIM:
        raise ValueError(f"axes must be bhsd or bshd, got {shown(axes)}")
    if head_dim is not None:
        check_int("head_dim", head_dim, 2)
        if head_dim > MOST_DIMS:
            raise ValueError(f"head_dim must be at most {MOST_DIMS:,}, got {head_dim:,}")
        if spec is not None and head_dim != spec.head_dim:
            raise ValueError(
                f"head_dim must be that of like, {spec.head_dim}, got {head_dim}; leave it out"
            )
    roles = detect_form(function) if form is None else read_form(form)
    dims = [spec.head_dim] if spec is not None else head_dims(function)
    if head_dim is not None:
        dims = [head_dim]
    failures: list[str] = []
    worst: Target | None = None
    for target in _candidates(function, roles, axes, dims, spec, length):
        try:
            score = _score(target.fresh())
        except TargetError as error:
            failures.append(str(error))
            continue
        if score == 2:
            return target
        worst = worst or target
    if axes is not None and worst is not None:
        other = "bshd" if axes == "bhsd" else "bhsd"
        with suppress(ValueError):
            found = resolve(function, form=form, head_dim=head_dim, spec=spec, length=length)
            if found.seq_dim == SEQ_DIM[other]:
                raise TypeError(
                    f"axes must be {other} for this target, whose results vary along that "
                    f"sequence axis, got {axes}; leave it out to have it found"
                )
    if worst is not None:
        return worst
    shapes = {None: "(B, H, S, D) or (B, S, H, D)", "bhsd": "(B, H, S, D)"}.get(
        axes, "(B, S, H, D)"
    )
    said = failures[0] if failures else "no form of its arguments"
    raise ValueError(
        f"target must rotate vectors of {shapes} when called as f({', '.join(roles)}), or return "
        f"cos and sin; no call worked: {said}; state other roles (form), axes or head_dim, or "
        f"wrap it in a function of x (B, H, S, D)"
    )


def _candidates(
    function: Callable[..., Any],
    roles: tuple[Role, ...],
    axes: str | None,
    dims: list[int],
    spec: RotarySpec | None,
    length: int | None,
) -> Iterator[Target]:
    keywords = keywords_of(function, roles)
    takes_tables = any(role in roles for role in ("cos", "sin", "freqs_cis", "freqs"))
    forms: tuple[TableForm, ...] = ("half", "pairs", "interleaved") if takes_tables else ("none",)
    orders = [SEQ_DIM[axes]] if axes else [-2, -3]
    batched = (False, True) if takes_tables or "positions" in roles else (False,)
    for dim, seq_dim, with_batch, tables in product(dims, orders, batched, forms):
        of = _tables_of(spec or RotarySpec(head_dim=dim), length) if takes_tables else None
        plain = Target(function, roles, dim, keywords, seq_dim, with_batch, tables, of, spec=spec)
        yield plain
        if not takes_tables and len(plain.rotates) == 1 and seq_dim == orders[0]:
            yield replace(plain, seq_dim=-2, makes_tables=True)


def _tables_of(spec: RotarySpec, length: int | None) -> Callable[[Tensor], Tables]:
    rope = RotaryEmbedding(spec)

    def tables(positions: Tensor) -> Tables:
        if spec.axis_count > 1:
            positions = positions.expand(spec.axis_count, *positions.shape)
        return rope.tables(positions, length)

    return tables


def _score(target: Target) -> int:
    """Return 2 if results vary along the sequence and not along heads, else 1. Raises TargetError.

    With tables of ours, a result that keeps norms and position 0 is required for 2.
    """
    first = FIRST if target.takes != "nothing" else 0
    positions = torch.arange(first, first + LENGTH)
    x = torch.ones(1, HEADS, LENGTH, target.head_dim)
    y = target.rotate(x, positions)
    if not torch.isfinite(y).all():
        return 1
    moves = (y - y[:, :, :1]).abs().amax() > 1e-4
    same_heads = (y - y[:, :1]).abs().amax() < 1e-4
    if not (moves and same_heads):
        return 1
    if target.tables_of is None:
        return 2
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, HEADS, LENGTH, target.head_dim, generator=generator)
    y = target.rotate(x, torch.arange(LENGTH))
    kept = (y.norm(dim=-1) / x.norm(dim=-1)).std() < 1e-4
    return 2 if kept and (y[:, :, 0].sort().values / x[:, :, 0].sort().values).std() < 1e-4 else 1
