"""How many numbers the weights of a model's folder have, from the headers of its files."""

from __future__ import annotations

from math import prod
from pathlib import Path

from ropewalk.checks import shown
from ropewalk.files import shown_path
from ropewalk.tools.convert.safetensors_folder import INDEX, read_safetensors, read_weight_map

ALONE = "model.safetensors"


def count_weights(folder: Path) -> int:
    """Return how many numbers transformers loads from a folder; the weights are not read.

    A folder may have other files with the same weights, such as consolidated.safetensors.

    Raises ValueError that names the file if one is missing, damaged or cut off.
    """
    return sum(
        prod(tensor.shape) for file in _loaded(folder) for tensor in read_safetensors(file).tensors
    )


def _loaded(folder: Path) -> list[Path]:
    """Return the files that transformers loads: the whole model's, or those of the index."""
    if (folder / ALONE).is_file():
        return [folder / ALONE]
    index = folder / f"model{INDEX}"
    if not index.is_file():
        return sorted(folder.glob("*.safetensors"))
    names = {str(name) for name in read_weight_map(index).values()}
    for name in names:
        if Path(name).name != name:
            raise ValueError(
                f"{shown_path(index)} must name files of its folder, got {shown(name)}"
            )
    return [folder / name for name in sorted(names)]
