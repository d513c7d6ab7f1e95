"""`verify`: find out what a rope really does, from the vectors that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from os import PathLike
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ropewalk.checks import check_int, shown
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.model_spec import ModelSpec
from ropewalk.rotary.scaling import Linear
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.verify import function_checks
from ropewalk.tools.verify.call_form import Target, TargetError, resolve
from ropewalk.tools.verify.measured_rotation import (
    Structure,
    matrices,
    near_positions,
    slopes,
    table_end,
    upto,
)
from ropewalk.tools.verify.rotation_verdicts import (
    check_rotation,
    compare,
    describe,
    fit_theta,
    is_xpos,
    same_for_keys,
)
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
    if like is None:
        if layer is not None:
            raise ValueError(f"layer must be left out without like, got {shown(layer)}")
        return Specified()
    if isinstance(like, (RotarySpec, LayerSpec)):
        if layer is not None:
            raise ValueError(f"layer must be left out if like is one layer's, got {shown(layer)}")
        return Specified(like if isinstance(like, RotarySpec) else _rope(like, "like"))
    if isinstance(like, ModelSpec):
        return _of_model(like, layer, None)
    if not isinstance(like, (str, PathLike, Mapping)) and not hasattr(like, "to_dict"):
        raise TypeError(
            "like must be a RotarySpec, LayerSpec, ModelSpec or a model's config, "
            f"got {shown(like)}"
        )
    model = ModelSpec.from_config(like)  # type: ignore[arg-type]
    return _of_model(model, layer, max_positions(like))


def _of_model(model: ModelSpec, layer: int | None, most: int | None) -> Specified:
    if layer is None:
        layer = next((i for i, each in enumerate(model.layers) if each.rope is not None), 0)
    check_int("layer", layer, 0)
    spec = _rope(model.layer(layer), f"layer {layer}")
    others: dict[str, RotarySpec] = {}
    for index, each in enumerate(model.layers):
        if each.rope is not None and each.rope != spec and each.rope not in others.values():
            kind = f", {each.layer_type}" if each.layer_type else ""
            others[f"layer {index}{kind}"] = each.rope
    return Specified(spec, others, most)


def _rope(layer: LayerSpec, name: str) -> RotarySpec:
    if layer.rope is None:
        raise ValueError(f"{name} must have a rope, got a layer without one (NoPE)")
    return layer.rope


Like: TypeAlias = RotarySpec | LayerSpec | ModelSpec | str | PathLike[str] | Mapping[str, Any]
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
        names say what each is: x, q, k, v, positions, offset, cos, sin, freqs_cis, freqs. For a
        model that takes tokens, each layer is verified; see `verify_model`.
    like: what it should do: a spec, or a model's config (path, dict). None: any consistent rotation
        is right, in any pairing and with any theta; for a model, its own config.
    layer: the layer of `like`, counted from 0. None: the first that has a rope.
    length: the length that a length-dependent rule assumes. None: that of the test calls.
    form: the roles of the arguments, if their names do not say them, as in "q,k,positions".
    axes: "bhsd" or "bshd". head_dim: the size of heads. Both are found by trial if absent.

    Angles are read from rotated vectors, never from tables. Raises ValueError or TypeError if the
    target cannot be called; a target that fails later has a fault instead.

    Example:
        >>> from ropewalk import RotaryEmbedding, RotarySpec, tools
        >>> rope = RotaryEmbedding(RotarySpec(head_dim=64, theta=500_000.0))
        >>> report = tools.verify(rope, like=RotarySpec(head_dim=64))
        >>> report.faults
        ('theta',)
    """
    if isinstance(target, nn.Module) and takes_tokens(target):
        return _model(target, like, layer, length, form or axes or head_dim)
    specified = read_like(like, layer)
    spec = specified.spec
    if length is not None:
        check_int("length", length, 1)
        if spec is None or not spec.needs_length:
            raise ValueError(
                f"length must be left out: no frequencies of like depend on it, got {length}"
            )
    with torch.no_grad():
        resolved = resolve(
            target, form=form, axes=axes, head_dim=head_dim, spec=spec, length=length
        )
    checks = tuple(_checks(resolved, specified, length))
    name = getattr(target, "__name__", type(target).__name__)
    return Report(name, form_of(resolved), checks)


def _model(
    model: nn.Module, like: Like | None, layer: int | None, length: int | None, form: object
) -> Report:
    if layer is not None or form is not None:
        raise ValueError(
            "layer, form, axes and head_dim must be left out for a model: all its layers are "
            "verified against the model's config, or like"
        )
    if isinstance(like, (RotarySpec, LayerSpec)):
        raise TypeError(
            f"like must be a ModelSpec or a config for a model, got {type(like).__name__}"
        )
    return verify_model(model, like, length=length)


def form_of(target: Target) -> str:
    """Return how the target is called, as in "f(q, k, positions), (B, H, S, D)"."""
    order = "(B, H, S, D)" if target.seq_dim == -2 else "(B, S, H, D)"
    makes = ", returns cos and sin" if target.makes_tables else ""
    tried = "" if target.spec is not None else ", found by trial"
    return f"f({', '.join(target.roles)}) with {order}, D = {target.head_dim}{tried}{makes}"


