"""Verdicts on the layers of a model, made while it runs: queries, keys and values of each.

The factor of queries is 1, or the temperature that the layer is specified with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.module import RotaryEmbedding
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.verify.applied_rotation import Applied, applied_matrices, leftovers
from ropewalk.tools.verify.capture_attention import Attended
from ropewalk.tools.verify.frequency_mistakes import other_ropes
from ropewalk.tools.verify.key_verdicts import same_for_keys
from ropewalk.tools.verify.measured_rotation import NEAR, Structure, pairs_of
from ropewalk.tools.verify.rotation_verdicts import angle_errors, check_rotation, compare
from ropewalk.tools.verify.verify_report import Check, Place, fault, not_tested, remark, right

NAME = "query factor"
SAME = 1e-4  # of factors
UNKNOWN = "what entered the rotation is not known"
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
    return replace(applied, matrices=applied.matrices / factors[:, None, None], factors=factors)


def check_factors(factors: Tensor | None, spec: LayerSpec, positions: Tensor) -> Check | None:
    """Return whether queries become longer with their position only as a temperature says.

    None if a longer call must tell: a temperature by the token's place in the call is 1 for all of
    few tokens, as if there were none.
    """
    if factors is None:
        return not_tested(NAME, f"{UNKNOWN}; lengths are in `norms`")
    temperature, expected = spec.query_temperature, temperatures(spec, positions)
    off = (factors / expected - 1).abs()
    worst = int(off.argmax())
    if off[worst] <= SAME:
        kind = "1" if temperature is None else "the query temperature"
        return right(NAME, f"{kind}, at all positions")
    places = temperatures(spec, torch.arange(len(positions)))
    if (factors / places - 1).abs().max() <= SAME:
        return remark(NAME, BY_PLACE) if (places - 1).abs().max() > SAME else None
    says = (
        f"queries at position {int(positions[worst]):,} are multiplied by "
        f"{factors[worst]:.6g}, specified is {expected[worst]:.6g}"
    )
    if spec.rope is None and temperature is None:
        return remark(NAME, says)
    return fault(NAME, "norm-drift", says, error=off[worst].item())


UNROTATED = 1e-5  # of matrices, from the identity
ALONG_AXIS = 2e-3  # of matrices below position 1,024, where angles are off by 5e-4


def number_in(path: str | None, running: tuple[str, ...]) -> int | None:
    """Return the place of the running modules in a list of modules, or None if it is elsewhere."""
    if path is None:
        return None
    start = f"{path}." if path else ""
    for module in running:
        number = module.removeprefix(start).partition(".")[0]
        if module.startswith(start) and number.isdigit():
            return int(number)
    return None


@dataclass
class Run(ABC):
    """Checks of one run of a model. at: its positions, (S,) or (A, S). path: of its layers."""

    spec: ModelSpec
    at: Tensor
    path: str | None
    checks: list[Check] = field(default_factory=list, init=False)
    seen: set[int] = field(default_factory=set, init=False)

    def see(self, attended: Attended) -> None:
        """Check the vectors of one attention; of each layer, the first self-attention counts."""
        layer = number_in(self.path, attended.paths)
        if layer is None or layer in self.seen or "cross" in attended.paths[-1].lower():
            return
        self.seen.add(layer)
        if layer < len(self.spec.layers):
            for part, checks in self.check(layer, attended):
                self.checks += [replace(check, places=(Place(layer, part),)) for check in checks]

    @abstractmethod
    def check(self, layer: int, attended: Attended) -> Iterator[tuple[str, list[Check]]]:
        """Yield the checks of one layer, by its part: "q", "k", "v" or "indexer"."""


@dataclass
class LengthRun(Run):
    """The checks of a run at one length.

    before: a longer one that the model served before. unplaced: layers without a visible query
    temperature, which may be one by the token's place; see `PlaceRun`.
    """

    length: int
    before: int | None = None
    error: str = ""
    unplaced: set[int] = field(default_factory=set, init=False)

    def placed(self, several: bool) -> Iterator[Check]:
        """Yield all checks, and those of layers that were not met.

        several: whether the model was called at several lengths, so that places have theirs.
        """
        for check in self.checks:
            if several:
                at = [replace(place, length=self.length) for place in check.places or (Place(),)]
                check = replace(check, places=tuple(at))
            yield check
        of_config = self.spec.layers
        for layer in sorted({*range(len(of_config))} ^ self.seen if self.before is None else ()):
            says = f"the layer is not in the config, which has {len(of_config)}"
            if layer < len(of_config):
                kind = of_config[layer].layer_type
                says = f"the layer{f' ({kind})' if kind else ''} did not reach softmax attention"
            yield not_tested("applied vectors", says, Place(layer))

    def check(self, layer: int, attended: Attended) -> Iterator[tuple[str, list[Check]]]:
        """Yield the checks of queries, keys, values and indexer of one layer."""
        spec, by_part = self.spec.layers[layer], {}
        for part, x in (("q", attended.q), ("k", attended.k)):
            if x.ndim != 4 or x.shape[2] != len(self.at):
                says = f"attention gets vectors of shape {tuple(x.shape)}, not one a position"
                yield part, [not_tested("applied vectors", says)]
                continue
            applied = applied_matrices(x, attended.rotations, attended.projections)
            by_part[part] = applied
            if part == "q":
                applied = with_factors(applied, spec)
                factors = check_factors(applied.factors, spec, self.at)
                if factors is None:
                    self.unplaced.add(layer)
                else:
                    yield part, [factors]
            yield part, self._rotated(applied, spec.rope)
        if spec.rope is not None and len(by_part) == 2:
            yield "k", _shifted(by_part["q"], by_part["k"], self.at)
        if self.before is None:
            yield "v", [_values(attended)]
        if spec.indexer is not None:
            yield "indexer", self._indexer(spec.indexer, attended)

    def _indexer(self, rope: RotarySpec, attended: Attended) -> list[Check]:
        """Check what rotates in none of the attended vectors, with as many dimensions."""
        for size in dict.fromkeys((rope.rotary_dim, rope.head_dim)):
            wanted = rope.for_rotary_part() if size == rope.rotary_dim else rope
            checks: list[Check] = []
            for applied in leftovers(attended.rotations, attended.q, attended.k):
                if applied.matrices.shape[-1] == size:
                    checks += self._rotated(applied, wanted)
            if checks:
                return list({(c.name, c.verdict, c.fault): c for c in checks}.values())
        return [not_tested("rotates pairs", "no function that rotates its vectors was met")]

    def _rotated(self, applied: Applied, rope: RotarySpec | None) -> list[Check]:
        name, D = "rotates pairs", applied.matrices.shape[-1]
        off = (applied.matrices - torch.eye(D, dtype=torch.float64)).abs().max().item()
        if rope is None and off <= UNROTATED:
            return [right("no rope", "vectors do not rotate, as specified", error=off)]
        if rope is None:
            says = "vectors change with their position; the layer is specified without a rope"
            return [fault("no rope", "layer-types-mixed", says, error=off)]
        if not applied.linear:
            if applied.matrices.isnan().all():
                return [not_tested(name, "vectors that enter are too alike to tell")]
            says = "vectors at one position are not all changed by the same matrix"
            return [fault(name, "not-a-rotation", says)]
        if not applied.entered and off <= UNROTATED:
            mixed = any(layer.rope is None for layer in self.spec.layers)
            named = "layer-types-mixed" if mixed else "positions-ignored"
            says = "vectors do not rotate; the layer is specified with a rope"
            return [fault(name, named, says)]
        length = self.length if rope.needs_length else None
        amplitude = _amplitude_from(applied, rope, length)
        basics, structure = check_rotation(applied.matrices * (amplitude or 1.0), self.at)
        if structure is None:
            return basics
        if structure.head_dim != rope.head_dim:
            says = f"heads have {structure.head_dim} dimensions, specified are {rope.head_dim}"
            return [*basics, fault("rotary part", "rotary-part", says)]
        if not applied.entered:
            rope = replace(rope, pairing=rope.write_pairing)
        checks = self._at_length(structure, rope, length)
        if not any(check.fault for check in checks):
            checks += _far(structure, rope, length)
        if amplitude is None:
            says = f"{UNKNOWN}, only how positions differ from position 0"
            unknown = not_tested("amplitude", says)
            checks = [unknown if check.name == "amplitude" else check for check in checks]
        return basics + checks

    def _at_length(self, structure: Structure, rope: RotarySpec, length: int | None) -> list[Check]:
        """Compare; with the length of the call before too, if a table may have outlived it."""
        checks = compare(structure, rope, other_ropes(self.spec, rope), length)
        before = self.before if length is not None and any(x.fault for x in checks) else None
        if before is None or any(x.fault for x in compare(structure, rope, None, before)):
            return checks
        says = f"frequencies are those of the call before, of {before:,} positions"
        return [fault("called twice", "history", says)]


@dataclass
class AxisRun(Run):
    """The checks of a run in which positions grow along one axis, and are 0 along the others."""

    axis: int

    def check(self, layer: int, attended: Attended) -> Iterator[tuple[str, list[Check]]]:
        """Yield the check of the queries of one layer."""
        rope, name = self.spec.layers[layer].rope, f"axis {self.axis}"
        if rope is None or attended.q.ndim != 4 or rope.axis_count != len(self.at):
            return
        applied = applied_matrices(attended.q, attended.rotations)
        if not applied.entered or applied.matrices.shape[-1] != rope.head_dim:
            yield "q", [not_tested(name, UNKNOWN)]
            return
        basis = torch.eye(rope.head_dim, dtype=torch.float64)[None, :, None]
        basis = basis.expand(-1, -1, self.at.shape[-1], -1)
        length = int(self.at.max()) + 1 if rope.needs_length else None
        wanted = RotaryEmbedding(rope).rotate(basis, self.at, length=length)[0].permute(1, 2, 0)
        off = (applied.matrices - wanted).abs().max().item()
        squares = applied.matrices.mT @ applied.matrices
        size = squares.diagonal(dim1=-2, dim2=-1).mean()
        drift = (squares / size - torch.eye(rope.head_dim)).abs().max().item()
        says = f"other pairs follow this axis than specified; matrices are off by {off:.3g}"
        check = fault(name, "frequencies", says, error=off)
        if off <= ALONG_AXIS:
            check = right(name, "the pairs that follow this axis are as specified", error=off)
        elif drift > ALONG_AXIS:
            says = f"along this axis alone it is no rotation: MᵀM is off by {drift:.2g}, as if"
            says += " the halves of a pair followed different axes"
            check = fault(name, "not-a-rotation", says, error=off)
        yield "q", [check]


@dataclass
class PlaceRun(Run):
    """The query factors of some layers at places so late that a temperature by place differs."""

    layers: set[int]

    def check(self, layer: int, attended: Attended) -> Iterator[tuple[str, list[Check]]]:
        """Yield the check of the lengths of one layer's queries; rotations do not change them."""
        q = attended.q
        if layer not in self.layers:
            return
        if q.ndim != 4 or q.shape[2] != len(self.at):
            yield "q", [not_tested(NAME, "its queries have another shape in longer calls")]
            return
        lengths = q[0].detach().cpu().to(torch.float64).norm(dim=-1)
        check = check_factors((lengths / lengths[:, :1]).mean(0), self.spec.layers[layer], self.at)
        if check is None or check.verdict == "right":
            check = remark(NAME, BY_PLACE)
        yield "q", [check]


