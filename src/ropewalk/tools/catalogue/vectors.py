"""Test vectors: ropes as JSON, with queries and keys before and after rotation.

docs/catalogue_vectors.py computes them with 60 digits, without the code of this library.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ropewalk.rotary.config.conventions import RopeConventions
from ropewalk.rotary.config.rope_fields import read_scaling
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.catalogue.records import (
    CatalogueVector,
    IndexerOfType,
    RopeOfType,
    RotaryPart,
)

#: Hunyuan's field of the NTK-aware rule, which no rule has under its own name.
WITH_ALPHA = RopeConventions(extra_fields=frozenset({"alpha"}))


def rotary_spec(spec: Mapping[str, Any]) -> RotarySpec:
    """Return the `RotarySpec` of a test vector's spec.

    Raises ValueError or TypeError, as `RotarySpec` does, for a value that no rope has.
    """
    fields = dict(spec)
    axes = fields.pop("axes")
    return RotarySpec(
        **fields | {"scaling": read_scaling({}, WITH_ALPHA, fields["scaling"])},
        axes=None if axes is None else tuple((a, Fraction(e, of)) for a, e, of in axes),
    )


def rotary_part(rope: RotarySpec) -> RotaryPart:
    """Return which dimensions of a head rotate: all, the first ones or the last ones."""
    if rope.rotary_dim == rope.head_dim:
        return "all"
    return "last" if rope.start else "first"


def vectors_of(
    rope: RopeOfType | IndexerOfType, axes: str, vectors: Mapping[str, CatalogueVector]
) -> tuple[str, ...]:
    """Return the names of the test vectors with this pairing, rotary part and order of axes.

    A rope on the first dimensions rotates all of them if the config says so, so both fit.
    """
    parts = {"first": ("first", "all")}.get(rope.rotary_part, (rope.rotary_part,))
    found = []
    for name, vector in vectors.items():
        spec = rotary_spec(vector.spec)
        if (
            (spec.pairing, spec.write_pairing) == (rope.pairing, rope.write_pairing)
            and rotary_part(spec) in parts
            and vector.axes == axes
            and spec.reverse is getattr(rope, "reverse", False)
            and (spec.blocks is not None) is getattr(rope, "blocks", False)
            and spec.continuous is getattr(rope, "continuous", False)
        ):
            found.append(name)
    return tuple(found)
