"""The conventions of one stack of layers, and how a table of them is filled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ropewalk.rotary.spec import Pairing

THETA = 10_000.0
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class Stack:
    """The conventions of one stack of layers.

    layout: which dimensions of a head turn: its `head` or the first part of it, the rope part of
        `latent` attention, `trailing` dimensions, or `axial`, for patches of an image.
    defaults: what the model's code takes where config.json is silent.
    needs: keys that config.json must have, for what the code takes without them is no plain rope.
    partial: whether `partial_rotary_factor` counts. size: a key that holds R itself.
    order: of axes, where there are several.
    unturned: types of layers without rope. switched: whether `no_rope_layers` says which have none.
    only_if: keys that must have these values, or there is no rope.
    full_every: which layers have full attention, where `layer_types` is absent: the key of their
        interval, whether they are the first or the last of each, and the type of the others.
    listed: the same, by a key that lists the layers of full attention, and the others' type.
    cycle: the same, by a key that holds types which repeat.
    of_kind: keys that hold instead of others in layers of a type. unscaled: types of layers that
        the legacy `rope_scaling` does not touch. scaled: a key that lists the layers it does touch.
    nested: whether `rope_parameters` must be there, by types of layers.
    extra: further fields of the rope that are read elsewhere, or without effect.
    fixed: fields of the rope that the model's code sets itself.
    reads: keys that stand for the usual ones. named: what `rope_parameters` calls types of layers.
    inner: a section whose `rope_theta` is the model's.
    ratios: types of layers by the entries of `compress_ratios`, where `layer_types` is absent.
    """

    layout: Literal["head", "latent", "trailing", "axial"] = "head"
    pairing: Pairing = "half"
    write_pairing: Pairing | None = None
    defaults: Mapping[str, Any] = field(default_factory=lambda: {"rope_theta": THETA})
    needs: tuple[str, ...] = ()
    partial: bool = False
    size: str | None = None
    order: str | None = None
    unturned: frozenset[str] = frozenset()
    switched: bool = False
    only_if: Mapping[str, Any] = field(default_factory=dict)
    full_every: tuple[str, str, str] | None = None
    listed: tuple[str, str] | None = None
    cycle: str | None = None
    of_kind: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unscaled: frozenset[str] = frozenset()
    scaled: str | None = None
    nested: bool = False
    extra: frozenset[str] = frozenset()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    reads: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    inner: str | None = None
    ratios: Mapping[int, str] = field(default_factory=dict)
    reverse: bool = False
    continuous: bool = False


class Table(dict[str, Stack]):
    """Conventions by the `model_type` of a config.json or of one of its sections."""

    def enter(
        self,
        names: str,
        base: Stack | None = None,
        theta: float | None = THETA,
        **conventions: Any,
    ) -> None:
        """Enter these model types, with the conventions of `base` but for those given.

        theta: what stands for a missing one; None: it must be given.
        """
        base = Stack() if base is None else base
        defaults = {**base.defaults, "rope_theta": theta, **conventions.pop("defaults", {})}
        defaults = {key: value for key, value in defaults.items() if value is not None}
        for name in names.split():
            assert name not in self, name
            self[name] = replace(base, defaults=defaults, **conventions)

    def size_heads(self, head_dim: int, names: str) -> None:
        """Say the head_dim that these types' code takes, whatever the width and number of heads."""
        for name in names.split():
            stack = self[name]
            self[name] = replace(stack, defaults={"head_dim": head_dim, **stack.defaults})
