"""Verify a live model: the queries and keys that each layer's attention really gets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from ropewalk.checks import check_int
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.verify.applied import Applied, applied_matrices, rows_for
from ropewalk.tools.verify.capture import Attended
from ropewalk.tools.verify.compare import compare
from ropewalk.tools.verify.describe import check_rotation
from ropewalk.tools.verify.drive import CONTIGUOUS, Driver, ModelError, text_driver
from ropewalk.tools.verify.hollow import Shape
from ropewalk.tools.verify.like import max_positions
from ropewalk.tools.verify.results import Check, Report, fault, not_tested, remark, right

ModelConfig = str | PathLike[str] | Mapping[str, Any]
MOST_LENGTH = 2**16 + 1
#: Powers of two for slopes; others, because bfloat16 holds powers of two exactly.
POSITIONS = (0, 1, 2, 3, 4, 5, 7, *(2**k for k in range(3, 17)), 37, 101, 259, 515, 1_001, 3_333)
MOST_ROWS = 1_024
UNROTATED = 1e-5  # of matrices, from the identity


def verify_model(
    model: nn.Module,
    like: ModelSpec | ModelConfig | None = None,
    *,
    length: int | None = None,
) -> Report:
    """Return what the rope of each layer does to the queries and keys that attention gets.

    model: a transformers model, or a module whose forward takes tokens and positions. It is not
        changed. Projections and embeddings are replaced while it runs, so weights do not matter.
    like: what it should do: a ModelSpec or a config (path, dict). None: the model's own config.
    length: how many positions are used. None: those that the config promises, at most 65,537. A
        length-dependent rule is also tested at its original length.

    Each check names its layer in `where`, as in "layer 3, q". Raises ValueError or TypeError if the
    config cannot be read or the model takes no tokens; errors of the model's own code are faults.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if length is not None:
        check_int("length", length, 2)
    if like is None:
        like = getattr(model, "config", None)
        if like is None:
            raise ValueError("like must be given: the model has no config")
    spec = like if isinstance(like, ModelSpec) else ModelSpec.from_config(like)
    promised = None if isinstance(like, ModelSpec) else max_positions(like)
    driver = text_driver(model)
    lengths = _lengths(spec, length or promised, driver.positions is not None)
    checks = list(_verify_layers(driver, spec, lengths))
    count = len(spec.layers)
    return Report(type(model).__name__, f"model with {count} layers of text", tuple(checks))


def _lengths(spec: ModelSpec, length: int | None, takes_positions: bool) -> tuple[int, ...]:
    """Return the lengths to run, the longest first, as its tables must not outlive its call."""
    if not takes_positions:
        return (min(length or CONTIGUOUS, CONTIGUOUS),)
    ropes = [layer.rope for layer in spec.layers if layer.rope is not None]
    rules = [rope.scaling for rope in ropes if rope.needs_length]
    originals = {int(getattr(rule, "original_length", 2)) for rule in rules}
    longest = length or MOST_LENGTH
    if originals and longest <= max(originals):
        longest = 4 * max(originals)
    lengths = {min(longest, MOST_LENGTH), *(n for n in originals if n < MOST_LENGTH)}
    return tuple(sorted(lengths, reverse=True))


@dataclass
class _Sizes:
    """What the first, short run of a model shows: the rows that the least-squares fit needs."""

    rows: int = 1

    def see(self, attended: Attended) -> None:
        for x in (attended.q, attended.k):
            if x.ndim == 4:
                self.rows = max(self.rows, rows_for(x, attended.rotations))


def _verify_layers(driver: Driver, spec: ModelSpec, lengths: tuple[int, ...]) -> Iterator[Check]:
    shape, sizes = Shape(), _Sizes()
    try:
        driver.run(shape, torch.arange(3), sizes.see)
    except ModelError as error:
        yield fault("runs", "fails", str(error))
        return
    shape.rows = min(sizes.rows, MOST_ROWS)
    for length in lengths:
        layers = _Layers(spec, length, lengths)
        try:
            driver.run(shape, layers.positions(driver), layers.see)
        except ModelError as error:
            yield fault("runs", "fails", f"at length {length:,}: {error}")
        yield from layers.checks
        yield from layers.missing()


