"""What `verify` returns: one check a line, with its verdict and numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from ropewalk.tools.verify.faults import FAULTS

Verdict = Literal["right", "fault", "remark", "not tested"]


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    name: what was checked, as in "pairing". says: the result in words. fault: a key of `FAULTS` if
    the verdict is "fault", else None. numbers: what was measured. where: the layer, or "".
    """

    name: str
    verdict: Verdict
    says: str
    fault: str | None = None
    numbers: Mapping[str, float] = field(default_factory=dict)
    where: str = ""

    @property
    def cause(self) -> str:
        """The likely cause of a fault, in words, or an empty string."""
        return FAULTS[self.fault].cause if self.fault else ""


@dataclass(frozen=True)
class Report:
    """All checks of one target.

    ropes: the queries and keys of a model that have a rope, as in "layer 3, q". extra: layers that
    the model has and the specification has not.

    Example:
        >>> from ropewalk import RotaryEmbedding, RotarySpec, tools
        >>> report = tools.verify(RotaryEmbedding(RotarySpec(head_dim=8)), like=RotarySpec(8))
        >>> report.right, report.faults
        (True, ())
    """

    target: str
    form: str
    checks: tuple[Check, ...]
    ropes: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def untested(self) -> tuple[str, ...]:
        """The ropes of a model whose rotation has no verdict, as in "layer 3, q"."""
        tested = [
            check.where + ","
            for check in self.checks
            if check.fault or (check.name == "frequencies" and check.verdict != "not tested")
        ]
        without = [rope for rope in self.ropes if not any(t.startswith(rope + ",") for t in tested)]
        return (*without, *self.extra)

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
                **asdict(check),
                "numbers": {k: v if math.isfinite(v) else None for k, v in check.numbers.items()},
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


def fault(name: str, fault: str, says: str, **numbers: float) -> Check:
    """Return a check that found a fault."""
    return Check(name, "fault", says, fault, numbers)


def remark(name: str, says: str, **numbers: float) -> Check:
    """Return a check whose result is worth knowing and not a fault."""
    return Check(name, "remark", says, None, numbers)


def not_tested(name: str, says: str) -> Check:
    """Return a check that could not be made, with the reason."""
    return Check(name, "not tested", says)
