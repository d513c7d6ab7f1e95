"""`extend_sizes`: rules for larger images and longer videos; each axis is a rope of its own."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike

from ropewalk.checks import ArgumentNeededError
from ropewalk.rotary.config.config_json import JsonObject
from ropewalk.rotary.scaling import PerAxis, YaRN
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.extend.extend import numbers
from ropewalk.tools.extend.extension import RuleResult
from ropewalk.tools.extend.recommended_rule import make_rule
from ropewalk.tools.inspect.grids import ALL, AxisFacts, Sizes
from ropewalk.tools.inspect.inspect_model import inspect


def extend_sizes(
    config: str | PathLike[str] | JsonObject, sizes: Sizes, originals: Sizes
) -> tuple[RuleResult, ...]:
    """Return what each rule does to the rope of images or video at a size, beyond training's.

    sizes, originals: by "frames", "height" and "width", in latent frames and pixels; originals:
    those in training, if the config does not state them. The numbers of a rule are those of the
    axes that grow, which `layer_types` names, and its `section` has the whole rope as "spec".
    """
    report = inspect(config, sizes={name: sizes.get(name) or originals.get(name) for name in ALL})
    trained = {axis: _trained(axis, originals) for axis in report.axes if axis.patches}
    grown = {axis: patches for axis, patches in trained.items() if axis.patches > patches}
    if not grown:
        known = ", ".join(f"{axis.name}={each * axis.patch}" for axis, each in trained.items())
        raise ValueError(f"a size must be above the one in training, {known or 'got none'}")
    kinds = [(kind, kind.rope.spec) for kind in report.kinds if kind.rope]
    kind, spec = next(pair for pair in kinds if pair[1].axis_count > 1)
    if (own := spec.scaling) is not None:
        raise ValueError(f"the config has its own {own}; compare by hand with scaling.PerAxis")
    results = []
    for name in ("none", "linear", "ntk", "yarn"):
        rules, ropes = dict.fromkeys(report.axes), []
        for axis, each in grown.items():
            rule = None if name == "none" else make_rule(name, axis.patches / each, each, None)
            if isinstance(rule, YaRN):  # all axes have one amplitude
                rule = replace(rule, attention_factor=1.0)
            rules[axis], pairs = rule, tuple((0, spec.axes[pair][1]) for pair in axis.pairs)
            part = RotarySpec(2 * len(pairs), theta=spec.theta, axes=pairs, scaling=rule)
            ropes.append(numbers(replace(kind, layer_types=(axis.name,)), part, each, axis.patches))
        whole = replace(spec, scaling=PerAxis(tuple(rules.values())))
        results.append(RuleResult(name, whole.scaling, tuple(ropes), {"spec": whole}))
    return tuple(results)


def _trained(axis: AxisFacts, originals: Sizes) -> int:
    """Return the patches of an axis in training, as passed or as the config states."""
    argument, given = f"original_{axis.name}", originals.get(axis.name)
    if axis.scaled:
        raise ValueError(f"{axis.name} must be left out for this model: {axis.scaled}")
    if given is not None:
        return axis.patches_in(argument, given)
    if axis.trained is None:
        why = f"{{argument}} must be given: the config does not state the {axis.name} in training"
        raise ArgumentNeededError("", why, argument)
    return axis.trained[0]
