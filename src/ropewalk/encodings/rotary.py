"""Rotary position embedding as an encoding: it rotates queries and keys, and adds nothing.

xPos is a rotation whose scores also decay with the distance of earlier keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any, Literal

from torch import Tensor, nn

from ropewalk.checks import check_number, did_you_mean, shown
from ropewalk.encodings.interface import (
    AttentionEncoding,
    LayerSites,
    Placement,
    SharedSite,
    StackShape,
)
from ropewalk.rotary.learned import LearnedRotaryEmbedding
from ropewalk.rotary.module import RotaryEmbedding
from ropewalk.rotary.scaling import RULES, Scaling
from ropewalk.rotary.spec import Pairing, RotarySpec
from ropewalk.rotary.tables import Tables, apply_tables
from ropewalk.rotary.xpos import XPosEmbedding

THETA = 10_000.0

#: Upper limit of `frequency`, in radians per position: far more than a full turn.
MAX_FREQUENCY = 1e6


class RotarySite(AttentionEncoding):
    """Rotate queries and keys by their own positions: scores then depend on the distance alone.

    length: the sequence length for the scaling rule, if the rule depends on it.
    values: rotate values too, by the positions of their keys.
    back: rotate the output back by the positions of the queries.
    """

    def __init__(
        self,
        rope: RotaryEmbedding,
        length: int | None = None,
        values: bool = False,
        back: bool = False,
    ) -> None:
        super().__init__()
        self.rope, self.length, self.rotates_values, self.back = rope, length, values, back

    def rotate(
        self, q: Tensor, k: Tensor | None, placement: Placement
    ) -> tuple[Tensor, Tensor | None]:
        tables = self._tables(placement.queries, placement)
        if k is not None and placement.new_keys is placement.queries:
            q, k = self._apply_tables(tables, q, k)
            return q, k
        (q,) = self._apply_tables(tables, q)
        if k is not None:
            (k,) = self._apply_tables(self._tables(placement.new_keys, placement), k)
        return q, k

    def rotate_values(self, v: Tensor, placement: Placement) -> Tensor:
        if not self.rotates_values:
            return v
        return self._apply_tables(self._unit_tables(placement.new_keys, placement), v)[0]

    def restore(self, output: Tensor, placement: Placement) -> Tensor:
        if not self.back:
            return output
        tables = self._unit_tables(placement.queries, placement)
        return self._apply_tables(tables, output, adjoint=True)[0]

    def _tables(self, positions: Tensor, placement: Placement) -> Tables:
        # The placement keeps its positions alive, so `id(positions)` stays unique.
        key = self.rope, id(positions)
        # Extrapolation is allowed, because the laboratory measures it.
        return placement.memoize(
            key, lambda: self.rope.tables(positions, self.length, extrapolate=True)
        )

    def _unit_tables(self, positions: Tensor, placement: Placement) -> Tables:
        """Return tables without the scaling rule's amplitude, which is meant for scores alone."""
        amplitude = self.rope.spec.amplitude_at(self.length)
        cos, sin = self._tables(positions, placement)
        if amplitude == 1:
            return cos, sin
        key = self.rope, id(positions), "unit"
        return placement.memoize(key, lambda: (cos / amplitude, sin / amplitude))

    def _apply_tables(
        self, tables: Tables, *xs: Tensor, adjoint: bool = False
    ) -> tuple[Tensor, ...]:
        for x in xs:
            check_head_dim("rotary", self.rope.spec, x)
        return apply_tables(self.rope.spec, tables, *xs, adjoint=adjoint)


def check_head_dim(name: str, spec: RotarySpec, x: Tensor) -> None:
    """Raise ValueError unless the heads of x have the size that this encoding was built for."""
    if x.shape[-1] != spec.head_dim:
        raise ValueError(
            f"attention must have the head_dim={spec.head_dim} that this {name} encoding was "
            f"built for, got heads of {x.shape[-1]} dimensions"
        )


