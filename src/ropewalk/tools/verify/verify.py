"""`verify`: find out what a rope really does, from the vectors that it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from typing import Any, TypeAlias

import torch
from torch import nn

from ropewalk.checks import check_int, shown
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.scaling import Linear
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.verify import axis_checks, call_checks, function_checks
from ropewalk.tools.verify.call_form import Target, TargetError, resolve
from ropewalk.tools.verify.frequency_mistakes import fit_theta, other_ropes
from ropewalk.tools.verify.key_verdicts import is_xpos, same_for_keys
from ropewalk.tools.verify.measured_rotation import (
    Structure,
    near_positions,
    rounded_tables,
    served_matrices,
    slopes,
    table_end,
)
from ropewalk.tools.verify.moved_keys import check_moves, spec_of_moves
from ropewalk.tools.verify.rotation_verdicts import check_rotation, compare, describe
from ropewalk.tools.verify.verify_model import max_positions, takes_tokens, verify_model
from ropewalk.tools.verify.verify_report import Check, Report, fault, not_tested, remark


@dataclass(frozen=True)
class Specified:
    """The specification of one layer.

    others: those of the model's other layers that differ, by name. max_positions: how many
    positions the config promises, or None.
    """

    spec: RotarySpec | None = None
    others: Mapping[str, RotarySpec] = field(default_factory=dict)
    max_positions: int | None = None


def read_like(like: object, layer: int | None = None) -> Specified:
    """Return what `like` specifies. Raises ValueError for a layer without rope."""
    if like is None or isinstance(like, (RotarySpec, LayerSpec)):
        if layer is not None:
            when = "without like" if like is None else "if like is one layer's"
            raise ValueError(f"layer must be left out {when}, got {shown(layer)}")
        return Specified(_rope(like, "like") if isinstance(like, LayerSpec) else like)
    model, promised = like, None
    if not isinstance(model, ModelSpec):
        if not isinstance(like, (str, PathLike, Mapping)) and not hasattr(like, "to_dict"):
            raise TypeError(
                "like must be a RotarySpec, LayerSpec, ModelSpec or a model's config, "
                f"got {shown(like)}"
            )
        model = ModelSpec.from_config(like)  # type: ignore[arg-type]
        promised = max_positions(like)
    if layer is None:
        layer = next((i for i, each in enumerate(model.layers) if each.rope is not None), 0)
    spec = _rope(model.layer(layer), f"layer {layer}")
    return Specified(spec, other_ropes(model, spec), promised)


def _rope(layer: LayerSpec, name: str) -> RotarySpec:
    if layer.rope is None:
        raise ValueError(f"{name} must have a rope, got a layer without one (NoPE)")
    return layer.rope


Like: TypeAlias = RotarySpec | LayerSpec | ModelSpec | str | PathLike[str] | Mapping[str, Any]
SomeChecks: TypeAlias = Callable[[Target], Check | list[Check]]
STATEFUL = 1_024  # positions that no length-dependent rule changes


def verify(
    target: Callable[..., Any],
    *,
    like: Like | None = None,
    layer: int | None = None,
    length: int | None = None,
    form: str | None = None,
    axes: str | None = None,
    head_dim: int | None = None,
) -> Report:
    """Return what a rotation does, one check a line, and which mistake explains what is wrong.

    target: a function or module that rotates q, or q and k, or returns cos and sin. Its argument
        names say what each is: x, q, k, v, positions, offset, cos, sin, freqs_cis, freqs; or k,
        old_positions, new_positions if it moves rotated keys. For a model that takes tokens, each
        layer is verified; see `verify_model`.
    like: what it should do: a spec, or a model's config (path, dict). None: any consistent rotation
        is right, in any pairing and with any theta; for a model, its own config.
    layer: the layer of `like`, counted from 0. None: the first that has a rope.
    length: the length that a length-dependent rule assumes. None: that of the test calls.
    form: the roles of the arguments, if their names do not say them, as in "q,k,positions".
    axes: "bhsd" or "bshd". head_dim: the size of heads. Both are found by trial if absent.

    Angles are read from rotated vectors, never from tables. Raises ValueError or TypeError if the
    target cannot be called, or no call of it works, because another form, order of axes or size of
    heads may be the right one; a target that fails later has a fault instead.

    Example:
        >>> from ropewalk import RotaryEmbedding, RotarySpec, tools
        >>> rope = RotaryEmbedding(RotarySpec(head_dim=64, theta=500_000.0))
        >>> report = tools.verify(rope, like=RotarySpec(head_dim=64))
        >>> report.faults
        ('theta',)
    """
    if isinstance(target, nn.Module) and takes_tokens(target):
        if layer is not None or form or axes or head_dim:
            raise ValueError(
                "layer, form, axes and head_dim must be left out for a model: all its layers are "
                "verified against the model's config, or like"
            )
        return verify_model(target, like, length=length)  # type: ignore[arg-type]
    specified = read_like(like, layer)
    spec = specified.spec
    if length is not None:
        check_int("length", length, 1)
        if spec is None or not spec.needs_length:
            raise ValueError(
                f"length must be left out: no frequencies of like depend on it, got {length}"
            )
    unit = 1.0
    if spec is not None and spec.continuous:
        unit = _unit(spec)
        spec = replace(spec, scaling=Linear(1 / unit)) if unit < 1 else spec
    with torch.no_grad():
        resolved = resolve(
            target, form=form, axes=axes, head_dim=head_dim, spec=spec, length=length, unit=unit
        )
        specified = replace(specified, spec=resolved.spec)
        if spec is not None and resolved.moves:
            specified = replace(specified, spec=spec_of_moves(spec, length))
        checks = tuple(_checks(resolved, specified, length))
    return Report(getattr(target, "__name__", type(target).__name__), resolved.form, checks)


def _unit(spec: RotarySpec) -> float:
    """Return coordinates so near each other that no pair turns by more than 2 radians (LTX)."""
    fastest = 1.0 if spec.scaling else float(spec.inverse_frequencies().abs().max())
    return min(1.0, 2.0 ** math.floor(math.log2(2 / fastest)))


NEAR_ROPE, NO_RULE = "the rope of near positions", "near angles follow no known theta and factor"
RETURNS, CALLERS = "the target returns tables", "the caller's tables decide"
#: Why checks cannot be made of a target that returns tables, or that gets ours.
UNTESTED_RETURNING = {
    "input": f"{RETURNS} and gets no q and k to change",
    **dict.fromkeys(("batch", "heads", "gradient"), RETURNS),
}
UNTESTED_GETTING = {"positions": "the target gets tables", "bfloat16 vectors": CALLERS}


def _attempt(name: str, check: SomeChecks, target: Target) -> list[Check]:
    """Check a target as it was before its first call; one that fails has a fault that says how."""
    untested = UNTESTED_RETURNING if target.makes_tables else {}
    if target.tables_of is not None:
        untested = UNTESTED_GETTING
    if name in untested:
        return [not_tested(name, untested[name])]
    try:
        checks = check(target.fresh())
    except TargetError as error:
        return [fault(name, "fails", str(error))]
    return [checks] if isinstance(checks, Check) else checks


def _checks(target: Target, specified: Specified, length: int | None) -> Iterator[Check]:
    """Yield all checks; those that need a rotation come only if there is one."""
    axes = call_checks.check_axes(target)
    yield from axes
    if any(check.fault for check in axes):
        return
    if target.moves:
        (moves,) = _attempt("moves", check_moves, target)
        yield moves
        if moves.fault == "positions-ignored":
            return
    (linear,) = _attempt("linear", function_checks.check_linear, target)
    yield linear
    yield from _attempt("input", function_checks.check_input, target)
    if linear.fault and linear.fault != "half-precision-angles":
        return
    (batch,) = _attempt("batch", function_checks.check_batch, target)
    yield batch
    if batch.fault:  # matrices are measured in batches
        yield not_tested("rotates pairs", "rows of a batch are not independent")
        return
    yield from _attempt("heads", call_checks.check_heads, target)
    yield from _attempt("inputs", function_checks.check_inputs, target)
    (where,) = _attempt("positions", function_checks.check_positions, target)
    twice = partial(function_checks.check_history, spec=specified.spec)
    history = _attempt("called twice", twice, target)
    stateful = any(check.fault for check in history)
    measured = replace(target, ignores_positions=True) if where.fault else target
    for check in _rotation(measured, specified, length, STATEFUL if stateful else 2**17):
        if check.fault != "rounded-tables":
            yield check
        elif target.makes_tables and not {torch.bfloat16, torch.float16} & target.dtypes:
            yield remark(check.name, f"{check.says} when they are returned, not when they are made")
        elif not linear.fault:  # the tables of rounded vectors cannot be told
            yield check
    yield where
    if not where.fault:
        yield from _attempt("one token", call_checks.check_one_token, target)
        yield from _attempt("rows of positions", call_checks.check_rows, target)
    yield from history
    yield from _attempt("gradient", function_checks.check_gradient, target)
    yield from _attempt("bfloat16 vectors", function_checks.check_bfloat16, target)
    yield from _attempt("module in bfloat16", function_checks.check_rounded_module, target)
    if target.steps:
        yield from _attempt("under autocast", function_checks.check_autocast, target)


def _rotation(
    target: Target, specified: Specified, length: int | None, most: int
) -> Iterator[Check]:
    spec = specified.spec
    positions = near_positions(target, min(most, length or most))
    try:
        measured = served_matrices(target, positions)
    except TargetError as error:
        yield fault("rotates pairs", "fails", str(error))
        return
    first = target.rotates[0]
    positions = positions[: len(measured[first])]
    basics, structure = check_rotation(measured[first], positions)
    xpos = structure is not None and "k" in measured and is_xpos(measured["k"], structure)
    inverse = remark("norms", "keys change their lengths inversely to queries, as in xPos")
    yield from (inverse if xpos and check.name == "norms" else check for check in basics)
    if structure is None:
        return
    end = table_end(structure) or 0
    ends_early = end > 2
    if ends_early:
        yield function_checks.check_end(target, structure, end, specified.max_positions)
        structure = structure.upto(end)
    checks, used = describe(structure), None
    if spec is not None:
        checks, used = _compare_at_lengths(structure, specified, length)
    if spec is not None and spec.axis_count > 1:
        same_pairs = not any(x.fault for x in checks if x.name in ("pairing", "rotary part"))
        each = axis_checks.check_each_axis(target, spec, measured, positions, same_pairs)
        yield from (found := list(each))
        if any(check.fault for check in found):
            yield not_tested("all axes together", "one of them alone is wrong")
            return
    yield from _without_untested(target, checks, xpos)
    wrong = {check.name: check.fault for check in checks if check.fault}
    exact, whose = spec, "the specification"
    # Rounded frequencies too are those of the specification: far positions show how far.
    rounded = wrong.get("frequencies") in (None, "half-precision-angles")
    if spec is None or not rounded or "rotary part" in wrong:
        exact = inferred(structure)
        no_rule = NO_RULE + "; see --like" * (spec is None)
        whose = no_rule if exact is None else NEAR_ROPE
    if spec is None and target.moves and (slopes(structure) < 0).all():
        says = "by old less new positions: right only if the rope itself rotates backwards"
        yield remark("sign of moves", f"{says}; see --like")
    with_keys = "k" in target.rotates and first != "k" and not xpos
    if with_keys:
        keys = same_for_keys(measured["k"][: len(structure.positions)], structure)
        with_keys = not keys.fault
        yield keys
    if ends_early:
        yield not_tested("far positions", "beyond the end of the table")
    drifts = xpos or any(check.fault == "norm-drift" for check in basics)
    for last in function_checks.FAR:
        if most > STATEFUL and not drifts and not ends_early and last <= (length or last):
            yield function_checks.check_far(
                target,
                structure,
                exact,
                last,
                serves=specified.max_positions,
                length=used,
                whose=whose,
                with_keys=with_keys,
            )


def _compare_at_lengths(
    structure: Structure, specified: Specified, length: int | None
) -> tuple[list[Check], int | None]:
    """Compare, and return the length at which the fewest checks failed, None if it is the call's.

    Without a length, a length-dependent rule may have used that of the call or a fixed one.
    """
    spec = specified.spec
    assert spec is not None
    if not spec.needs_length:
        return compare(structure, spec, specified.others), None
    original = int(getattr(spec.scaling, "original_length", 1))
    of_call = int(structure.positions.max()) + 1
    lengths = (length,) if length else (of_call, original, 1)
    tried = [(compare(structure, spec, specified.others, at), at) for at in lengths]
    checks, best = min(tried, key=lambda made: _wrong_and_unnamed(made[0]))
    return checks, best if length or best != of_call else None


def _wrong_and_unnamed(checks: list[Check]) -> tuple[int, int]:
    faults = [check for check in checks if check.fault]
    return len(faults), sum(not check.mistake for check in faults)


def _without_untested(target: Target, checks: list[Check], xpos: bool) -> Iterator[Check]:
    """Yield the checks, without verdicts on what tables, their caller or xPos decide."""
    names: tuple[str, ...]
    names, why = ("amplitude",) if xpos else (), "lengths change with the position"
    if target.makes_tables:
        names, why = ("pairing", "rotary part"), "tables have no pairs"
    if target.tables_of is not None:
        names, why = ("frequencies", "scores relative", "amplitude"), CALLERS
    yield from (not_tested(x.name, why) if x.name in names else x for x in checks)


def inferred(structure: Structure) -> RotarySpec | None:
    """Return the plain or linear rope that explains the measured frequencies, or None."""
    frequencies = slopes(structure).abs()
    if rounded_tables(structure) is not None or len(frequencies) < 3 or (frequencies <= 0).any():
        return None
    theta, factor, error = fit_theta(frequencies)
    plain = abs(factor - 1) < 2e-6  # as close as float32 angles show
    if error > 2e-5 or not (plain or factor > 1):
        return None
    scaling = None if plain else Linear(factor)
    return RotarySpec(2 * len(frequencies), theta=theta, scaling=scaling)
