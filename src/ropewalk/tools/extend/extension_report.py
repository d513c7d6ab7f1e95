"""An extension for a reader: titles with rows of cells for a terminal, and a picture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ropewalk.checks import ranges
from ropewalk.figures.wavelength_pictures import wavelengths_by_pair
from ropewalk.tools.extend.extend import NEAR
from ropewalk.tools.extend.extension import Extension, Fragment, RuleResult
from ropewalk.tools.extend.recommended_rule import REMARKS
from ropewalk.tools.inspect.inspect_report import fields_text
from ropewalk.tools.inspect.rope_facts import rule_fields

Rows = list[tuple[str, ...]]


def summary_blocks(found: Extension) -> Iterator[tuple[str, Rows]]:
    """Yield the lengths, the table of rules for each rope, refused rules and the recommendation."""
    yield (
        f"{found.source}: {found.model_type or 'no model type'}, {found.original_length:,} -> "
        f"{found.to:,} tokens, factor s = {found.factor:.4g}",
        [("note", f"{note}.") for note in found.notes],
    )
    ropes = found.results[0].numbers
    for place, rope in enumerate(ropes):
        title = f"theta {rope.theta:,.10g}, {len(rope.growth)} pairs"
        if len(ropes) > 1:
            title = f"layers {ranges(rope.layers)}: {title}"
        yield title, list(_table(found.results, place))
    used: Rows = [
        (each.method, fields_text(rule_fields(each.rule)) + REMARKS.get(each.method, ""))
        for each in found.results
        if each.usable
    ]
    if used:
        yield "parameters", used
    refused: dict[str, list[str]] = {}
    for each in found.results:
        if each.refused:
            refused.setdefault(each.refused, []).append(each.method)
    if refused:
        yield "not for this model", [(", ".join(of), f"{why}.") for why, of in refused.items()]
    advice = found.recommendation
    rows: Rows = [("why", advice.reason)]
    rows += [("limits" if not i else "", limit) for i, limit in enumerate(advice.limits)]
    yield f"try first: {advice.method or 'no rule'}", rows


def size_blocks(results: tuple[RuleResult, ...]) -> Iterator[tuple[str, Rows]]:
    """Yield a table of rules for each axis that grows."""
    for place, axis in enumerate(results[0].numbers):
        title = f"{axis.layer_types[0]}: {axis.original:,} -> {axis.to:,} patches"
        yield f"{title}, factor s = {axis.to / axis.original:.4g}", list(_table(results, place))


def _table(results: tuple[RuleResult, ...], place: int) -> Iterator[tuple[str, ...]]:
    rope = results[0].numbers[place]
    shown = (min(NEAR, rope.to), rope.original, rope.to)
    places = [rope.distances.index(each) for each in shown]
    where = ", ".join(f"{each:,}" for each in shown)
    yield (
        "method", "wavelengths grow", "pairs beyond training", "amplitude",
        f"mean score at distance {where}",
    )  # fmt: skip
    for result in results:
        if result.numbers and not result.refused:
            numbers = result.numbers[place]
            share = f"{len(numbers.leaving)} of {len(numbers.growth)} ({numbers.share_leaving:.0%})"
            both = (min(numbers.growth), max(numbers.growth))
            ends = [f"{end:,.0f}" if end >= 1000 else f"{end:.3g}" for end in both]
            growth = f"{' to '.join(dict.fromkeys(ends))} times"
            scores = ", ".join(f"{numbers.score_after[i]:.3f}" for i in places)
            yield result.method, growth, share, f"{numbers.amplitude:.4g}", scores


def fragment_title(fragment: Fragment, method: str | None) -> str:
    """Return "vllm 0.11.1 and later, yarn (not run)"."""
    tested = "run by ropewalk's tests" if fragment.run else "from its documentation, not run"
    return f"{fragment.engine} {fragment.version}, {method}: {tested}"


def fragment_rows(fragment: Fragment) -> Rows:
    """Return what to say about a fragment, before its text."""
    rows: Rows = [("where", fragment.place)]
    if fragment.remove:
        rows.append(("remove", ", ".join(fragment.remove)))
    rows += [("ignores", each) for each in fragment.ignores]
    rows += [("warning", f"{each}.") for each in fragment.warnings]
    if fragment.text is None:
        rows.append(("", "nothing to paste"))
    return rows


def save_rules(path: Path, found: Extension) -> None:
    """Save the wavelengths of the first rope under each rule, as PNG or SVG."""
    lines = {
        each.method: each.numbers[0].wavelengths_after
        for each in found.results
        if each.numbers and not each.refused
    }
    contexts = {
        f"original context {found.original_length:,}": found.original_length,
        f"new context {found.to:,}": found.to,
    }
    dashed = [name for name in lines if name == "none"]
    wavelengths_by_pair(lines, contexts, dashed=dashed).save(path)
