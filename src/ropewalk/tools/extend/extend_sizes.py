"""`extend_sizes`: rules for larger images and longer videos; each axis is a rope of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike

from ropewalk.checks import ArgumentNeededError, check_word, ranges
from ropewalk.rotary.config.config_json import JsonObject
from ropewalk.rotary.scaling import Linear, NTKAware, PerAxis, Scaling, YaRN
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.extend.extend import numbers
from ropewalk.tools.extend.extension import Numbers
from ropewalk.tools.extend.extension_report import Rows, growth_cells
from ropewalk.tools.inspect.grids import Sizes
from ropewalk.tools.inspect.inspect_model import inspect
from ropewalk.tools.inspect.rope_facts import AxisFacts, Plain

#: Rules for one axis, of the factor and the patches in training. YaRN's amplitude would be another
#: on each axis.
RULES: dict[str, Callable[[float, int], Scaling]] = {
    "linear": lambda factor, _: Linear(factor),
    "ntk": lambda factor, _: NTKAware(factor),
    "yarn": lambda factor, original: YaRN(factor, original, attention_factor=1.0),
}
NOTES = (
    ("ntk", "CineScale (arXiv 2508.15774) sets 1, 20 and 20 for Wan, not the ratio of sizes."),
    ("yarn", "The amplitude stays 1 (attention_factor), since all axes have one."),
)


@dataclass(frozen=True)
class SizeRule:
    """A rule. spec: the rope with it. numbers: of each axis that grows. refused: why not."""

    method: str
    spec: RotarySpec | None = None
    numbers: tuple[Numbers, ...] = ()
    refused: str | None = None


@dataclass(frozen=True)
class SizeExtension(Plain):
    """What rules do to a larger size. axes: those that grow; original: their trained patches."""

    source: str
    model_type: str | None
    axes: tuple[AxisFacts, ...]
    original: tuple[int, ...]
    results: tuple[SizeRule, ...]


def extend_sizes(
    config: str | PathLike[str] | JsonObject,
    sizes: Sizes,
    originals: Sizes,
    method: str | None = None,
) -> SizeExtension:
    """Return what each rule does to the rope of images or video at a size, beyond training's.

    sizes, originals: by "frames", "height" and "width", in latent frames and pixels; originals:
    those in training, where the config does not state them. The rule of a config is kept, and
    joins only with one of its kind. Raises ValueError if no axis grows.
    """
    check_word("method", method or "all", ("all", *RULES))
    for name, given in originals.items():
        if given is not None and sizes.get(name) is None:
            raise ValueError(f"original_{name} must be left out without {name}, got {given}")
    report = inspect(config, pairing=None, **sizes)
    kind = next((kind for kind in report.kinds if kind.axes), None)
    asked = {axis: _trained(axis, originals) for axis in kind.axes if axis.patches} if kind else {}
    grown = {axis: trained for axis, trained in asked.items() if (axis.patches or 0) > trained}
    if kind is None or kind.rope is None or not grown:
        known = ", ".join(f"{axis.name}={trained * axis.patch}" for axis, trained in asked.items())
        raise ValueError(f"a size must be above the one in training, {known or 'got none'}")
    spec = kind.rope.spec
    own = getattr(spec.scaling, "rules", (None,) * len(kind.axes))
    results = []
    for name in ("none", *(RULES if method in (None, "all") else (method,))):
        try:
            rules = [
                _rule(name, axis, rule, grown.get(axis))
                for axis, rule in zip(kind.axes, own, strict=True)
            ]
            after = dataclasses.replace(spec, scaling=PerAxis(tuple(rules)))
            of_axes = tuple(
                numbers(kind, _part(spec, axis, rule), grown[axis], axis.patches or 0,
                        _part(spec, axis, was))
                for axis, rule, was in zip(kind.axes, rules, own, strict=True) if axis in grown
            )  # fmt: skip
            results.append(SizeRule(name, spec if name == "none" else after, of_axes))
        except ValueError as error:
            results.append(SizeRule(name, refused=str(error)))
    original = tuple(grown.values())
    return SizeExtension(report.source, report.model_type, tuple(grown), original, tuple(results))


def _trained(axis: AxisFacts, originals: Sizes) -> int:
    """Return the patches of an axis in training, as passed or as the config states."""
    argument, given = f"original_{axis.name}", originals.get(axis.name)
    if axis.scaled:
        raise ValueError(f"{axis.name} must be left out, got {axis.size}: {axis.scaled}")
    if given is not None:
        return axis.sized(argument, given).patches or 0
    if axis.trained is None:
        why = f"{{argument}} must be given: the config does not state the {axis.name} in training"
        raise ArgumentNeededError("", why, argument)
    return axis.trained[0]


def _rule(method: str, axis: AxisFacts, own: Scaling | None, trained: int | None) -> Scaling | None:
    """Return the rule of an axis. trained: its patches in training, or None if it does not grow."""
    if trained is None or method == "none":
        return own
    factor = (axis.patches or 0) / trained
    if own is not None and (before := getattr(own, "factor", None)) != 1:
        if type(own) is not type(RULES[method](1.0, 1)) or isinstance(own, YaRN) or before is None:
            raise ValueError(f"it does not join with the config's own rule of {axis.name}, {own!r}")
        factor *= before
    return RULES[method](factor, trained)


def _part(spec: RotarySpec, axis: AxisFacts, rule: Scaling | None) -> RotarySpec:
    """Return the pairs of one axis as a rope of their own, as in `PerAxis`."""
    pairs = tuple((0, spec.axes[pair][1]) for pair in axis.pairs)
    return RotarySpec(2 * len(pairs), theta=spec.theta, axes=pairs, scaling=rule)


def size_blocks(found: SizeExtension) -> Iterator[tuple[str, Rows]]:
    """Yield a table of rules for each axis that grows, refused rules and notes."""
    yield f"{found.source}: {found.model_type}", list(NOTES)
    for place, (axis, original) in enumerate(zip(found.axes, found.original, strict=True)):
        rows: Rows = [("method", "wavelengths grow", "pairs beyond training", "")]
        for each in found.results:
            if each.numbers:
                leaving = [axis.pairs[pair] for pair in each.numbers[place].leaving]
                rows.append((each.method, *growth_cells(each.numbers[place]), ranges(leaving)))
        steps = f"{original:,} -> {axis.patches:,} patches"
        factor = (axis.patches or 0) / original
        yield f"{axis.name}: {steps}, factor s = {factor:.4g}, {len(axis.pairs)} pairs", rows
    refused: Rows = [(each.method, f"{each.refused}.") for each in found.results if each.refused]
    if refused:
        yield "not for this model", refused
