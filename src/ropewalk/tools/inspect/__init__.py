"""What a model's ropes do, read from its config.json or its GGUF file."""

from ropewalk.tools.inspect.differences import (
    AngleDifference,
    Comparison,
    FieldDifference,
    LayerDifference,
    compare_ropes,
)
from ropewalk.tools.inspect.inspect_model import inspect
from ropewalk.tools.inspect.rope_facts import (
    Caution,
    LayerKind,
    ModelReport,
    RopeFacts,
    Turns,
    to_plain,
)

__all__ = [
    "AngleDifference",
    "Caution",
    "Comparison",
    "FieldDifference",
    "LayerDifference",
    "LayerKind",
    "ModelReport",
    "RopeFacts",
    "Turns",
    "compare_ropes",
    "inspect",
    "to_plain",
]
