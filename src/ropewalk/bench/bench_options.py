"""What `ropewalk bench` measures, from its options; each mistake is named in one line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ropewalk.bench.contenders import CONTENDERS, PEERS, WITH_COMPILER, Contender
from ropewalk.bench.workloads import WORKLOADS, Case, Workload
from ropewalk.machine import pick_device

DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in ("float32", "bfloat16", "float16")
}
MOST_THREADS = 1024  # with far more, the system refuses threads and torch crashes
PREFILL, DECODE, TRAINING = "prefill", "decode", "training"
WORK = (PREFILL, DECODE, TRAINING)
MOST_TOKENS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """Where is measured, and how long: `rounds` rounds, or as many as fit into `seconds`."""

    dtypes: tuple[torch.dtype, ...]
    device: torch.device
    threads: int
    seconds: float
    rounds: int | None = None


@dataclass(frozen=True, kw_only=True)
class Plan(Conditions):
    """What to measure of rotations; rounds and seconds are those of each table."""

    workloads: tuple[Workload, ...]
    contenders: tuple[Contender, ...]

    def cases(self) -> Iterator[Case]:
        """Yield one case for each table."""
        for work in self.workloads:
            for form in work.forms:
                for dtype in self.dtypes:
                    yield Case(work, form, dtype, self.device)


@dataclass(frozen=True, kw_only=True)
class ModelPlan(Conditions):
    """What to measure of a model; rounds and seconds are those of each work.

    path: a folder with config.json, with or without weights, or a config.json.
    tokens: length of prefill and training, and of the context in decode; None: what fits.
    """

    path: Path
    work: tuple[str, ...]
    tokens: int | None = None
    trust_remote_code: bool = False


def make_plan(
    work: str = "prefill,training,decode",
    dtype: str | None = None,
    *,
    seconds: float | None = None,
    compiled: bool = False,
    workloads: Mapping[str, Sequence[Workload]] = WORKLOADS,
    **options: Any,
) -> Plan:
    """Return a plan from options; ValueError names the option, the rule and the value."""
    names = read_names("--work", work, workloads)
    return Plan(
        workloads=tuple(each for name in names for each in workloads[name]),
        contenders=(*CONTENDERS, *PEERS, *([WITH_COMPILER] if compiled else [])),
        **_conditions(dtype or "float32,bfloat16", 6.0 if seconds is None else seconds, **options),
    )


def make_model_plan(
    path: Path,
    work: str = ",".join(WORK),
    dtype: str | None = None,
    *,
    seconds: float | None = None,
    tokens: int | None = None,
    trust_remote_code: bool = False,
    **options: Any,
) -> ModelPlan:
    """Return a plan from options; ValueError names the option, the rule and the value."""
    if tokens is not None and not 2 <= tokens <= MOST_TOKENS:
        raise ValueError(f"--tokens must be from 2 to {MOST_TOKENS:,}, got {tokens:,}")
    return ModelPlan(
        path=path,
        work=tuple(read_names("--work", work, dict.fromkeys(WORK))),
        tokens=tokens,
        trust_remote_code=trust_remote_code,
        **_conditions(dtype or "float32", 20.0 if seconds is None else seconds, **options),
    )


def _conditions(
    dtype: str,
    seconds: float,
    device: str = "auto",
    threads: int | None = None,
    rounds: int | None = None,
) -> dict[str, Any]:
    """Return the fields that both plans have."""
    if threads is not None and threads > MOST_THREADS:
        raise ValueError(f"--threads must be at most {MOST_THREADS:,}, got {threads:,}")
    if not 0 <= seconds < math.inf:
        raise ValueError(f"--seconds must be a number of at least 0, got {seconds}")
    return {
        "dtypes": tuple(DTYPES[name] for name in read_names("--dtype", dtype, DTYPES)),
        "device": pick_device(device),
        "threads": torch.get_num_threads() if threads is None else threads,
        "seconds": seconds,
        "rounds": rounds,
    }


def read_names(option: str, text: str, known: Mapping[str, object]) -> list[str]:
    """Return the names in a list with commas, each once."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise ValueError(f"{option} must be of {', '.join(known)}, got {name!r}")
    return list(dict.fromkeys(names))


@contextmanager
def using_threads(threads: int) -> Iterator[None]:
    """Let torch use this number of threads, and restore its number afterwards."""
    before = torch.get_num_threads()
    if threads != before:  # setting even the same number makes MKL split work that is too small
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        if threads != before:
            torch.set_num_threads(before)