class _Layers:
    """Makes the checks of each layer, as the model runs."""

    def __init__(self, spec: ModelSpec, length: int, lengths: tuple[int, ...]):
        self.spec, self.length = spec, length
        self.several = len(lengths) > 1
        self.longest = lengths[0]
        self.checks: list[Check] = []
        self.seen: set[int] = set()
        self.at = torch.arange(0)

    def positions(self, driver: Driver) -> Tensor:
        if driver.positions is None:
            self.at = torch.arange(self.length)
        else:
            near = {p for p in POSITIONS if p < self.length}
            self.at = torch.tensor(sorted({*near, self.length - 1}))
        return self.at

    def see(self, attended: Attended) -> None:
        layer = attended.layer
        if layer is None or layer in self.seen or "cross" in attended.path.lower():
            return
        if layer >= len(self.spec.layers):
            return
        self.seen.add(layer)
        for name, x in (("q", attended.q), ("k", attended.k)):
            self._add(layer, name, self._rotated(layer, name, x, attended))
        self._add(layer, "v", [_values(attended)])

    def _add(self, layer: int, name: str, checks: list[Check]) -> None:
        where = f"layer {layer}, {name}"
        if self.several and name != "v":
            where += f", length {self.length:,}"
        self.checks += [replace(check, where=where) for check in checks]

    def _rotated(self, layer: int, name: str, x: Tensor, attended: Attended) -> list[Check]:
        if x.ndim != 4 or x.shape[2] != len(self.at):
            says = f"attention gets vectors of shape {tuple(x.shape)}, not one for each position"
            return [not_tested("applied vectors", says)]
        applied = applied_matrices(x, attended.rotations)
        spec = self.spec.layers[layer]
        checks = [_factors(applied, spec, self.at)] if name == "q" else []
        if spec.rope is None:
            return [*checks, self._unrotated(applied)]
        return [*checks, *self._compared(applied, spec.rope)]

    def _unrotated(self, applied: Applied) -> Check:
        name, off = "no rope", _from_identity(applied)
        if off <= UNROTATED:
            return right(name, "vectors do not rotate, as specified", error=off)
        says = "vectors change with their position; the layer is specified without a rope"
        return fault(name, "layer-types-mixed", says, error=off)

    def _compared(self, applied: Applied, rope: RotarySpec) -> list[Check]:
        if applied.matrices.isnan().all() and not applied.linear:
            return [not_tested("rotates pairs", "vectors that enter are too alike to tell")]
        if not applied.linear:
            says = "vectors at one position are not all changed by the same matrix"
            return [fault("rotates pairs", "not-a-rotation", says)]
        if not applied.entered and _from_identity(applied) <= UNROTATED:
            mixed = any(layer.rope is None for layer in self.spec.layers)
            named = "layer-types-mixed" if mixed else "positions-ignored"
            says = "vectors do not rotate; the layer is specified with a rope"
            return [fault("rotates pairs", named, says)]
        found, structure = check_rotation(applied.matrices, self.at)
        if structure is None:
            return found
        if structure.head_dim != rope.head_dim:
            says = f"heads have {structure.head_dim} dimensions, specified are {rope.head_dim}"
            return [*found, fault("rotary part", "rotary-part", says)]
        if not applied.entered:
            rope = replace(rope, pairing=rope.write_pairing)
        length = self.length if rope.needs_length else None
        checks = compare(structure, rope, self._others(rope), length)
        if not applied.entered:
            checks = [_amplitude_unknown(check) for check in checks]
        return found + checks

    def _others(self, rope: RotarySpec) -> dict[str, RotarySpec]:
        others: dict[str, RotarySpec] = {}
        for index, layer in enumerate(self.spec.layers):
            if layer.rope is not None and layer.rope not in (rope, *others.values()):
                kind = f", {layer.layer_type}" if layer.layer_type else ""
                others[f"layer {index}{kind}"] = layer.rope
        return others

    def missing(self) -> Iterator[Check]:
        for layer, spec in enumerate(self.spec.layers):
            if layer not in self.seen:
                kind = f" ({spec.layer_type})" if spec.layer_type else ""
                says = f"the layer{kind} did not reach softmax attention"
                yield replace(not_tested("applied vectors", says), where=f"layer {layer}")


def _from_identity(applied: Applied) -> float:
    identity = torch.eye(applied.matrices.shape[-1], dtype=torch.float64)
    return (applied.matrices - identity).abs().max().item()


def _amplitude_unknown(check: Check) -> Check:
    if check.name != "amplitude":
        return check
    says = "what entered the rotation is not known, only how positions differ from position 0"
    return not_tested("amplitude", says)


def _factors(applied: Applied, spec: LayerSpec, positions: Tensor) -> Check:
    """Whether queries become longer with their position only as a temperature says."""
    name, temperature = "query factor", spec.query_temperature
    expected = _temperatures(spec, positions)
    off = (applied.factors / expected - 1).abs()
    worst = int(off.argmax())
    if off[worst] <= 1e-4:
        kind = "1" if temperature is None else "the query temperature"
        return right(name, f"{kind}, at all positions")
    if (applied.factors / _temperatures(spec, torch.arange(len(off))) - 1).abs().max() <= 1e-4:
        return remark(name, "the query temperature, by the token's place in the call")
    says = (
        f"queries at position {int(positions[worst]):,} are multiplied by "
        f"{applied.factors[worst]:.6g}, specified is {expected[worst]:.6g}"
    )
    if spec.rope is None and temperature is None:
        return remark(name, says)
    return fault(name, "norm-drift", says, error=off[worst].item())


def _temperatures(spec: LayerSpec, positions: Tensor) -> Tensor:
    if spec.query_temperature is None:
        return torch.ones(len(positions), dtype=torch.float64)
    factors = spec.query_temperature.at(positions).to(torch.float64)
    return factors / factors[0]


def _values(attended: Attended) -> Check:
    name, v = "values", attended.v.detach().to(torch.float64)
    if v.shape == attended.k.shape and torch.equal(attended.v, attended.k):
        return remark(name, "values are the keys themselves")
    if v.ndim != 4 or v.shape[2] != attended.q.shape[2]:
        return not_tested(name, f"attention gets values of shape {tuple(v.shape)}")
    off = ((v - v[:, :, :1]).abs().amax() / v.abs().amax().clamp(min=1e-9)).item()
    if off <= 1e-5:
        return right(name, "values do not change with their position", error=off)
    says = f"values change with their position, by up to {off:.3g} of their size"
    return fault(name, "values-rotated", says, error=off)
