"""Verdicts on the factor of queries: 1, or the temperature that the layer is specified with."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.tools.verify.applied import Applied
from ropewalk.tools.verify.results import Check, fault, not_tested, remark, right

NAME = "query factor"
SAME = 1e-4  # of factors
BY_PLACE = "the query temperature, by the token's place in the call"


def temperatures(spec: LayerSpec, positions: Tensor) -> Tensor:
    """Return the specified factors of queries at positions (P,), relative to the first: (P,)."""
    if spec.query_temperature is None:
        return torch.ones(len(positions), dtype=torch.float64)
    factors = spec.query_temperature.at(positions).to(torch.float64)
    return factors / factors[0]


def with_factors(applied: Applied, spec: LayerSpec) -> Applied:
    """Return the matrices without a temperature that is still in them.

    If what entered the rotation is not known, matrices contain the temperature. Rotations keep
    lengths, so the size of each matrix is the factor.
    """
    if applied.factors is not None or spec.query_temperature is None or not applied.linear:
        return applied
    sizes = applied.matrices.square().sum((-2, -1)).sqrt()
    if not torch.isfinite(sizes).all() or (sizes <= 0).any():
        return applied
    factors = sizes / sizes[0]
    matrices = applied.matrices / factors[:, None, None]
    return replace(applied, matrices=matrices, factors=factors)


def needs_places(applied: Applied, spec: LayerSpec, positions: Tensor) -> bool:
    """Return whether a missing temperature looks like one by the token's place in the call.

    Tokens of one call have few places, so a temperature by place is 1 for all of them.
    """
    if applied.factors is None:
        return False
    ones = torch.ones(len(positions), dtype=torch.float64)
    return (
        _same(applied.factors, ones)
        and _same(temperatures(spec, torch.arange(len(positions))), ones)
        and not _same(temperatures(spec, positions), ones)
    )


def check_factors(factors: Tensor | None, spec: LayerSpec, positions: Tensor) -> Check:
    """Return whether queries become longer with their position only as a temperature says."""
    if factors is None:
        return not_tested(NAME, "what entered the rotation is not known; lengths are in `norms`")
    temperature, expected = spec.query_temperature, temperatures(spec, positions)
    off = (factors / expected - 1).abs()
    worst = int(off.argmax())
    if off[worst] <= SAME:
        kind = "1" if temperature is None else "the query temperature"
        return right(NAME, f"{kind}, at all positions")
    places = temperatures(spec, torch.arange(len(positions)))
    if _same(factors, places) and not _same(places, torch.ones_like(places)):
        return remark(NAME, BY_PLACE)
    says = (
        f"queries at position {int(positions[worst]):,} are multiplied by "
        f"{factors[worst]:.6g}, specified is {expected[worst]:.6g}"
    )
    if spec.rope is None and temperature is None:
        return remark(NAME, says)
    return fault(NAME, "norm-drift", says, error=off[worst].item())


def _same(factors: Tensor, others: Tensor) -> bool:
    return bool((factors / others - 1).abs().max() <= SAME)
