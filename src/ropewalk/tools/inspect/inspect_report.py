"""Reports of `inspect` for a terminal, as titles with rows of name and value, and as a picture.

The picture shows the wavelengths of each pair, next to the contexts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ropewalk.checks import ranges
from ropewalk.figures.wavelength_pictures import wavelengths_by_pair
from ropewalk.rotary.config.conventions import ARGUMENT, CLASS_DEFAULT, MODEL_TYPE, WHOLE_HEAD
from ropewalk.tools.inspect.cautions import pairing_words
from ropewalk.tools.inspect.differences import Comparison, LayerDifference
from ropewalk.tools.inspect.grids import AxisFacts
from ropewalk.tools.inspect.rope_facts import LayerKind, ModelReport, RopeFacts, Turns

Row = tuple[str, str]
Block = tuple[str, list[Row]]
ORIGINS = {
    MODEL_TYPE: "by the model type",
    ARGUMENT: "as passed",
    "architecture": "by the architecture",
    CLASS_DEFAULT: "not stated: default of the model's class",
    "default of llama.cpp": "not stated: default of llama.cpp",
}
SHOWN = 6  # entries of a list that are shown


def report_blocks(report: ModelReport) -> Iterator[Block]:
    """Yield a report: the model, each kind of layer, and the warnings."""
    context = "" if report.axes else ", context not stated"
    if report.max_length is not None:
        context = f", context {report.max_length:,} ({report.max_length_key})"
    yield f"{report.source}: {report.model_type or 'no model type'}{context}", []
    titles: dict[tuple[Row, ...], list[str]] = {}  # equal layers are told once
    for kind in report.kinds:
        titles.setdefault(tuple(_kind_rows(kind, report.axes)), []).append(_title(kind))
    yield from (("; ".join(names), list(rows)) for rows, names in titles.items())
    warnings: list[Row] = []
    for caution in report.warnings:
        where = f"{caution.where}: " if caution.where else ""
        warnings += [(caution.id, f"{where}{caution.cause}."), ("", f"Way out: {caution.way_out}.")]
    count = len(report.warnings)
    yield (f"{count} warning{'s' * (count != 1)}" if count else "no warnings"), warnings


def _title(kind: LayerKind | LayerDifference) -> str:
    """Return "text, layers 0-31: full_attention"."""
    layers = f"layers {ranges(kind.layers)}" if kind.layers else "layers not stated"
    types = f": {', '.join(kind.layer_types)}" if kind.layer_types else ""
    return f"{kind.stack}, {layers}{types}"


def _kind_rows(kind: LayerKind, axes: Sequence[AxisFacts]) -> Iterator[Row]:
    if kind.rope is None:
        yield "rope", "none"
    else:
        yield from _rope_rows(kind.rope)
        if len(kind.rope.pairs_by_axis) > 1:
            yield from _axis_rows(axes, kind.rope)
        yield "softmax factor", f"{kind.softmax_factor:.6g}"
    if kind.query_temperature is not None:
        yield "query factor", fields_text(kind.query_temperature)
    if kind.indexer is not None:
        indexer = kind.indexer
        yield "indexer", f"pairing {pairing_words(indexer)}, {_part(indexer)}, same frequencies"


def _rope_rows(rope: RopeFacts) -> Iterator[Row]:
    origin = {name: ORIGINS.get(key, key) for name, key in rope.origins.items()}
    yield "pairing", _with(pairing_words(rope), origin.get("pairing") if rope.pairing else None)
    whole = rope.origins.get("rotary_dim") == WHOLE_HEAD and rope.rotary_dim == rope.head_dim
    yield "rotary part", _with(_part(rope), None if whole else origin.get("rotary_dim"))
    if len(rope.pairs_by_axis) > 1:
        yield "axes", f"{', '.join(map(str, rope.pairs_by_axis))} pairs follow each axis"
    yield "theta", _with(f"{rope.theta:,.10g}", origin.get("theta"))
    if rope.rule is None:
        yield "rule", "none"
    else:
        place = None if rope.origins.get("scaling") == CLASS_DEFAULT else origin.get("scaling")
        yield "rule", _with(f"{rope.rule}: {fields_text(rope.rule_fields)}", place)
    if rope.reverse:
        yield "direction", "reversed: position m rotates by -m·f"
    scores = f", so scores of rotated dimensions grow {rope.amplitude**2:.4g} times"
    scores = "" if math.isclose(rope.amplitude, 1.0) else scores
    yield "amplitude", f"{rope.amplitude:.6g} on cos and sin{scores}"
    plain, ruled = (_span(each) for each in (rope.plain_wavelengths, rope.wavelengths))
    without = "" if plain == ruled else " without the rule"
    yield "wavelengths", f"{plain} positions per turn{without}"
    if without:
        yield "", f"{ruled} with it"
    for turns in rope.turns:
        yield "full turn" if turns is rope.turns[0] else "", _turns_text(turns, rope)
    if rope.float32_error is not None:
        longest = rope.extended_length or rope.original_length
        yield "float32 angles", f"off by up to {rope.float32_error:.2g} rad within {longest:,}"


def _axis_rows(axes: Sequence[AxisFacts], rope: RopeFacts) -> Iterator[Row]:
    """Yield the wavelengths of each axis, and which pairs turn within the size that was asked."""
    for axis in axes:
        lengths = [rope.wavelengths[pair] for pair in axis.pairs]
        what = "positions" if axis.scaled or axis.name == "text" else "patches"
        text = f"{2 * len(lengths)} dimensions, {_pairs(axis.pairs)}: {_span(lengths)} {what}"
        text, grid = f"{text} per turn", f"{axis.patches:,} patches"
        if axis.patch_from:
            unit = f"latent {'frames' if axis.name == 'frames' else 'pixels'}"
            latent = _span([axis.patch * each for each in lengths])
            text += "" if axis.scaled else f", {latent} {unit} ({axis.patch_from} {axis.patch})"
            grid = f"{axis.patches * axis.patch:,} {unit} are {grid}"
        yield axis.name, f"{text}; {axis.scaled}" if axis.scaled else text
        if axis.patches:
            never = [pair for pair in axis.pairs if rope.wavelengths[pair] > axis.patches]
            turns = f"{_pairs(never)} make no full turn" if never else "each pair makes a full turn"
            yield "", grid if axis.scaled else f"{grid}, within which {turns}"


def _part(rope: RopeFacts) -> str:
    if rope.rotary_dim == rope.head_dim:
        return f"all {rope.head_dim} dimensions"
    first, last = rope.start, rope.start + rope.rotary_dim - 1
    return f"{rope.rotary_dim} of {rope.head_dim} dimensions, {first} to {last}"


def _span(wavelengths: Sequence[float]) -> str:
    finite = [wavelength for wavelength in wavelengths if wavelength != math.inf]
    longest = f"{max(finite):,.0f}" if max(finite) < 1e9 else f"{max(finite):.3g}"
    return f"{min(finite):,.3g} to {longest}"


def _turns_text(turns: Turns, rope: RopeFacts) -> str:
    context, count = f"{turns.length:,}", len(turns.full) + len(turns.less) + len(turns.still)
    if rope.rule is not None and (len(rope.turns) > 1 or turns.rule):
        if len(rope.turns) > 1:
            context = f"the {turns.context} context of {context}"
        context += ", with the rule" if turns.rule else ", without the rule"
    full = f"{_pairs(turns.full)} ({len(turns.full)} of {count})" if turns.full else "no pair"
    parts = [f"{full} within {context}"]
    parts += [f"{_pairs(turns.less)} never"] if turns.less else []
    parts += [f"{_pairs(turns.still)} do not rotate"] if turns.still else []
    return "; ".join(parts)


def _pairs(numbers: Sequence[int]) -> str:
    return f"pair{'s' * (len(numbers) != 1)} {ranges(numbers)}"


def fields_text(fields: Mapping[str, Any]) -> str:
    """Return fields as "factor 8, original_length 8,192"; long lists are cut."""
    return ", ".join(f"{name} {value_text(value)}" for name, value in fields.items())


def value_text(value: Any) -> str:
    """Return a value of a field as text."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.10g}" if value >= 1e3 else f"{value:.6g}"
    if isinstance(value, Mapping):
        return fields_text(value) or "none"
    if isinstance(value, (list, tuple)):
        shown = ", ".join(value_text(each) for each in value[:SHOWN])
        return f"({shown}, … {len(value)} values)" if len(value) > SHOWN else f"({shown})"
    return str(value)