def _amplitude_from(applied: Applied, rope: RotarySpec, length: int | None) -> float | None:
    """Return by what to multiply the matrices, so that their amplitude shows; None if unknown.

    Between projection and attention, code may also multiply by a factor of the softmax. So only an
    amplitude that is right, missing or applied twice is taken for one.
    """
    if applied.entered:
        return 1.0
    if applied.scale is None:
        return None
    expected = rope.amplitude_at(length)
    known = any(abs(applied.scale / a - 1) < 1e-4 for a in (expected, 1.0, expected**2))
    return applied.scale if known else None


def _shifted(q: Applied, k: Applied, at: Tensor) -> list[Check]:
    """Return the fault of keys at other positions than queries: each alone is a right rotation."""
    known = all(x.entered and x.linear and torch.isfinite(x.matrices).all() for x in (q, k))
    known = known and q.matrices.shape == k.matrices.shape
    queries = pairs_of(q.matrices, at) if known else None
    if queries is None or not len(queries.writes):
        return []
    keys = same_for_keys(k.matrices, queries)
    return [keys] if keys.fault == "keys-shifted" else []


def _far(structure: Structure, rope: RotarySpec, length: int | None) -> list[Check]:
    """Return the verdict on positions beyond those that `compare` looks at."""
    name, beyond = "far positions", structure.positions > NEAR
    if not beyond.any():
        return []
    positions = structure.positions[beyond]
    off, limit = (x[beyond] for x in angle_errors(structure, structure, rope, length))
    if (off <= limit).all():
        return [right(name, f"angles are off by at most {off.max():.1e} radians")]
    row = int((off / limit).amax(-1).argmax())
    mistake = f"at position {int(positions[row]):,}"
    says = f"{mistake}, angles are off by {off[row].max():.3g} radians"
    same = (structure.blocks[beyond] - structure.blocks[-1]).abs().max() < 1e-4
    if same and len(positions) > 1:
        return [fault(name, "table-too-short", f"{says}; the last row is repeated")]
    return [fault(name, "frequencies", says, mistake=mistake, error=off.max().item())]


def _values(attended: Attended) -> Check:
    name, v = "values", attended.v.detach().cpu().to(torch.float64)
    if v.shape == attended.k.shape and torch.equal(attended.v, attended.k):
        return remark(name, "values are the keys themselves")
    if v.ndim != 4 or v.shape[2] != attended.q.shape[2]:
        return not_tested(name, f"attention gets values of shape {tuple(v.shape)}")
    off = ((v - v[:, :, :1]).abs().amax() / v.abs().amax().clamp(min=1e-9)).item()
    if off <= 1e-5:
        return right(name, "values do not change with their position", error=off)
    says = f"values change with their position, by up to {off:.3g} of their size"
    return fault(name, "values-rotated", says, error=off)
