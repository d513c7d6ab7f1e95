"""What `verify` returns: one check a line, with its verdict, its numbers and its likely cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ropewalk.checks import joined, ranges
from ropewalk.tools.inspect.rope_facts import to_plain
from ropewalk.tools.verify.faults import FAULTS

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
    def layers(self) -> set[int]:
        """The numbers of the layers that it is about."""
        return {place.layer for place in self.places if place.layer is not None}

    @property
    def where(self) -> str:
        """The places in words: "layer 3, q", or "layers 0-4, 6; q and k", or ""."""
        if len(self.places) < 2 or not self.layers:
            return str(self.places[0]) if self.places else ""
        inside = list(dict.fromkeys(place.inside for place in self.places if place.inside))
        words = f"{'layers' if len(self.layers) > 1 else 'layer'} {ranges(self.layers)}"
        return f"{words}; {joined(inside)}" if inside else words

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
        of_all = ("target", "form", "right", "complete", "untested", "faults")
        of_each = ("name", "verdict", "says", "fault", "numbers", "where", "cause")
        facts: dict[str, Any] = {name: getattr(self, name) for name in of_all}
        facts["checks"] = [{x: getattr(check, x) for x in of_each} for check in self.checks]
        plain: dict[str, Any] = to_plain(facts)
        return plain

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


def not_tested(name: str, says: str, *places: Place) -> Check:
    """Return a check that could not be made, with the reason."""
    return Check(name, "not tested", says, places=places)


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
        key = (check.name, check.verdict, check.fault, same, bool(check.layers))
        groups.setdefault(key, []).append(check)
    joined = []
    for checks in groups.values():
        worst = max(checks, key=lambda check: check.numbers.get("error", 0.0))
        places = tuple(place for check in checks for place in check.places)
        joined.append(replace(worst, places=places) if worst.layers else worst)
    return joined