def _with(text: str, note: str | None) -> str:
    return f"{text} ({note})" if note else text


def comparison_blocks(found: Comparison) -> Iterator[Block]:
    """Yield how two models differ."""
    first, second = found.first.source, found.second.source
    result = "the same ropes in all layers" if found.same else "the ropes differ"
    yield f"{first} and {second}: {result}", []
    for layers in found.layers:
        yield _title(layers), list(_difference_rows(layers))
    if found.notes:
        yield "the models", [("", f"{note}.") for note in found.notes]
    for report in (found.first, found.second):
        ids = ", ".join(dict.fromkeys(caution.id for caution in report.warnings))
        if ids:
            yield f"warnings of {report.source}: {ids}", []


def _difference_rows(layers: LayerDifference) -> Iterator[Row]:
    for field in layers.fields:
        first, second = field.first, field.second
        if isinstance(first, Mapping) and isinstance(second, Mapping):  # only what differs
            first = {k: v for k, v in first.items() if field.second.get(k) != v}
            second = {k: v for k, v in second.items() if field.first.get(k) != v}
        yield field.name, f"{value_text(first)} | {value_text(second)}"
    if layers.reason is not None:
        yield "angles", f"not compared: {layers.reason}"
    for i, angle in enumerate(layers.angles):
        radians = f"{angle.radians:,.0f}" if angle.radians >= 100 else f"{angle.radians:.3g}"
        text = f"differ by up to {radians} rad at distance {angle.distance:,} (pair {angle.pair})"
        yield "" if i else "angles", text
    if layers.one_radian_at is not None:
        yield "", f"a pair is off by 1 rad from distance {layers.one_radian_at:,} on"
    elif layers.angles:
        yield "", "no pair is off by 1 rad within the longest context"


