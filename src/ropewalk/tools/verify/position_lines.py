"""Lines through the positions of several axes: along one, a rope is one of a single axis.

Place p of a line has the coordinate steps[a] · p on axis a, so that a pair of axis a rotates by
steps[a] times its frequency per place. What measures a rope of one axis then serves any number.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from decimal import Decimal, localcontext

import torch
from torch import Tensor

from ropewalk.rotary import frequencies
from ropewalk.rotary.spec import RotarySpec

Steps = tuple[float, ...]


def steps_together(spec: RotarySpec) -> Steps:
    """Return the steps of a line along all axes if there are several, different for neighbors."""
    part = 0.125 if spec.continuous else 1  # which code must not round to integers
    # At most 3: a pair may turn by no more than π per place. All 1 if the length must be theirs.
    steps = (1, 1, 1, 1, 1) if spec.needs_length else (1, 2, 3, 2, 1)
    count = spec.axis_count * (spec.axis_count > 1)
    return tuple(part * steps[axis % 5] for axis in range(count))


@dataclass(frozen=True, repr=False)
class OnLine(RotarySpec):
    """A rope of several axes at the places of a line. steps: per place, for each axis."""

    steps: Steps = ()

    @classmethod
    def of(cls, spec: RotarySpec, steps: Steps) -> OnLine:
        """Return a rope on a line of its positions."""
        own = {each.name: getattr(spec, each.name) for each in fields(RotarySpec)}
        return cls(**own, steps=steps)

    def inverse_frequencies(self, length: int | None = None) -> Tensor:
        """Return the radians per place of each pair, float64 (R/2,)."""
        steps = torch.tensor(self.steps, dtype=torch.float64)
        return super().inverse_frequencies(length) * steps[list(self.axis_of_pair)]

    def fixed_point_frequencies(self, length: int | None = None) -> tuple[int, ...]:
        """Return each pair's frequency in units of 2^-64 turns per place."""
        with localcontext(frequencies.precision(self.theta)):
            return frequencies.to_fixed_point(
                map(Decimal, self.inverse_frequencies(length).tolist())
            )
