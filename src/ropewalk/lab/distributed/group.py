"""The processes that torchrun started for one training, and what they agree on."""

from __future__ import annotations

import atexit
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")

#: Set by torchrun in each process that it starts.
_SET_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
#: The first process may score a cell for hours while the others wait. If a process dies, torchrun
#: ends all others, so nobody waits for it.
LONGEST_WAIT = timedelta(days=7)


@dataclass(frozen=True)
class Group:
    """This process among those of one training; `Group()` is a process by itself."""

    rank: int = 0
    world: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process prints, and writes all files except parts of checkpoints."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """Return the value of the first process."""
        if self.world == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0, device=torch.device("cpu"))
        return held[0]

    def sum(self, *values: float) -> list[float]:
        """Return the sums over all processes, in double precision."""
        if self.world == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums)
        found: list[float] = sums.tolist()
        return found

    def wait(self) -> None:
        """Wait until every process is here."""
        self.sum(0.0)


def is_launched() -> bool:
    """Return whether torchrun, or a launcher that sets the same variables, started this process."""
    return all(name in os.environ for name in _SET_BY_TORCHRUN)


def is_first_process() -> bool:
    """Return whether this process prints and writes: the only one, or the first under torchrun."""
    return not is_launched() or os.environ["RANK"] == "0"


def join(device: str) -> Group:
    """Join the processes that torchrun started and return the group, or `Group()` without torchrun.

    On GPUs, each process uses the one with its number on its machine. Raises ValueError if `device`
    is a single GPU, or if a machine has fewer GPUs than processes.
    """
    if not is_launched():
        return Group()
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda under torchrun, got {device!r}")
    if not dist.is_initialized():
        backend = "gloo"
        if device != "cpu" and torch.cuda.is_available():
            backend = "cpu:gloo,cuda:nccl"
            torch.cuda.set_device(_own_gpu())
        options: dict[str, Any] = {"timeout": LONGEST_WAIT}
        dist.init_process_group(backend, **options)
        atexit.register(_leave)
    return Group(dist.get_rank(), dist.get_world_size())


def _own_gpu() -> int:
    number, has = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if number >= has:
        raise ValueError(
            f"--nproc-per-node must be at most the {has} GPUs of this machine, got a process "
            f"number {number + 1}; start fewer processes, or set device=cpu"
        )
    return number


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
