"""Rotary position embedding as an encoding: it rotates queries and keys, and adds nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from inspect import Parameter, signature
from typing import Any, Literal, cast

from torch import Tensor, nn

from ropewalk.checks import check_number, did_you_mean, shown
from ropewalk.encodings.interface import AttentionEncoding, Encoding, Placement, StackShape
from ropewalk.rotary import LearnedRotaryEmbedding, Pairing, RotaryEmbedding, RotarySpec
from ropewalk.rotary.scaling import RULES, Scaling
from ropewalk.rotary.tables import Tables, apply_tables

THETA = 10_000.0

#: Of all pairs at once, in radians per position; many times a whole turn.
MAX_FREQUENCY = 1e6


class RotarySite(AttentionEncoding):
    """Rotate queries and keys by their own positions, so that scores depend on the distance alone.

    Every field of the rope's spec counts. length: what the scaling rule serves, where it depends on
    that. values: rotate values as well, by their keys' positions; back: and the output back by its
    query's.
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
        # The placement keeps its positions alive, so the id of such a tensor names them.
        key = self.rope, id(positions)
        # Positions beyond a length that is stated are no error: a lab asks how it extrapolates.
        return placement.memoize(
            key, lambda: self.rope.tables(positions, self.length, extrapolate=True)
        )

    def _unit_tables(self, positions: Tensor, placement: Placement) -> Tables:
        """Leave the amplitude out: it sharpens scores, and would only stretch values."""
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
    """Raise unless x has the heads that this encoding was built for."""
    if x.shape[-1] != spec.head_dim:
        raise ValueError(
            f"attention must have the head_dim={spec.head_dim} that this {name} encoding was "
            f"built for, got heads of {x.shape[-1]} dimensions"
        )


class Rotary(Encoding):
    """Rotate pairs of query and key dimensions by position times frequency.

    At position m, pair i of the R rotated dimensions is rotated by m·f_i, f_i = theta^(-2i/R), so
    that the score of a query at m and a key at n depends on m - n alone. Acts on queries and keys
    of every layer; no parameters unless learned; any position; keys can be cached rotated; in
    cross-attention only when asked (``cross=True``), where a distance is that between a target and
    a source position. Cost: one pass over q and k (and over v and the output, if values rotate);
    cos and sin are formed once for all layers that share frequencies.
    Source: Su et al. 2021, RoFormer, arXiv 2104.09864, eq. 14 to 16 and 34.

    theta: base of the frequencies.
    rotary_dim: R; only these leading dimensions of each head rotate (GPT-J, GPT-NeoX). None: all.
    pairing: which dimensions form a pair, ``half`` (i and i + R/2) or ``interleaved`` (2i, 2i + 1).
    reverse: rotate the other way (nanochat).
    frequency: one for all pairs, in radians per position, instead of theta's.
    rule: a scaling rule by its name in ``ropewalk.scaling``, whatever its case; its fields are
        further arguments: ``rotary(rule=yarn, factor=4, original_length=256)``. p-RoPE, which
        rotates the fastest p of all pairs, is ``rotary(rule=proportional, fraction=0.75)``.
    length: what is served, for the rules that depend on it (DynamicNTK, LongRoPE), and for them
        required. It is stated, not read off each pass: early tokens would be computed at another
        length than late ones, and then no cache could give what computing all anew gives, not even
        one of raw keys, which are made from hidden states of that other length.
    learned: frequencies become parameters, which start from those above: True for one set for the
        stack, ``layer`` for one for each layer, ``head`` for one for each key head of each layer
        (RoPE-ViT, arXiv 2403.13298, has such). Scores depend on the distance all the same.
    values: True rotates values by their keys' positions as well, and the output back by the
    query's:
        what is fetched from n to m is rotated by n - m, and stays relative (VO-RoPE: J. Su 2025,
        kexue.fm/archives/10862). ``absolute`` leaves the output as it is, which depends on absolute
        positions then (``rotary_value`` of RoFormer in transformers).
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

    def for_layer(self, layer: int) -> AttentionEncoding:
        return cast(AttentionEncoding, self.sites[layer if len(self.sites) > 1 else 0])

    @staticmethod
    def further_arguments(given: Mapping[str, Any]) -> list[str]:
        """Name the fields of the rule that is given, which are arguments then."""
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
    """Make the scaling rule of this name with these fields."""
    rule = _named(name)
    fields = signature(rule).parameters
    needed = [n for n, f in fields.items() if f.default is Parameter.empty and n not in given]
    if needed:
        raise ValueError(
            f"rule={name} must have {' and '.join(needed)} as well, got "
            f"{', '.join(given) or 'none of its fields'}; it has {', '.join(fields)}"
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
            f"{shown(frequency)}; above 2π, pairs turn more than once from token to token"
        )
    for name, given in (("theta", spec.theta != THETA), ("rule", spec.scaling is not None)):
        if given:
            raise ValueError(
                f"{name} must be left out where all pairs rotate at one frequency={frequency}: it "
                f"makes or changes frequencies pair by pair"
            )
    # theta^-e with e = -1 is the frequency itself, unrounded.
    return replace(spec, theta=frequency, axes=((0, -1),) * spec.pairs)


def _check_length(spec: RotarySpec, length: int | None) -> None:
    rule = type(spec.scaling).__name__
    if spec.needs_length and length is None:
        raise ValueError(
            f"length must be given with rule={rule}, whose frequencies depend on how long the "
            f"sequences are that are served, got None: it is stated once, so that results depend "
            f"neither on chunks nor on a cache; write rotary(rule={rule.lower()}, length=..., ...)"
        )
    if length is not None and not spec.needs_length:
        raise ValueError(
            f"length must be left out where frequencies do not depend on it, got {shown(length)}; "
            f"they do with rule=dynamicntk and rule=longrope"
        )
    spec.length_key(length)


def _check_choice(name: str, value: object, *words: str) -> None:
    if not isinstance(value, bool) and value not in words:
        *most, last = "True", "False", *map(repr, words)
        raise ValueError(f"{name} must be {', '.join(most)} or {last}, got {shown(value)}")
