"""`extend`: from a config and a target length to numbers, a recommendation and fragments.

The numbers of a rule: wavelengths, pairs whose angles training never reached, scores by distance.
"""

from __future__ import annotations

import math
from os import PathLike

import torch

from ropewalk.checks import ArgumentNeededError, check_int, ranges, shown
from ropewalk.rotary.config.config_json import MAX_LENGTH, JsonObject
from ropewalk.rotary.scaling import Scaling
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.extend.config_block import (
    TextConfig,
    scales,
    section_keys,
    text_config,
    with_rule,
)
from ropewalk.tools.extend.engine_fragments import fragments
from ropewalk.tools.extend.extension import Extension, Numbers, RuleResult
from ropewalk.tools.extend.recommended_rule import (
    METHODS,
    OWN_CODE,
    check_method,
    make_rule,
    recommend,
    why_not,
)
from ropewalk.tools.inspect.inspect_model import find_source, inspect, read_with_repairs
from ropewalk.tools.inspect.rope_facts import LayerKind, ModelReport, wavelengths, without_rule

QWEN3_STATED, QWEN3_TRAINED = 40_960, 32_768


def extend(
    config: str | PathLike[str] | JsonObject,
    to: int,
    method: str | None = None,
    *,
    original: int | None = None,
    pairing: str | None = None,
) -> Extension:
    """Return what each scaling rule does to a model's rope if its context grows to `to` tokens.

    config: a config.json, a model's folder, a name on the Hugging Face hub, the contents of a
    config.json, or a transformers config.
    method: "linear", "ntk", "dynamic", "yarn", "llama3" or "longrope": only this rule, and the
    fragments for engines have it. None or "all": all rules; the fragments have the recommended one.
    original: the context in training, if the config does not state it or states another.
    pairing: "half" or "interleaved", for a model type that is not known.

    A rule that the config has already is replaced, and factors are relative to the original
    length. Raises ValueError if `to` is not longer than the context of today, if the code of the
    model type does not follow the method, or if the original length is not known.

    Example:
        >>> from ropewalk import tools
        >>> config = {"model_type": "qwen3", "num_hidden_layers": 2, "head_dim": 128}
        >>> config |= {"rope_theta": 1000000.0, "max_position_embeddings": 32768}
        >>> found = tools.extend(config, 131072)
        >>> found.factor, found.recommendation.method
        (4.0, 'yarn')
        >>> [(each.method, len(each.numbers[0].leaving)) for each in found.results if each.numbers]
        [('none', 24), ('linear', 0), ('ntk', 23), ('dynamic', 0), ('yarn', 0), ('llama3', 0)]
    """
    check_int("to", to, 2)
    if to > MAX_LENGTH:
        raise ValueError(f"to must be at most {MAX_LENGTH:,}, got {to:,}")
    wanted = check_method(method)
    source = find_source(config)
    if source.config is None:
        raise ValueError(
            f"config must be a config.json, got the GGUF file {source.name}; pass the config.json "
            f"of the model that it was converted from"
        )
    reading = read_with_repairs(source.config, pairing)
    report = inspect(reading.config, pairing=pairing)
    text = text_config(reading.config, reading.model, report.max_length_key, pairing)
    kinds, kept = _scaled_kinds(report, text)
    length, today = _lengths(kinds, report, original)
    _check_target(to, length, today)
    factor = to / length
    current = kinds[0].rope.spec.scaling if kinds[0].rope else None
    if wanted is not None:
        _check_usable(wanted, why_not(wanted, text.model_type, current))
    plain = [numbers(kind, without_rule(kind.rope.spec), length, to) for kind in kinds if kind.rope]
    results = [RuleResult("none", None, tuple(plain))]
    results += [_result(name, kinds, text, length, to, current) for name in METHODS]
    recommendation = recommend(tuple(results), text.model_type, factor, current, to / today)
    if wanted is not None:
        results = [result for result in results if result.method in ("none", wanted)]
        _check_usable(wanted, results[-1].refused)
    chosen = wanted or recommendation.method
    rule = next((result for result in results if result.method == chosen), None)
    return Extension(
        source=source.name,
        model_type=reading.model.model_type,
        original_length=length,
        current_length=today,
        to=to,
        factor=factor,
        section_path=text.path,
        results=tuple(results),
        recommendation=recommendation,
        method=chosen,
        fragments=() if rule is None else fragments(text, rule, length, to),
        notes=tuple(_notes(report, text, kept, current, length, original)),
    )


def _scaled_kinds(report: ModelReport, text: TextConfig) -> tuple[list[LayerKind], list[LayerKind]]:
    """Return the layers of the text whose rope a longer context changes, and the others."""
    changed: list[LayerKind] = []
    kept: list[LayerKind] = []
    for kind in report.kinds:
        if kind.stack == "text" and kind.rope is not None and kind.layers:
            (changed if scales(text.model.layers[kind.layers[0]], text) else kept).append(kind)
    if not changed:
        raise ValueError(
            f"config must be of a model whose text has a rope that can be scaled, "
            f"got model_type {shown(report.model_type)}; images and video take sizes in place of to"
        )
    return changed, kept


