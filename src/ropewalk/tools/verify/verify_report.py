"""What `verify` returns: one check a line, with its verdict, its numbers and its likely cause."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from ropewalk.tools.ranges import ranges


class Fault(NamedTuple):
    """What a fault is, and where it usually comes from."""

    what: str
    cause: str


FAULTS: dict[str, Fault] = {
    "cos-sin-mixed": Fault(
        "a cosine is where a sine belongs",
        "the tables are swapped, or one table alternates sines and cosines as sinusoidal "
        "embeddings do",
    ),
    "not-a-rotation": Fault(
        "the function does not rotate pairs of dimensions",
        "positions are added, or vectors are multiplied by a matrix that is not a rotation, such "
        "as cos(0.01·i·j)",
    ),
    "pairing": Fault(
        "other dimensions rotate together",
        "half pairs (i, i + R/2) and interleaved pairs (2i, 2i + 1) were confused; use the other "
        "pairing, or keep yours and permute the rows of the q and k weights, not both",
    ),
    "half-precision-angles": Fault(
        "angles were rounded to bfloat16 or float16",
        "positions, frequencies or their product have the dtype of the model; compute angles in "
        "float32 and cast cos and sin afterwards",
    ),
    "table-too-short": Fault(
        "positions beyond the end of the table are wrong or refused",
        "the table was built for fewer positions than the model serves",
    ),
    "stale-table": Fault(
        "a call uses the table of an earlier call",
        "a cached table is used again for other positions, another dtype or another device",
    ),
    "history": Fault(
        "the result at a position depends on the length of this call or of earlier ones",
        "a length-dependent rule (dynamic NTK, LongRoPE) takes its length from the call; cached "
        "keys then have other frequencies than new queries",
    ),
    "offset-ignored": Fault(
        "the offset has no effect",
        "the table is always read from its first row; decoding with a cache repeats position 0",
    ),
    "positions-ignored": Fault(
        "the positions have no effect",
        "the table is always read from its first row; packed documents, padding and decoding with "
        "a cache get wrong positions",
    ),
    "partial-ignored": Fault(
        "the complete head rotates",
        "partial_rotary_factor or rotary_dim is not read",
    ),
    "rotary-part": Fault(
        "other dimensions of the head rotate",
        "rotary_dim, or the first dimension that rotates, differs",
    ),
    "wrong-exponent": Fault(
        "frequencies have another exponent than -2i/R",
        "the index or the divisor is wrong, as in i/R, or in 2i/D if only R of D dimensions rotate",
    ),
    "wrong-sign": Fault(
        "pairs rotate backwards",
        "the sign of the sine is flipped, or the tables are those of the inverse rotation",
    ),
    "values-rotated": Fault(
        "values rotate too",
        "the rotation is applied to q, k and v, or before they are split",
    ),
    "norm-drift": Fault(
        "vectors become longer or shorter with their position",
        "a factor depends on the position, as in xPos without its counterpart in keys",
    ),
    "amplitude": Fault(
        "cos and sin have another amplitude",
        "YaRN's or LongRoPE's attention factor is missing, or applied twice",
    ),
    "uninitialised-frequencies": Fault(
        "frequencies are not numbers, zero or arbitrary, or no rotation is applied",
        "a buffer that is not in the checkpoint was left unset after meta-device loading or "
        "to_empty(); compute the frequencies again after loading",
    ),
    "layer-types-mixed": Fault(
        "the layer has the rope of another type of layer",
        "full and sliding attention were confused, or all layers share one rope",
    ),
    "rule-ignored": Fault(
        "the scaling rule is not applied",
        "rope_scaling or rope_parameters is not read, or read under another name",
    ),
    "rule-applied-twice": Fault(
        "the scaling rule is applied twice",
        "frequencies that were scaled already are scaled again, or positions are scaled too",
    ),
    "input-mutated": Fault(
        "the input was changed",
        "the rotation is in place, or writes to a view of its input",
    ),
    "theta": Fault(
        "theta differs",
        "rope_theta is not read, and the default of the class is used",
    ),
    "frequencies": Fault(
        "frequencies differ",
        "another rule, other fields of the rule, or other axes",
    ),
    "gradient": Fault(
        "the gradient is not the transpose of the rotation",
        "a backward pass written by hand rotates by the wrong angle or drops an argument",
    ),
    "batch": Fault(
        "a row of a batch depends on the other rows",
        "positions or tables are broadcast along the wrong axis",
    ),
    "heads": Fault(
        "heads rotate differently, or depend on one another",
        "positions or tables are broadcast along the axis of heads, or heads were exchanged",
    ),
    "inputs-mixed": Fault(
        "a result depends on another input",
        "q and k were exchanged, or one was rotated in place of the other",
    ),
    "fails": Fault(
        "the call raises or returns something else",
        "the function does not serve this input",
    ),
}


Verdict = Literal["right", "fault", "remark", "not tested"]


@dataclass(frozen=True)
class Place:
    """A place in a model.

    layer: its number, None for the complete model. part: what of the layer: "q", "k", "v" or
    "indexer", "" for all of it. length: of the call, if the model was called at several.
    """

    layer: int | None = None
    part: str = ""
    length: int | None = None

    @property
    def inside(self) -> str:
        """The part and the length in words, as in "q, length 64"."""
        length = "" if self.length is None else f"length {self.length:,}"
        return ", ".join(word for word in (self.part, length) if word)

    def __str__(self) -> str:
        layer = "" if self.layer is None else f"layer {self.layer}"
        return ", ".join(word for word in (layer, self.inside) if word)


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    name: what was checked, as in "pairing". says: the result in words. fault: a key of `FAULTS` if
    the verdict is "fault", else None. numbers: what was measured. mistake: what tells a fault from
    others of its name and numbers, as in "the exponent is i/R instead of 2i/R". places: where in a
    model; none for a function, several if layers share the verdict.
    """

    name: str
    verdict: Verdict
    says: str
    fault: str | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    mistake: str = ""
    places: tuple[Place, ...] = ()

    @property
    def where(self) -> str:
        """The places in words: "layer 3, q", or "layers 0-4, 6; q and k", or ""."""
        layers = {place.layer for place in self.places if place.layer is not None}
        if len(self.places) < 2 or not layers:
            return str(self.places[0]) if self.places else ""
        inside = list(dict.fromkeys(place.inside for place in self.places if place.inside))
        words = f"{'layers' if len(layers) > 1 else 'layer'} {ranges(layers)}"
        if len(inside) > 1:
            inside = [f"{', '.join(inside[:-1])} and {inside[-1]}"]
        return "; ".join((words, *inside))

    @property
    def cause(self) -> str:
        """The likely cause of a fault, in words, or an empty string."""
        return FAULTS[self.fault].cause if self.fault else ""