def save_wavelengths(path: Path, reports: Sequence[ModelReport]) -> None:
    """Save the wavelengths of each kind of layer of the text, as PNG or SVG.

    Of a rope with a rule, those without it are dashed. Equal contexts have one line.
    """
    lines: dict[str, Sequence[float]] = {}
    dashed: list[str] = []
    labels: dict[int, str] = {}
    for report in reports:
        prefix = f"{Path(report.source).name}: " if len(reports) > 1 else ""
        ropes = [(kind, kind.rope) for kind in report.kinds if kind.rope is not None]
        for kind, rope in [pair for pair in ropes if pair[0].stack == "text"] or ropes:
            layers = ", ".join(kind.layer_types) or f"layers {ranges(kind.layers)}"
            name = f"{prefix}{kind.stack}, {layers}"
            if rope.plain_wavelengths != rope.wavelengths:
                dashed.append(f"{name}, without the rule")
                lines[dashed[-1]] = rope.plain_wavelengths
                name = f"{name}, {rope.rule}"
            lines[name] = rope.wavelengths
        for _, rope in ropes:
            both = {"original": rope.original_length, "extended": rope.extended_length}
            for which, length in both.items():
                if length is not None:
                    what = f"{which} context" if rope.extended_length else "context"
                    labels.setdefault(length, f"{what} {length:,}")
    if not lines:
        raise ValueError("--plot needs a model with a rope, got one without")
    contexts = {label: length for length, label in sorted(labels.items())}
    wavelengths_by_pair(lines, contexts, dashed=dashed).save(path)
