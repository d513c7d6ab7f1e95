"""The processes that torchrun started for one training, and what they agree on."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

T = TypeVar("T")

#: Set by torchrun in each process that it starts.
_SET_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
#: torchrun starts all processes together, so those that do not meet soon never do.
JOINS_WITHIN = timedelta(minutes=10)
#: The first process may score a cell for hours while the others wait. If a process dies, torchrun
#: ends all others, so nobody waits for it. Training steps have torch's own, shorter limits.
LONGEST_WAIT = timedelta(days=7)
_PARENT = os.getppid()


@dataclass(frozen=True)
class Group:
    """This process among those of one training; `Group()` is a process by itself."""

    rank: int = 0
    world: int = 1
    patient: dist.ProcessGroup | None = None  # all processes, for waits of any length

    @property
    def is_first(self) -> bool:
        """Whether this process prints, and writes all files except parts of checkpoints."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """Return the value of the first process."""
        if self.world == 1:
            return value
        held = [value]
        dist.broadcast_object_list(held, src=0, group=self.patient, device=torch.device("cpu"))
        return held[0]

    def gather(self, value: T) -> list[T]:
        """Return the values of all processes, in their order."""
        if self.world == 1:
            return [value]
        held: list[T] = [value] * self.world
        dist.all_gather_object(held, value, group=self.patient)
        return held

    def sum(self, *values: float) -> list[float]:
        """Return the sums over all processes, in double precision."""
        if self.world == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(sums, group=self.patient)
        return [float(total) for total in sums]

    def wait(self) -> None:
        """Wait until every process is here."""
        self.sum(0.0)


ALONE = Group()


def is_launched() -> bool:
    """Return whether torchrun, or a launcher that sets the same variables, started this process."""
    return all(name in os.environ for name in _SET_BY_TORCHRUN)


def is_first_process() -> bool:
    """Return whether this process prints and writes: the only one, or the first under torchrun."""
    return not is_launched() or os.environ["RANK"] == "0"


def join(device: str) -> Group:
    """Join the processes that torchrun started and return the group, or `Group()` without torchrun.

    On GPUs, each process uses the one with its number on its machine. Raises ValueError if `device`
    is a single GPU, if a machine has fewer GPUs than processes, or if the processes do not meet.
    """
    if not is_launched():
        return ALONE
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda under torchrun, got {device!r}")
    return _joined(on_gpus=device != "cpu" and torch.cuda.is_available())


@cache
def _joined(*, on_gpus: bool) -> Group:
    if on_gpus:
        number, has = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
        if number >= has:
            raise ValueError(
                f"--nproc-per-node must be at most the {has} GPUs of this machine, got a process "
                f"number {number + 1}; start fewer processes, or set device=cpu"
            )
        torch.cuda.set_device(number)
    try:
        if not dist.is_initialized():  # by the program that calls this package
            backend = "cpu:gloo,cuda:nccl" if on_gpus else "gloo"
            store, rank, world = next(rendezvous("env://", timeout=JOINS_WITHIN))
            dist.init_process_group(backend, store=store, rank=rank, world_size=world)
            atexit.register(_leave)
        patient = dist.new_group(backend="gloo", timeout=LONGEST_WAIT)
    except (RuntimeError, ValueError) as error:
        why = str(error).splitlines()[0][:200]
        found = ", ".join(f"{name}={os.environ[name]}" for name in _SET_BY_TORCHRUN)
        raise ValueError(
            f"the processes of one training must meet, got {found}: {why}; start them with "
            f"torchrun, which sets these variables"
        ) from None
    return Group(dist.get_rank(), dist.get_world_size(), patient)


def share_on_device(parallel: str, *, on_gpu: bool) -> float:
    """Return how many models a device must train: a part of one with FSDP, or several on a CPU."""
    if not is_launched():
        return 1.0
    here = 1 if on_gpu else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return here / int(os.environ["WORLD_SIZE"]) if parallel == "fsdp" else float(here)


def is_orphan() -> bool:
    """Return whether the process that started this one has ended, as when torchrun was killed."""
    return os.getppid() != _PARENT


@contextmanager
def failures_in_words() -> Iterator[None]:
    """Raise ConnectionError if torch fails to reach another process, which has its own message."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise ConnectionError(
            "another process of this training has ended, or no longer answers; run the same "
            "command again to resume"
        ) from None


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
