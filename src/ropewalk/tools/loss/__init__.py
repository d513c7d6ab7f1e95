"""The loss of a model as its context grows, and at shifted positions, under scaling rules."""

from ropewalk.tools.loss.loss_measurement import (
    ContextLoss,
    Difference,
    LossMeasurement,
    RuleLoss,
    ShiftLoss,
    Shifts,
)
from ropewalk.tools.loss.measure_losses import measure_loss

__all__ = [
    "ContextLoss",
    "Difference",
    "LossMeasurement",
    "RuleLoss",
    "ShiftLoss",
    "Shifts",
    "measure_loss",
]