@dataclass(frozen=True)
class Report:
    """All checks of one target.

    ropes: the queries and keys of a model that have a rope. extra: layers that the model has and
    the specification has not.

    Example:
        >>> from ropewalk import RotaryEmbedding, RotarySpec, tools
        >>> report = tools.verify(RotaryEmbedding(RotarySpec(head_dim=8)), like=RotarySpec(8))
        >>> report.right, report.faults
        (True, ())
    """

    target: str
    form: str
    checks: tuple[Check, ...]
    ropes: tuple[Place, ...] = ()
    extra: tuple[Place, ...] = ()

    @property
    def untested(self) -> tuple[str, ...]:
        """The ropes of a model whose rotation has no verdict, as in "layer 3, q"."""
        tested = {
            (place.layer, place.part)
            for check in self.checks
            for place in check.places
            if check.fault or (check.name == "frequencies" and check.verdict != "not tested")
        }
        without = (rope for rope in self.ropes if (rope.layer, rope.part) not in tested)
        return tuple(str(place) for place in (*without, *self.extra))

    @property
    def complete(self) -> bool:
        """Whether each rope of a model has a verdict. Always true for a function."""
        return not self.untested

    @property
    def right(self) -> bool:
        """Whether no check found a fault."""
        return not self.faults

    @property
    def faults(self) -> tuple[str, ...]:
        """The identifiers of all faults, each once."""
        return tuple(dict.fromkeys(check.fault for check in self.checks if check.fault))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, with the verdict of all checks together.

        JSON has no NaN and no infinity: such numbers are None.
        """
        checks = [
            {
                "name": check.name,
                "verdict": check.verdict,
                "says": check.says,
                "fault": check.fault,
                "numbers": {k: v if math.isfinite(v) else None for k, v in check.numbers.items()},
                "where": check.where,
                "cause": check.cause,
            }
            for check in self.checks
        ]
        return {
            "target": self.target,
            "form": self.form,
            "right": self.right,
            "complete": self.complete,
            "untested": list(self.untested),
            "faults": list(self.faults),
            "checks": checks,
        }

    def with_verdict(self, verdict: Verdict) -> Iterator[Check]:
        """Yield the checks with this verdict."""
        return (check for check in self.checks if check.verdict == verdict)


def right(name: str, says: str, **numbers: float) -> Check:
    """Return a check that found nothing wrong."""
    return Check(name, "right", says, None, numbers)


def fault(name: str, fault: str, says: str, *, mistake: str = "", **numbers: float) -> Check:
    """Return a check that found a fault."""
    return Check(name, "fault", says, fault, numbers, mistake)


def remark(name: str, says: str, **numbers: float) -> Check:
    """Return a check whose result is worth knowing and not a fault."""
    return Check(name, "remark", says, None, numbers)


def not_tested(name: str, says: str) -> Check:
    """Return a check that could not be made, with the reason."""
    return Check(name, "not tested", says)


ERRORS = ("error", "drift", "angle")  # numbers that differ between layers with one mistake


def by_layers(report: Report) -> list[Check]:
    """Return the checks, with one for all layers that have the same name, verdict and fault.

    It has the places of all of them. If there are numbers, what it says is that of the check with
    the largest error; otherwise all say the same. Faults share one only if they are the same apart
    from their error: another theta is another fault.
    """
    groups: dict[tuple[object, ...], list[Check]] = {}
    for check in report.checks:
        same: object = check.says
        if check.numbers:
            others = [(k, f"{v:.3g}") for k, v in check.numbers.items() if k not in ERRORS]
            same = (check.mistake, *others) if check.fault else None
        located = any(place.layer is not None for place in check.places)
        groups.setdefault((check.name, check.verdict, check.fault, same, located), []).append(check)
    joined = []
    for checks in groups.values():
        worst = max(checks, key=lambda check: check.numbers.get("error", 0.0))
        places = tuple(place for check in checks for place in check.places)
        of_layers = any(place.layer is not None for place in places)
        joined.append(replace(worst, places=places) if of_layers else worst)
    return joined
