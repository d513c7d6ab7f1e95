"""What a fragment is made from, and warnings that several engines share."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ropewalk.rotary.scaling import YaRN
from ropewalk.tools.extend.block import TextConfig
from ropewalk.tools.extend.facts import RuleResult


@dataclass(frozen=True)
class Request:
    """A rule that the code of the model type follows, and the lengths."""

    text: TextConfig
    result: RuleResult
    original: int
    to: int

    @property
    def rope_parameters(self) -> dict[str, Any]:
        """The complete dictionary of the rope."""
        found: dict[str, Any] = self.result.section["rope_parameters"]
        return found

    @property
    def factor(self) -> float:
        """The target length divided by the original one."""
        return self.to / self.original


def pretty(keys: Mapping[str, Any]) -> str:
    """Return JSON with an indent, and each list of numbers on one line."""
    text = json.dumps(keys, indent=2)
    return re.sub(r"\[[^][{}\"]*\]", lambda found: json.dumps(json.loads(found[0])), text)


def is_nested(rope_parameters: Mapping[str, Any]) -> bool:
    """Return whether a dictionary has the rope of each type of layer."""
    return any(isinstance(each, Mapping) for each in rope_parameters.values())


def mrope_note(request: Request, engine: str) -> Iterator[str]:
    """Yield a warning if a server drops the axes of M-RoPE, which it has only with two rules."""
    plain = request.rope_parameters.get("rope_type") in ("default", "yarn")
    if "mrope_section" in request.rope_parameters and not plain:
        yield (
            f"{engine} silently drops mrope_section with this rule: images and video get wrong "
            f"positions. Use yarn or ntk"
        )


def amplitude_note(request: Request, engine: str) -> Iterator[str]:
    """Yield a warning if YaRN has an amplitude that servers compute otherwise."""
    rule = request.result.rule
    if not isinstance(rule, YaRN):
        return
    usual, own = rule.sharpening(1.0), rule.amplitude(None)
    if not math.isclose(usual, own, rel_tol=1e-4) and not request.text.is_latent:
        yield (
            f"{engine} computes the amplitude {usual:.6g}, and the config says {own:.6g}; add "
            f'"attn_factor": {own / usual:.6g} to the rope\'s dictionary, which multiplies it'
        )
