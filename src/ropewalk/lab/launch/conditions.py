"""What a cell's numbers depend on besides its config, fixed when a run is created.

The number of threads changes the order of sums, and `auto` precision depends on the machine. Cells
may run on other machines and under other launchers later, so a run records them once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from ropewalk.checks import shown
from ropewalk.files import read_checked_json, write_checked_json
from ropewalk.lab.config import Config
from ropewalk.machine import devices, pick_device, pick_precision

FILE = "conditions.json"


@dataclass(frozen=True)
class Conditions:
    """Threads of a cell, its device, and the precision of its training."""

    threads: int
    device: str
    precision: str


def read_conditions(run: Path) -> Conditions | None:
    """Return the conditions of a run; None for one of an earlier version."""
    path = run / FILE
    if not path.exists():
        return None
    held = read_checked_json(path, "threads", "device", "precision")
    return Conditions(int(held["threads"]), str(held["device"]), str(held["precision"]))


def fix_conditions(run: Path, config: Config, threads: int, *, gpus: float = 0) -> Conditions:
    """Return the conditions of a run; record them if it has none.

    threads: of a cell, for a new run. gpus: of a cell, on other machines. Raises ValueError if the
    config names another device than the run was created with.
    """
    held = read_conditions(run)
    if held is None:
        held = _conditions_of(config, threads, gpus)
        write_checked_json(run / FILE, asdict(held))
    if config.device not in ("auto", held.device):
        raise ValueError(
            f"{run} was created with device={held.device}, so device must be {held.device}, got "
            f"{shown(config.device)}; choose another folder with --out"
        )
    return held


def _conditions_of(config: Config, threads: int, gpus: float) -> Conditions:
    if not gpus or config.device not in ("auto", "cuda"):
        device = pick_device(config.device)
        return Conditions(threads, str(device), pick_precision(config.precision, device))
    if "cuda" in devices():
        return Conditions(threads, "cuda", pick_precision(config.precision, pick_device("cuda")))
    if config.precision == "auto":
        raise ValueError(
            "precision must be float32 or bfloat16 when cells run on GPUs of other machines, got "
            "auto, and this machine has no GPU to ask; add precision=bfloat16 if those GPUs "
            "support it"
        )
    return Conditions(threads, "cuda", config.precision)
