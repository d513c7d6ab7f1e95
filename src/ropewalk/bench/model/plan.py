"""What to measure in a model, read from a command line; each mistake is named in one line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ropewalk.bench.plan import DTYPES, read_names, read_seconds, read_threads, read_whole
from ropewalk.machine import pick_device

PREFILL, DECODE, TRAINING = "prefill", "decode", "training"
WORK = (PREFILL, DECODE, TRAINING)
SECONDS = 20.0
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
    seconds: float = SECONDS
    rounds: int | None = None
    tokens: int | None = None
    trust_remote_code: bool = False


def make_model_plan(
    path: Path,
    work: str = ",".join(WORK),
    dtype: str = "float32",
    threads: str | int | None = None,
    rounds: str | int | None = None,
    seconds: str | float = SECONDS,
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
