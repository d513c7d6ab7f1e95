"""The loss of a model as its context grows, and at shifted positions, under scaling rules."""

from ropewalk.tools.loss.facts import (
    ContextLoss,
    Difference,
    LossMeasurement,
    RuleLoss,
    ShiftLoss,
    Shifts,
)
from ropewalk.tools.loss.measure import measure_loss

__all__ = [
    "ContextLoss",
    "Difference",
    "LossMeasurement",
    "RuleLoss",
    "ShiftLoss",
    "Shifts",
    "measure_loss",
]
