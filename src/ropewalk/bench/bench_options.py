"""What `ropewalk bench` measures, read from a command line; each mistake is named in one line."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from ropewalk.bench.contenders import CONTENDERS, PEERS, WITH_COMPILER, Contender
from ropewalk.bench.workloads import WORKLOADS, Case, Workload
from ropewalk.machine import pick_device

DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16")}
SECONDS = 6.0
MOST_THREADS = 1024  # with far more, the system refuses threads and torch crashes


@dataclass(frozen=True)
class Plan:
    """What to measure: `rounds` rounds of each table, or as many as fit into `seconds`."""

    workloads: tuple[Workload, ...]
    dtypes: tuple[torch.dtype, ...]
    device: torch.device
    threads: int
    contenders: tuple[Contender, ...]
    seconds: float = SECONDS
    rounds: int | None = None

    def cases(self) -> Iterator[Case]:
        """Yield one case for each table."""
        for work in self.workloads:
            for form in work.forms:
                for dtype in self.dtypes:
                    yield Case(work, form, dtype, self.device)


def make_plan(
    work: str = "prefill,training,decode",
    dtype: str = "float32,bfloat16",
    threads: str | int | None = None,
    rounds: str | int | None = None,
    seconds: str | float = SECONDS,
    device: str = "auto",
    compiled: bool = False,
    workloads: Mapping[str, Sequence[Workload]] = WORKLOADS,
) -> Plan:
    """Return a plan from words; ValueError names the option, the rule and the value."""
    chosen = [workloads[name] for name in read_names("--work", work, workloads)]
    return Plan(
        workloads=tuple(each for group in chosen for each in group),
        dtypes=tuple(DTYPES[name] for name in read_names("--dtype", dtype, DTYPES)),
        device=pick_device(device),
        threads=read_threads(threads),
        contenders=(*CONTENDERS, *PEERS, *([WITH_COMPILER] if compiled else [])),
        seconds=read_seconds(seconds),
        rounds=None if rounds is None else read_whole("--rounds", rounds),
    )


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


def check_target(option: str, path: Path | None, endings: Sequence[str]) -> None:
    """Raise if a file could not be written, before minutes of measuring."""
    if path is None:
        return
    if path.suffix not in endings:
        raise ValueError(f"{option} must end in {' or '.join(endings)}, got {str(path)!r}")
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ValueError(f"{option} must be a file in a folder that can be written, got {path}")
    if option == "--figure" and find_spec("matplotlib") is None:
        raise ImportError(f"{option} needs matplotlib, which is not installed")


def read_names(option: str, text: str, known: Mapping[str, object]) -> list[str]:
    """Return the names in a list with commas, each once."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise ValueError(f"{option} must be of {', '.join(known)}, got {name!r}")
    return list(dict.fromkeys(names))


def read_whole(option: str, given: str | int) -> int:
    """Return a whole number of at least 1."""
    try:
        value = int(given)
    except ValueError:
        value = 0
    if value < 1:
        raise ValueError(f"{option} must be a whole number of at least 1, got {given!r}")
    return value


def read_threads(given: str | int | None) -> int:
    """Return a number of CPU threads; None stands for torch's own number."""
    value = torch.get_num_threads() if given is None else read_whole("--threads", given)
    if given is not None and value > MOST_THREADS:
        raise ValueError(f"--threads must be at most {MOST_THREADS:,}, got {value:,}")
    return value


def read_seconds(given: str | float) -> float:
    """Return a number of seconds."""
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not (0 <= value < math.inf):
        raise ValueError(f"--seconds must be a number of at least 0, got {given!r}")
    return value


PREFILL, DECODE, TRAINING = "prefill", "decode", "training"
WORK = (PREFILL, DECODE, TRAINING)
MODEL_SECONDS = 20.0
MOST_TOKENS = 1 << 20


@dataclass(frozen=True)
class ModelPlan:
    """What to measure: `rounds` rounds of each work, or as many as fit into `seconds`.

    path: a folder with config.json, with or without weights, or a config.json.
    tokens: length of prefill and training, and of the context in decode; None: what fits.
    """

    path: Path
    work: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    device: torch.device
    threads: int
    seconds: float = MODEL_SECONDS
    rounds: int | None = None
    tokens: int | None = None
    trust_remote_code: bool = False


def make_model_plan(
    path: Path,
    work: str = ",".join(WORK),
    dtype: str = "float32",
    threads: str | int | None = None,
    rounds: str | int | None = None,
    seconds: str | float = MODEL_SECONDS,
    device: str = "auto",
    tokens: str | int | None = None,
    trust_remote_code: bool = False,
) -> ModelPlan:
    """Return a plan from words; ValueError names the option, the rule and the value."""
    length = None if tokens is None else read_whole("--tokens", tokens)
    if length is not None and not 2 <= length <= MOST_TOKENS:
        raise ValueError(f"--tokens must be from 2 to {MOST_TOKENS:,}, got {length:,}")
    return ModelPlan(
        path,
        work=tuple(read_names("--work", work, dict.fromkeys(WORK))),
        dtypes=tuple(DTYPES[name] for name in read_names("--dtype", dtype, DTYPES)),
        device=pick_device(device),
        threads=read_threads(threads),
        seconds=read_seconds(seconds),
        rounds=None if rounds is None else read_whole("--rounds", rounds),
        tokens=length,
        trust_remote_code=trust_remote_code,
    )