class Rotary(LayerSites):
    """Rotate pairs of query and key dimensions by position times frequency.

    At position m, pair i of R rotated dimensions rotates by m·theta^(-2i/R) radians. So the score
    of a query at m and a key at n depends on m - n alone.

    Acts on queries and keys of every layer; relative. Costs one pass over q and k (over v and the
    output too, if values rotate); no parameters unless learned. Accepts any position. Keys can be
    cached rotated.
    Source: Su et al. 2021, RoFormer, arXiv 2104.09864, eq. 14 to 16 and 34.

    theta: base of the frequencies.
    rotary_dim: R; only the first R dimensions of each head rotate. None: all.
    pairing: of dimensions, `half` (i and i + R/2) or `interleaved` (2i and 2i + 1).
    reverse: rotate in the other direction (nanochat).
    frequency: one for all pairs, in radians per position.
    rule: a scaling rule, with its fields: `rotary(rule=yarn, factor=4, original_length=256)`.
        p-RoPE, which rotates only the fastest pairs, is `rotary(rule=proportional,
        fraction=0.75)`.
    length: of the complete sequence, for rules that depend on it (DynamicNTK, LongRoPE).
    learned: train the frequencies. True: one set for the stack; `layer`: one per layer; `head`:
        one per key head (RoPE-ViT, arXiv 2403.13298).
    values: True also rotates values by the key's position, and the output back by the query's
        (VO-RoPE: J. Su 2025, kexue.fm/archives/10862). `absolute` does not rotate back (RoFormer's
        `rotary_value` in transformers), so it is not relative.
    """

    def __init__(
        self,
        shape: StackShape,
        theta: float = THETA,
        rotary_dim: int | None = None,
        pairing: Pairing = "half",
        reverse: bool = False,
        frequency: float | None = None,
        rule: str | None = None,
        length: int | None = None,
        learned: bool | Literal["layer", "head"] = False,
        values: bool | Literal["absolute"] = False,
        **fields_of_rule: Any,
    ) -> None:
        super().__init__()
        _check_choice("learned", learned, "layer", "head")
        _check_choice("values", values, "absolute")
        scaling = None if rule is None else rule_of(rule, fields_of_rule)
        if scaling is None and fields_of_rule:
            Rotary.further_arguments(fields_of_rule)
            raise TypeError(f"Rotary has no argument {next(iter(fields_of_rule))!r}")
        spec = RotarySpec(
            head_dim=shape.head_dim,
            rotary_dim=rotary_dim,
            theta=theta,
            pairing=pairing,
            reverse=reverse,
            scaling=scaling,
        )
        if frequency is not None:
            spec = _with_one_frequency(spec, frequency)

        def new_site() -> RotarySite:
            heads = shape.kv_heads if learned == "head" else 1
            rope = LearnedRotaryEmbedding(spec, heads) if learned else RotaryEmbedding(spec)
            return RotarySite(rope, length, values=bool(values), back=values is True)

        each = learned in ("layer", "head")
        self.sites = nn.ModuleList(new_site() for _ in range(shape.layers if each else 1))
        _check_length(spec, length)

    @staticmethod
    def further_arguments(given: Mapping[str, Any]) -> list[str]:
        """Return the fields of the chosen rule, which are then arguments too."""
        if given.get("rule") is not None:
            return list(signature(_named(given["rule"])).parameters)
        for name in given:
            having = [r.__name__.lower() for r in RULES if name in signature(r).parameters]
            if having:
                value = shown(given[name])
                raise ValueError(
                    f"rule must be given with {name}={value}, which is a field of "
                    f"{', '.join(having)}; write rotary(rule={having[0]}, {name}={value})"
                )
        return []


def rule_of(name: str, given: Mapping[str, Any]) -> Scaling:
    """Return the scaling rule of this name with these fields."""
    rule = _named(name)
    fields = signature(rule).parameters
    needed = [n for n, f in fields.items() if f.default is Parameter.empty and n not in given]
    if needed:
        raise ValueError(
            f"rule={name} also needs {' and '.join(needed)}, got "
            f"{', '.join(given) or 'none of its fields'}; its fields are {', '.join(fields)}"
        )
    return rule(**given)


def _named(name: Any) -> type[Scaling]:
    named = {rule.__name__.lower(): rule for rule in RULES}
    if isinstance(name, str) and name.lower() in named:
        return named[name.lower()]
    guess = did_you_mean(str(name).lower(), named)
    raise ValueError(f"rule must be one of {', '.join(named)}, got {shown(name)}{guess}")


def _with_one_frequency(spec: RotarySpec, frequency: float) -> RotarySpec:
    check_number("frequency", frequency, why="; reverse=True rotates the other way")
    if frequency > MAX_FREQUENCY:
        raise ValueError(
            f"frequency must be at most {MAX_FREQUENCY:g} radians per position, got "
            f"{shown(frequency)}"
        )
    for name, given in (("theta", spec.theta != THETA), ("rule", spec.scaling is not None)):
        if given:
            raise ValueError(
                f"{name} must be left out with frequency={frequency}, which is the same for all "
                f"pairs: {name} would give each pair a frequency of its own"
            )
    # `axes` has (position axis, e) for each pair; e = -1 gives theta^-e = theta, exactly.
    return replace(spec, theta=frequency, axes=((0, -1),) * spec.pairs)


