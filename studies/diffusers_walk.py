"""The rope of every class of diffusers, computed by its own code and by ropewalk.

    python studies/diffusers_walk.py benchmarks/results/diffusers-ropes.json

Each class is made with its own defaults, but one block of each kind and weights that are not
initialized. For two sizes, its own tables and its own rotation of random vectors are compared with
those of `ModelSpec.from_config` at the positions that its row in `diffusers_rows` states. A
reference in float64 says how much of a difference is the rounding of theirs.
tests/rotary/test_diffusers.py runs the walk; docs/image-and-video.md has the table.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import diffusers
import torch
from diffusers.models.modeling_utils import ModelMixin
from diffusers_rows import ROWS, Row, Size, as_tables, evaluated

from ropewalk import ModelSpec, RotaryEmbedding, RotarySpec

SOURCES = ("transformers", "controlnets", "autoencoders", "condition_embedders", "unets")


@lru_cache(maxsize=1)
def classes() -> dict[str, type]:
    """Return the models of diffusers whose module speaks of ropes, by name."""
    found: dict[str, type] = {}
    package = Path(inspect.getfile(diffusers)).parent
    files = [file for source in SOURCES for file in (package / "models" / source).glob("*.py")]
    for file in [*sorted(files), package / "pipelines" / "ltx2" / "connectors.py"]:
        if not re.search(r"rope|rotary", file.read_text("utf-8"), re.IGNORECASE):
            continue
        module = ".".join(("diffusers", *file.relative_to(package).with_suffix("").parts))
        for name, value in vars(importlib.import_module(module)).items():
            own = inspect.isclass(value) and value.__module__ == module
            if own and issubclass(value, ModelMixin):
                found[name] = value
    return found


#: Classes of such modules that have no rope.
WITHOUT = {
    "FluxMultiControlNetModel", "HunyuanDiT2DMultiControlNetModel", "QwenImageMultiControlNetModel",
    "AutoencoderKLLTX2Audio", "RFD4ProteinaAutoencoder", "RFD4ProteinaTransformer", "I2VGenXLUNet",
    "DreamLiteUNetModel",
}  # fmt: skip
SMALL: dict[str, Any] = {"vace_layers": [0], "num_double_layers": 1}
COUNT = re.compile("^(num_.*(layers|blocks)|n_.*layers|depth|dit_depth|decoder_num_layers)$")


def made(name: str, options: dict[str, Any]) -> Any:
    """Return a model with one block of each kind, and weights that are not set."""
    cls: Any = classes()[name]
    given: dict[str, Any] = {}
    for parameter in inspect.signature(cls.__init__).parameters.values():
        if COUNT.match(parameter.name) and type(parameter.default) is int:
            given[parameter.name] = 1
    given |= {
        key: value for key, value in SMALL.items() if key in inspect.signature(cls).parameters
    }
    with ExitStack() as stack:
        for module in ("Linear", "Conv2d", "Conv3d", "Conv1d", "Embedding"):
            stack.enter_context(mock.patch.object(getattr(torch.nn, module), "reset_parameters"))
        return cls(**given | options)


class Found(NamedTuple):
    """One class at one size: the largest angle, and the largest differences.

    table_error, ropewalk_error: of its own tables and of ropewalk's, from float64. rotation_error:
    of its own rotation of normal random vectors, from ropewalk's.
    """

    row: Row
    name: str
    spec: RotarySpec
    angle: float
    table_error: float
    ropewalk_error: float
    rotation_error: float

    @property
    def rounding(self) -> float:
        """How far float32 products of positions and frequencies, and their cosines, can be off."""
        return 8 * 2**-24 * max(1.0, self.angle) + 3e-7

    @property
    def equal(self) -> bool:
        """Whether all differences are rounding; random numbers are below 6."""
        of_rotation = 2**-7 if self.row.rounded else 0.0
        return (
            self.table_error <= self.rounding
            and self.ropewalk_error <= 1e-7
            and self.rotation_error <= 6 * (2 * self.rounding + of_rotation)
        )


def compared(row: Row, name: str, size: Size) -> Found:
    """Compare a class's own tables and rotation with ropewalk's at one size."""
    model = made(name, row.options)
    model_spec = ModelSpec.from_config(model)
    spec = model_spec.layer(0, row.stack or model_spec.main_stack).rope
    assert spec is not None
    at = evaluated(row.positions, size)
    own = row.own(model, size, at)
    x = torch.randn(1, at.shape[-1], 1, spec.head_dim, generator=torch.Generator().manual_seed(0))
    if row.form == "rotates":  # tables are what it makes of the first unit vector of each pair
        unit = torch.tensor([1.0, 0.0]).repeat(spec.pairs).expand_as(x)
        tables = row.rotation(unit, own)[0, :, 0].double().unflatten(-1, (-1, 2)).unbind(-1)
    else:  # LTX's have columns in front of dimensions that do not rotate
        tables = tuple(table[:, -spec.pairs :] for table in as_tables(own, row.form))
    length = at.shape[-1] if spec.needs_length else None
    along = at.double().reshape(spec.axis_count, -1)[list(spec.axis_of_pair)].T
    angles = along * spec.inverse_frequencies(length)
    exact = (spec.amplitude_at(length) * part for part in (angles.cos(), angles.sin()))
    rope = RotaryEmbedding(spec)
    ours = rope.tables(at, length=length)
    errors = [
        (float((theirs - e).abs().max()), float((mine - e).abs().max()))
        for theirs, mine, e in zip(tables, ours, exact, strict=True)
    ]
    rotated = rope.rotate(x, at, length=length, seq_dim=-3)
    difference = float((row.rotation(x, own).double() - rotated.double()).abs().max())
    theirs, mine = (max(column) for column in zip(*errors, strict=True))
    return Found(row, name, spec, float(angles.abs().max()), theirs, mine, difference)


def walk() -> Iterator[Found]:
    """Yield the comparison of each row's classes at both sizes."""
    for row in ROWS:
        for name in row.classes.split():
            for size in row.sizes:
                yield compared(row, name, size)


def table() -> dict[str, Any]:
    """Return one entry for each row and rope, with the largest differences of its classes."""
    rows: dict[tuple[int, str], dict[str, Any]] = {}
    for found in walk():
        entry = rows.setdefault(
            (ROWS.index(found.row), repr(found.spec)),
            {"classes": [], "stack": found.row.stack, "positions": found.row.positions,
             "spec": repr(found.spec), "angle": 0.0, "table_error": 0.0, "rotation_error": 0.0},
        )  # fmt: skip
        entry["classes"] = sorted({*entry["classes"], found.name})
        for key in ("angle", "table_error", "rotation_error"):
            entry[key] = float(f"{max(entry[key], getattr(found, key)):.2g}")
    return {
        "diffusers": diffusers.__version__,
        "torch": torch.__version__,
        "rows": [*rows.values()],
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(table(), indent=1) + "\n", "utf-8")
