"""A run folder: prepared once, then filled by one process per cell.

Its conditions are what a cell's numbers depend on besides the config. The number of threads changes
the order of sums, and `auto` precision depends on the machine. Cells may run on other machines and
under other launchers later, so a run records them once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from ropewalk.checks import shown
from ropewalk.files import Busy, locked, read_checked_json, remove_parts, write_checked_json
from ropewalk.lab.config import Config, points
from ropewalk.lab.config_sources import read_run_config
from ropewalk.lab.data.stream import Progress, silent
from ropewalk.lab.running.encoding_probe import check_encodings
from ropewalk.lab.running.launcher import Launcher, LocalLauncher
from ropewalk.lab.tasks import Task, open_task
from ropewalk.lab.training.checkpoints import differences, training_fields
from ropewalk.lab.training.process_group import (
    failures_in_words,
    is_launched,
    join,
    share_on_device,
)
from ropewalk.machine import check_fits, cores, devices, pick_device, pick_precision

CONDITIONS_FILE = "conditions.json"


@dataclass(frozen=True)
class Conditions:
    """Threads of a cell, its device, and the precision of its training."""

    threads: int
    device: str
    precision: str


def read_conditions(run: Path) -> Conditions:
    """Return the conditions of a run, which its first command fixes."""
    return Conditions(**read_checked_json(run / CONDITIONS_FILE))


def fix_conditions(config: Config, run: Path, at_once: int, launcher: Launcher) -> Conditions:
    """Return the conditions of a run; record them if it has none.

    Threads: OMP_NUM_THREADS, or a cell's share of the cores; 1 on other machines. Raises ValueError
    if the config names another device than the run was created with.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "")
    threads = 1 if launcher.at_once else max(1, cores() // at_once)
    if asked.isdecimal() and int(asked):
        threads = int(asked)
    with alone(run):  # two commands may begin at the same time
        if not os.path.lexists(run / CONDITIONS_FILE):
            made = _new_conditions(config, threads, launcher.gpus)
            write_checked_json(run / CONDITIONS_FILE, asdict(made))
        conditions = read_conditions(run)
    if config.device not in ("auto", conditions.device):
        raise ValueError(
            f"{run} was created with device={conditions.device}, so device must be "
            f"{conditions.device}, got {shown(config.device)}; choose another folder with --out"
        )
    return conditions


def _new_conditions(config: Config, threads: int, gpus: float) -> Conditions:
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


PREPARES_WITHIN = 3600.0  # seconds that another command may take to prepare the data


def default_folder(config: Config) -> Path:
    """Return the default run folder of a config."""
    if config.task == "translation":
        return Path("runs") / config.preset
    return Path("runs") / f"{config.task}-{config.preset}"


def prepare(
    config: Config, run: Path, progress: Progress = silent, *, elsewhere: bool = False
) -> Task:
    """Read or generate the data, write what cells need (config, token ids), and return the task.

    `progress` is called with a step's name, what is done of it, and the total, if it is known.
    elsewhere: whether cells run on other machines, whose memory is not known here. Raises
    ValueError if the folder has a run with another training config or other data. Under torchrun,
    the first process does this and the others wait.
    """
    if not is_launched():
        return _prepare(config, run, progress, elsewhere=elsewhere)
    if elsewhere:
        raise ValueError(
            "--launcher must be local under torchrun, whose processes train one cell together; "
            "leave out one of the two"
        )
    group, prepared = join(config.device), False
    if not group.is_first:
        with failures_in_words():
            prepared = group.broadcast(False)  # what the first process says
        if prepared:
            return open_task(config, run)
        raise SystemExit(2)  # the first process says why
    try:
        task = _prepare(config, run, progress, elsewhere=False)
        fix_conditions(config, run, 1, LocalLauncher())
        prepared = True
    finally:
        with failures_in_words():
            group.broadcast(prepared)
    return task


def _prepare(config: Config, run: Path, progress: Progress, *, elsewhere: bool) -> Task:
    with _as_user_error(run):
        for place in (run, *run.parents):
            if place.exists() and not place.is_dir():
                raise ValueError(f"--out must be a folder, got {run}, but {place} is a file")
    grid = [config.with_settings(point) for point in points(config.sweep, config.sweep)]
    checked = [] if elsewhere else grid
    for each in checked:
        check_memory(each, 1)  # before data is read; again below, with the vocabulary
    on_cpu = not elsewhere and pick_device(config.device).type == "cpu"
    check_encodings(grid, elsewhere=not on_cpu)
    task = open_task(config, run)
    task.progress = progress
    digest = task.digest()
    with _as_user_error(run):
        run.mkdir(parents=True, exist_ok=True)
    with alone(run):
        remove_parts(run)
        if os.path.lexists(run / "config.json"):
            _check_same(run, config, digest)
        facts = task.prepare()
        for each in checked:
            check_memory(each, facts["vocabulary"])
        write_checked_json(run / "corpus.json", {"digest": digest, **facts})
        write_checked_json(run / "config.json", config.facts())
    return task


@contextmanager
def alone(run: Path) -> Iterator[None]:
    """Wait until no other command of this machine changes the folder, and keep others waiting."""
    until = time.monotonic() + PREPARES_WITHIN
    while True:
        try:
            with locked(run):
                yield
            return
        except Busy:
            if time.monotonic() > until:
                raise ValueError(
                    f"{run} is being prepared by another command; wait for it, or end it"
                ) from None
            time.sleep(0.2)


@contextmanager
def _as_user_error(run: Path) -> Iterator[None]:
    """Turn a system error about the run folder into a ValueError about --out."""
    try:
        yield
    except (OSError, RecursionError) as error:
        deep = "too many nested folders"
        why = error.strerror or str(error) if isinstance(error, OSError) else deep
        raise ValueError(
            f"--out must be a folder that can be created, got {shown(str(run))}: {why}; "
            f"choose another"
        ) from None


def _check_same(run: Path, config: Config, digest: str) -> None:
    differing = differences(training_fields(read_run_config(run)), training_fields(config))
    corpus = run / "corpus.json"
    if corpus.exists() and read_checked_json(corpus, "digest")["digest"] != digest:
        differing.append("the data has changed since")
    if differing:
        raise ValueError(
            f"{run} has a run with another config: {'; '.join(differing)}; choose another folder "
            f"with --out, or use the same config to resume it"
        )


#: Per parameter in float32: the parameter, its gradient and Adam's two means.
BYTES_OF_TRAINING = 16


def fewest_parameters(config: Config, vocabulary: int) -> int:
    """Return the number of parameters in the model's large matrices, without building it."""
    shape = config.shape(vocabulary)
    width = shape.width
    kv_width = width // shape.heads * (shape.kv_heads or shape.heads)
    attention = 2 * width * (width + kv_width)
    feed_forward = 2 * width * shape.feed_forward
    crossing = shape.decoder_layers if config.task == "translation" else 0
    layers = shape.encoder_layers + shape.decoder_layers
    return vocabulary * width + layers * (attention + feed_forward) + crossing * attention


def check_memory(config: Config, vocabulary: int) -> None:
    """Raise ValueError if the model's training cannot fit in the device's total memory."""
    device = pick_device(config.device)
    count = fewest_parameters(config, vocabulary)
    needs = (
        count * BYTES_OF_TRAINING * share_on_device(config.parallel, on_gpu=device.type != "cpu")
    )
    check_fits(
        needs,
        device,
        rule="the model must fit into memory",
        what=f"the training of its {count:,} parameters needs about",
        ways={"a smaller width or feed_forward, or fewer layers": 0},
        of_total=True,
    )
