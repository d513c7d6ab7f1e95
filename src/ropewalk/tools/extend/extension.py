"""What `extend` returns, as frozen dataclasses: numbers, rules, recommendation, fragments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ropewalk.rotary.scaling import Scaling
from ropewalk.tools.inspect.rope_facts import Plain


@dataclass(frozen=True)
class Numbers:
    """What a rule does to one rope, for the layers that have it.

    original, to: the lengths in training and now, in tokens, or in patches of an axis of images.
    wavelengths_before: positions per full turn of each pair in training, without a rule; inf if a
        pair does not rotate. wavelengths_after: the same with the rule at the target length.
    growth: the second divided by the first, for each pair; 1 if a pair does not rotate.
    leaving: the pairs whose largest angle at the target length is beyond the largest in training. A
        pair with a full turn within the original length has seen all angles and is never listed.
    share_leaving: the share of these pairs among all.
    amplitude: the factor of cos and sin at the target length.
    distances: from 1 to the target length. score_before, score_after: the mean of
        cos(distance · f) over all pairs, without the rule and with it, without the amplitude: the
        score of a q and a k that are equal in every pair, relative to distance 0. (RoFormer's
        bound, section 3.4.3, is the mean of |S_i| instead; see `figures.score_by_distance`.)
    """

    layers: tuple[int, ...]
    layer_types: tuple[str, ...]
    original: int
    to: int
    theta: float
    wavelengths_before: tuple[float, ...]
    wavelengths_after: tuple[float, ...]
    growth: tuple[float, ...]
    leaving: tuple[int, ...]
    share_leaving: float
    amplitude: float
    distances: tuple[int, ...]
    score_before: tuple[float, ...]
    score_after: tuple[float, ...]


@dataclass(frozen=True)
class RuleResult:
    """One rule at the target length.

    method: "none", "linear", "ntk", "dynamic", "yarn", "llama3" or "longrope". rule: the rule, or
    None. refused: why the model cannot have this rule, or None; then there are no numbers, or no
    config that describes the rule. numbers: one entry for each rope of the text that the rule
    changes. section: the keys of config.json that describe the rule, in the section of the text.
    """

    method: str
    rule: Scaling | None
    numbers: tuple[Numbers, ...] = ()
    section: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None

    @property
    def usable(self) -> bool:
        """Whether this is a rule that the code of the model type follows."""
        return self.rule is not None and self.refused is None


@dataclass(frozen=True)
class Recommendation:
    """The method to try first, or None; why, and what nobody should expect of it."""

    method: str | None
    reason: str
    limits: tuple[str, ...]


@dataclass(frozen=True)
class Fragment:
    """What to paste for one engine.

    text: a block of JSON, or a command line; None if the engine cannot apply the rule. place: where
    the text belongs. remove: keys to remove from the same section of config.json. ignores: what the
    engine ignores. warnings: what goes wrong without an error. source: where the names of the
    fields and flags were read. run: whether a test of ropewalk runs such a fragment in the engine;
    otherwise it follows the documentation of the version.
    """

    engine: str
    version: str
    source: str
    place: str
    text: str | None
    remove: tuple[str, ...] = ()
    ignores: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    run: bool = False


@dataclass(frozen=True)
class Extension(Plain):
    """How a model's context can be extended.

    original_length: the context in training, before any rule. current_length: the context that the
    config states today. section_path: the section of config.json that describes the text, "" for
    the file itself. method: the method of the fragments. notes: what was assumed or replaced.
    """

    source: str
    model_type: str | None
    original_length: int
    current_length: int
    to: int
    factor: float
    section_path: str
    results: tuple[RuleResult, ...]
    recommendation: Recommendation
    method: str | None
    fragments: tuple[Fragment, ...]
    notes: tuple[str, ...]

    def result(self, method: str) -> RuleResult:
        """Return the result of a method. Raises ValueError if it was not computed."""
        for each in self.results:
            if each.method == method:
                return each
        known = ", ".join(each.method for each in self.results)
        raise ValueError(f"method must be one that was computed: {known}, got {method!r}")

    def fragment(self, engine: str) -> Fragment:
        """Return the fragment of an engine. Raises ValueError if there is none."""
        for each in self.fragments:
            if each.engine == engine:
                return each
        known = ", ".join(each.engine for each in self.fragments) or "none"
        raise ValueError(f"engine must be one with a fragment: {known}, got {engine!r}")