def _check_length(spec: RotarySpec, length: int | None) -> None:
    rule = type(spec.scaling).__name__
    if spec.needs_length and length is None:
        raise ValueError(
            f"length must be given with rule={rule}, got None: frequencies of this rule depend on "
            f"the length of the sequences, and one fixed length keeps results independent of "
            f"chunks and caches; write rotary(rule={rule.lower()}, length=..., ...)"
        )
    if length is not None and not spec.needs_length:
        raise ValueError(
            f"length must be left out if frequencies do not depend on it, got {shown(length)}; "
            f"they depend on it with rule=dynamicntk and rule=longrope"
        )
    spec.length_key(length)


def _check_choice(name: str, value: object, *words: str) -> None:
    if not isinstance(value, bool) and value not in words:
        *most, last = "True", "False", *map(repr, words)
        raise ValueError(f"{name} must be {', '.join(most)} or {last}, got {shown(value)}")


class XPosSite(AttentionEncoding):
    """Rotate queries and keys by their positions; scale pairs of queries by z, of keys by 1/z."""

    def __init__(self, xpos: XPosEmbedding) -> None:
        super().__init__()
        self.xpos = xpos

    def rotate(
        self, q: Tensor, k: Tensor | None, placement: Placement
    ) -> tuple[Tensor, Tensor | None]:
        q = self._rotate(q, placement.queries, placement, keys=False)
        return q, None if k is None else self._rotate(k, placement.new_keys, placement, keys=True)

    def _rotate(self, x: Tensor, positions: Tensor, placement: Placement, keys: bool) -> Tensor:
        check_head_dim("xpos", self.xpos.spec, x)
        # The placement keeps its positions alive, so their id is a safe key.
        key = self.xpos, id(positions), x.dtype, keys
        tables = placement.memoize(key, lambda: self.xpos.tables(positions, x.dtype, keys))
        return apply_tables(self.xpos.spec, tables, x)[0]


class XPos(SharedSite):
    """Rotate as `rotary` does, and let scores decay with the distance, sooner in fast pairs.

    Pair i's part of the score of a query at m and a key at n is multiplied by ζ_i^((m - n) /
    scale_base), with ζ_i = (2i + 0.4·R) / (1.4·R).

    Acts on queries and keys of every layer; relative. Costs as much as `rotary`; no parameters.
    Keys can be cached rotated. Positions have a limit: with scale_base=512, 16,997 from the center
    in float32 and bfloat16, 1,133 in float16 (`XPosEmbedding`).

    For keys after the query, scores would grow with the distance. So a stack that looks both ways
    is refused unless `both_ways` is given.
    Source: Sun et al. 2022, arXiv 2212.10554, section 3, algorithm 1; microsoft/torchscale.

    theta, rotary_dim, pairing: as in `rotary`.
    scale_base: the larger, the slower the decay.
    center: the middle of a long context doubles the length that can be served.
    both_ways: `rotary` rotates without scales there; `xpos` keeps the formula, as torchscale does.
    """

    def __init__(
        self,
        shape: StackShape,
        theta: float = 10_000.0,
        rotary_dim: int | None = None,
        pairing: Pairing = "half",
        scale_base: float = 512.0,
        center: float = 0.0,
        both_ways: Literal["rotary", "xpos"] | None = None,
    ) -> None:
        super().__init__()
        if both_ways not in (None, "rotary", "xpos"):
            raise ValueError(f"both_ways must be rotary, xpos or None, got {shown(both_ways)}")
        if not shape.causal and both_ways is None:
            raise ValueError(
                "both_ways must be rotary or xpos in an encoder or in cross-attention, which look "
                "both ways, got None: xPos is for causal attention, because its scores grow with "
                "the distance to keys ahead; write xpos(both_ways=rotary) to rotate without "
                "scales, or xpos(both_ways=xpos) for the formula unchanged"
            )
        spec = RotarySpec(
            head_dim=shape.head_dim, rotary_dim=rotary_dim, theta=theta, pairing=pairing
        )
        xpos = XPosEmbedding(spec, scale_base, center)
        scaled = shape.causal or both_ways == "xpos"
        self.shared = XPosSite(xpos) if scaled else RotarySite(RotaryEmbedding(spec))
