"""Checks of many layers in few lines: layers with the same verdicts share one."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.tools.ranges import ranges
from ropewalk.tools.verify.results import Check, Report

ERRORS = ("error", "drift", "angle")  # numbers that differ between layers with one mistake


def by_layers(report: Report) -> list[Check]:
    """Return the checks, with one for all layers that have the same name, verdict and fault.

    Its `where` names all of them, as in "layers 0-4, 6; q and k". If there are numbers, what it
    says is that of the check with the largest error; otherwise all say the same. Faults share one
    only if they are the same apart from their error: another theta is another fault.
    """
    groups: dict[tuple[str, str, str | None, str, bool], list[Check]] = {}
    for check in report.checks:
        says = _kind(check) if check.numbers else check.says
        located = check.where.startswith("layer ")
        key = check.name, check.verdict, check.fault, says, located
        groups.setdefault(key, []).append(check)
    return [_joined(checks) for checks in groups.values()]


def _kind(check: Check) -> str:
    """Return what tells a fault from others of its name: its numbers and words, without errors."""
    if not check.fault:
        return ""
    words, off, _ = check.says.partition("off by")
    numbers = {k: f"{v:.3g}" for k, v in check.numbers.items() if k not in ERRORS}
    return f"{numbers} {words if off else ''}"


def _joined(checks: list[Check]) -> Check:
    worst = max(checks, key=lambda check: check.numbers.get("error", 0.0))
    if len(checks) == 1 or not worst.where.startswith("layer "):
        return worst
    parts = [check.where.removeprefix("layer ").split(", ") for check in checks]
    layers = sorted({int(part[0]) for part in parts})
    others = list(dict.fromkeys(", ".join(part[1:]) for part in parts if part[1:]))
    where = f"{'layers' if len(layers) > 1 else 'layer'} {ranges(layers)}"
    if others:
        where += f"; {_listed(others)}"
    return replace(worst, where=where)


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