def _checks(target: Target, specified: Specified, length: int | None) -> Iterator[Check]:
    """Yield all checks; those that need a rotation come only if there is one."""
    spec = specified.spec
    linear = _attempt("linear", lambda: function_checks.check_linear(target.fresh()))
    yield linear
    yield _attempt("input", lambda: function_checks.check_input(target.fresh()))
    if linear.fault and linear.fault != "half-precision-angles":
        return
    batch = _attempt("batch", lambda: function_checks.check_batch(target.fresh()))
    yield batch
    if batch.fault:  # matrices are measured in batches
        yield not_tested("rotates pairs", "rows of a batch are not independent")
        return
    yield _attempt("heads", lambda: function_checks.check_heads(target.fresh()))
    yield from _attempt_all("inputs", lambda: function_checks.check_inputs(target.fresh()))
    where = _attempt("positions", lambda: function_checks.check_positions(target.fresh()))
    history = _attempt_all(
        "called twice",
        lambda: function_checks.check_history(
            target.fresh(), spec is not None and spec.needs_length
        ),
    )
    stateful = any(check.fault for check in history)
    measured = replace(target, ignores_positions=True) if where.fault else target
    yield from _rotation(measured, specified, length, STATEFUL if stateful else 2**17)
    yield where
    if not where.fault:
        yield from _attempt_all("packed", lambda: function_checks.check_packed(target.fresh()))
    yield from history
    yield _attempt("gradient", lambda: function_checks.check_gradient(target.fresh()), grad=True)
    yield from _attempt_all("values", lambda: function_checks.check_values(target.fresh()))
    yield _attempt("bfloat16", lambda: function_checks.check_bfloat16(target.fresh()))
    yield _attempt("after bfloat16", lambda: function_checks.check_after_bfloat16(target.fresh()))


def _rotation(
    target: Target, specified: Specified, length: int | None, most: int
) -> Iterator[Check]:
    spec = specified.spec
    bound = length if spec is not None and spec.needs_length else None
    positions = near_positions(target, min(most, bound or most))
    try:
        measured = _measure(target, positions)
    except TargetError as error:
        yield fault("rotates pairs", "fails", str(error))
        return
    first = target.rotates[0]
    basics, structure = check_rotation(measured[first], positions[: len(measured[first])])
    xpos = structure is not None and "k" in measured and is_xpos(measured["k"], structure)
    if xpos:
        says = "keys change their lengths inversely to queries, as in xPos"
        basics = [remark("norms", says) if check.name == "norms" else check for check in basics]
    yield from basics
    if structure is None:
        return
    short = None
    if (end := table_end(structure)) is not None and end > 2:
        short = function_checks.check_end(target.fresh(), structure, end, specified.max_positions)
        structure = upto(structure, end)
        yield short
    if spec is None:
        yield from _without_untested(target, describe(structure), xpos)
        exact, used = inferred(structure), None
    else:
        checks, used = _compare_at_lengths(structure, specified, length)
        wrong = {check.name for check in checks if check.fault}
        same = not wrong & {"frequencies", "rotary part"}
        exact = spec if same else inferred(structure)
        yield from _without_untested(target, checks, xpos)
    with_keys = "k" in target.rotates and first != "k" and not xpos
    if with_keys:
        keys = same_for_keys(measured["k"], structure)
        with_keys = not keys.fault
        yield keys
    drifts = xpos or any(check.fault == "norm-drift" for check in basics)
    if short is not None:
        yield not_tested("far positions", "beyond the end of the table")
    ends = [end for end in function_checks.FAR if end <= (bound or end)]
    for end in ends if most > STATEFUL and not drifts and short is None else ():
        far = partial(
            function_checks.check_far,
            target.fresh(),
            structure,
            exact,
            end,
            specified.max_positions,
            (used or end) if exact is not None and exact.needs_length else None,
            "the specification" if exact is spec else "the rope of near positions",
            with_keys,
        )
        yield _attempt(f"position {end - 1:,}", far)


def _measure(target: Target, positions: Tensor) -> dict[Any, Tensor]:
    """Return matrices at these positions, or at fewer if far ones are refused."""
    with torch.no_grad():
        try:
            return dict(matrices(target.fresh(), positions))
        except TargetError:
            for most in (4_096, 1_024, 256, 32):
                try:
                    return dict(matrices(target.fresh(), positions[positions < most]))
                except TargetError:
                    continue
            raise


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
    tried = [(compare(structure, spec, specified.others, each), each) for each in lengths]
    checks, found = min(tried, key=lambda made: sum(check.fault is not None for check in made[0]))
    return checks, found if length or found != of_call else None


def _without_untested(target: Target, checks: list[Check], xpos: bool) -> Iterator[Check]:
    """Yield the checks, without verdicts on what tables, their caller or xPos decide."""
    untested = {"amplitude": "lengths change with the position"} if xpos else {}
    if target.makes_tables:
        untested = dict.fromkeys(("pairing", "rotary part"), "tables have no pairs")
    if target.tables_of is not None:
        names = ("frequencies", "scores relative", "amplitude")
        untested = dict.fromkeys(names, "the caller's tables decide")
    for check in checks:
        if check.name in untested:
            check = not_tested(check.name, untested[check.name])
        yield check


def inferred(structure: Structure) -> RotarySpec | None:
    """Return the plain or linear rope that explains the measured frequencies, or None."""
    frequencies = slopes(structure).abs()
    if len(frequencies) < 3 or (frequencies <= 0).any():
        return None
    theta, factor, error = fit_theta(frequencies)
    plain = abs(factor - 1) < 2e-6  # as close as float32 angles show
    if error > 2e-5 or not (plain or factor > 1):
        return None
    scaling = None if plain else Linear(factor)
    return RotarySpec(2 * len(frequencies), theta=theta, scaling=scaling)


def _attempt(name: str, check: Callable[[], Check], grad: bool = False) -> Check:
    (made,) = _attempt_all(name, lambda: [check()], grad)
    return made


def _attempt_all(name: str, check: Callable[[], list[Check]], grad: bool = False) -> list[Check]:
    """Make checks; a target that fails has a fault that says how."""
    try:
        with torch.set_grad_enabled(grad):
            return check()
    except TargetError as error:
        return [fault(name, "fails", str(error))]
