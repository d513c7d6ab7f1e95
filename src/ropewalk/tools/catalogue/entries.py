"""The ropes of entries and of test vectors: a vector's as a `RotarySpec`, and which part rotates.

docs/catalogue_entries.py makes the entries from the tables that `from_config` reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ropewalk.rotary.config.conventions import RopeConventions
from ropewalk.rotary.config.rope_fields import read_scaling
from ropewalk.rotary.spec import RotarySpec
from ropewalk.tools.catalogue import RotaryPart

#: Hunyuan's field of the NTK-aware rule, which no rule has under its own name.
WITH_ALPHA = RopeConventions(extra_fields=frozenset({"alpha", "use_dynamic_ntk", "seq_length"}))


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
