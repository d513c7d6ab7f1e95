"""Snapshots of a model in training, and the mean of some that is scored at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropewalk.lab.checkpoint import check_finite, read_tensors


def snapshot_path(folder: Path, step: int) -> Path:
    """Return the path of the snapshot of this step."""
    return folder / f"snapshot-{step:07d}.safetensors"


def snapshots(folder: Path) -> list[Path]:
    """List the folder's snapshots, oldest first."""
    return sorted(folder.glob("snapshot-*.safetensors"))


def step_of(snapshot: Path) -> int:
    """Return the step at which a snapshot was taken."""
    return int(snapshot.stem.removeprefix("snapshot-"))


def best_snapshot(folder: Path, validation: Sequence[dict[str, float]]) -> Path:
    """Return the snapshot of the lowest validation loss."""
    return snapshot_path(folder, int(min(validation, key=lambda seen: seen["loss"])["step"]))


def chosen_snapshots(
    folder: Path, select: str, average: int, validation: Sequence[dict[str, float]]
) -> list[Path]:
    """Return the snapshots whose mean is scored: the last ones, or with select="best" the best.

    Raises ValueError if one of them is missing: the mean of the others is another model.
    """
    chosen = [snapshot_path(folder, int(seen["step"])) for seen in validation[-average:]]
    if select == "best":
        chosen = [best_snapshot(folder, validation)]
    gone = [path.name for path in chosen if not path.exists()]
    if gone:
        asked = "select=best" if select == "best" else f"average={average}"
        raise ValueError(
            f"{folder} lacks {', '.join(gone)}, which {asked} needs; restore it, or delete the "
            f"folder and run the same command to train the cell again"
        )
    return chosen


def mean_of(chosen: Sequence[Path]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the mean of these snapshots' parameters, and the facts of the last."""
    read = [read_tensors(path) for path in chosen]
    for path, (tensors, _) in zip(chosen, read, strict=True):
        check_finite(path, tensors)
        if tensors.keys() != read[0][0].keys():
            raise ValueError(f"{path} has other tensors than {chosen[0]}")
    mean = {
        name: torch.stack([tensors[name].double() for tensors, _ in read]).mean(0).float()
        for name in read[0][0]
    }
    return mean, read[-1][1]