def _lengths(kinds: list[LayerKind], report: ModelReport, original: int | None) -> tuple[int, int]:
    """Return the original length and the context that the config states today."""
    ropes = [kind.rope for kind in kinds if kind.rope is not None]
    stated = next((rope.original_length for rope in ropes if rope.original_length), None)
    longest = [rope.extended_length or rope.original_length or 0 for rope in ropes]
    today = max([*longest, report.max_length or 0])
    if original is not None:
        check_int("original", original, 2)
        if today and original > today:
            raise ValueError(
                f"original must be at most the context that the config states, {today:,}, "
                f"got {original:,}"
            )
        return original, today or original
    if stated is None:
        rule = ropes[0].rule
        why = f"the rule {rule} of the config does not state it" if rule else "the config has none"
        raise ArgumentNeededError(
            "",
            f"{{argument}} must be given, the context in training before any rule: {why}",
            "original",
        )
    return stated, today


def _check_target(to: int, original: int, today: int) -> None:
    if to <= original:
        raise ValueError(
            f"to must be longer than the original context, {original:,}, got {to:,}; "
            f"no rule is needed for a shorter one"
        )
    if to <= today:
        raise ValueError(
            f"to must be longer than the context that the config states, {today:,}, got {to:,}; "
            f"the model's own rule already reaches it, so keep the config as it is"
        )


def _check_usable(method: str, refused: str | None) -> None:
    if refused is not None:
        raise ValueError(f"method {method} cannot be used: {refused}")


def _result(
    method: str, kinds: list[LayerKind], text: TextConfig, original: int, to: int,
    current: Scaling | None,
) -> RuleResult:  # fmt: skip
    reason = why_not(method, text.model_type, current)
    if method == "longrope" and reason is not None:
        return RuleResult(method, None, refused=reason)
    try:
        rule = make_rule(method, to / original, original, current)
        ruled = tuple(
            numbers(kind, with_rule(kind.rope.spec, rule, text), original, to)
            for kind in kinds
            if kind.rope
        )
    except ValueError as error:
        return RuleResult(method, None, refused=str(error))
    if reason is not None:
        return RuleResult(method, rule, ruled, refused=reason)
    try:
        return RuleResult(method, rule, ruled, section_keys(text, rule, to))
    except ValueError:
        why = f"a config of model type {text.model_type} cannot describe it"
        return RuleResult(method, rule, ruled, refused=why)


class OriginalNote(str):
    """A note with the advice to pass another original length, as the command line words it.

    what: the note without the advice. original: the length to pass.
    """

    what: str
    original: int

    def __new__(cls, what: str, original: int) -> OriginalNote:
        note = super().__new__(cls, f"{what}: pass --original {original}")
        note.what, note.original = what, original
        return note


def _notes(
    report: ModelReport, text: TextConfig, kept: list[LayerKind],
    current: Scaling | None, length: int, given: int | None,
) -> list[str]:  # fmt: skip
    notes: list[str] = []
    if current is not None:
        notes.append(
            f"the config has the rule {type(current).__name__}; each rule here replaces it, with "
            f"the factor relative to the original {length:,}. If the model was trained with its "
            f"rule, another one changes also what it does at the lengths of today"
        )
    stated = report.max_length
    if given is not None and stated is not None and given != stated and current is None:
        notes.append(f"the original length is {given:,} as passed; the config states {stated:,}")
    if given is None and str(text.model_type).startswith("qwen3") and length == QWEN3_STATED:
        notes.append(
            OriginalNote(
                f"the config states {length:,}, but Qwen3's model cards name {QWEN3_TRAINED:,} as "
                f"the context in training",
                QWEN3_TRAINED,
            )
        )
    for kind in kept:
        types = ", ".join(kind.layer_types) or "another type"
        notes.append(
            f"layers {ranges(kind.layers)} ({types}) keep their rope: their attention sees only a "
            f"window, or the model's code does not scale them"
        )
    if text.conventions is None or text.model_type in OWN_CODE:
        notes.append(
            f"transformers has no code for model type {text.model_type}, so it is not known which "
            f"rules its code follows"
        )
    return notes


NEAR = 16  # a near distance, in tokens
POINTS = 48  # distances on the logarithmic grid
ROUNDING = 1e-9  # a pair that is divided by exactly the factor stays within the angles of training


def numbers(kind: LayerKind, after: RotarySpec, original: int, to: int) -> Numbers:
    """Return the numbers of one rope. after: the rope with the rule."""
    before = without_rule(after)
    plain, ruled = wavelengths(before, None), wavelengths(after, to)
    # In training, pair i reached original / plain[i] turns; now it reaches to / ruled[i].
    leaving = tuple(
        pair
        for pair, (own, longer) in enumerate(zip(plain, ruled, strict=True))
        if original / own < 1 and to / longer > original / own * (1 + ROUNDING)
    )
    # About equally far apart on a logarithmic axis.
    steps = (min(to, round(to ** (i / (POINTS - 1)))) for i in range(POINTS))
    distances = tuple(sorted({*steps, min(NEAR, to), original, to}))
    return Numbers(
        layers=kind.layers,
        layer_types=kind.layer_types,
        original=original,
        to=to,
        theta=after.theta,
        wavelengths_before=plain,
        wavelengths_after=ruled,
        growth=tuple(b / a if a < math.inf else 1.0 for a, b in zip(plain, ruled, strict=True)),
        leaving=leaving,
        share_leaving=len(leaving) / len(plain),
        amplitude=after.amplitude_at(to),
        distances=distances,
        score_before=mean_scores(before, distances, to),
        score_after=mean_scores(after, distances, to),
    )


def mean_scores(spec: RotarySpec, distances: tuple[int, ...], length: int) -> tuple[float, ...]:
    """Return the mean of cos(distance · f) over all pairs, at each distance."""
    frequencies = spec.inverse_frequencies(length)
    angles = torch.tensor(distances, dtype=torch.float64)[:, None] * frequencies
    return tuple(angles.cos().mean(dim=1).tolist())
