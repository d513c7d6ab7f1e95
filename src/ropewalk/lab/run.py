"""A run folder: prepared once, then filled by one process per cell."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ropewalk.checks import shown
from ropewalk.files import (
    MOST_DATA_BYTES,
    Busy,
    Facts,
    locked,
    read_checked_json,
    remove_parts,
    write_checked_json,
)
from ropewalk.lab.cells import Cell, CellFailed
from ropewalk.lab.config import Config
from ropewalk.lab.config_reader import read_run_config
from ropewalk.lab.data.stream import Progress, silent
from ropewalk.lab.distributed.group import is_launched
from ropewalk.lab.done import done_before
from ropewalk.lab.launch.conditions import Conditions, fix_conditions
from ropewalk.lab.launch.launcher import Launcher
from ropewalk.lab.launch.local import LocalLauncher
from ropewalk.lab.launch.scheduler import Scheduler, Watch
from ropewalk.lab.models import check_memory
from ropewalk.lab.sweep import Goal, points
from ropewalk.lab.tasks import Task, open_task
from ropewalk.lab.train import read_record
from ropewalk.machine import cores, pick_device

PREPARES_WITHIN = 3600.0  # seconds that another command may take to prepare the data


def cells_of(config: Config) -> list[Cell]:
    """Return the cells of a comparison, seed by seed, so that each seed is complete early."""
    return [Cell(encoding, seed) for seed in config.seeds for encoding in config.encodings]


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
    if is_launched():
        if elsewhere:
            raise ValueError(
                "--launcher must be local under torchrun, whose processes train one cell together; "
                "leave out one of the two"
            )
        from ropewalk.lab.distributed.cells import prepare_together

        return prepare_together(config, run, lambda: _prepare_for_all(config, run, progress))
    return _prepare(config, run, progress, elsewhere=elsewhere)


def _prepare_for_all(config: Config, run: Path, progress: Progress) -> Task:
    task = _prepare(config, run, progress, elsewhere=False)
    conditions_of(config, run, 1, LocalLauncher())
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
    task = open_task(config, run)
    task.progress = progress
    digest = task.digest()
    with _as_user_error(run):
        run.mkdir(parents=True, exist_ok=True)
    with _alone(run):
        remove_parts(run)
        if (run / "config.json").exists():
            _check_same(run, config, digest)
        facts = task.prepare()
        for each in checked:
            check_memory(each, facts["vocabulary"])
        write_checked_json(run / "corpus.json", {"digest": digest, **facts})
        write_checked_json(run / "config.json", config.facts())
    return task


@contextmanager
def _alone(run: Path) -> Iterator[None]:
    """Wait until no other command of this machine prepares the folder, and keep others waiting."""
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
        why = "too many nested folders"
        if isinstance(error, OSError):
            why = error.strerror or str(error)
        raise ValueError(
            f"--out must be a folder that can be created, got {shown(str(run))}: {why}; "
            f"choose another"
        ) from None


def run_cells(
    config: Config,
    run: Path,
    jobs: int | None = None,
    watch: Watch = lambda cell, event: None,
    *,
    cells: Sequence[Cell] | None = None,
    goal: Goal = "scored",
    launcher: Launcher | None = None,
) -> int:
    """Run cells of a prepared run up to the goal; return how many could run together.

    Default: all cells of the config, one per core of this machine. `watch` receives their events.
    A cell that has reached the goal already is not started, and its files stay as they are.
    At Ctrl-C, or if reading events or `watch` fails, each cell saves its step before the exception
    is raised. A failed cell does not stop the others; `CellFailed` names it when all have ended.
    Cells that another command is running come last, when it has finished them. Under torchrun, all
    processes train one cell together, and then the next.
    """
    cells = cells_of(config) if cells is None else cells
    if is_launched():
        from ropewalk.lab.distributed.cells import run_cells_together

        run_cells_together(config, run, cells, goal, watch)
        return 1
    launcher = launcher or LocalLauncher()
    at_once = cells_at_once(config, len(cells), jobs, launcher)
    threads = conditions_of(config, run, at_once, launcher).threads

    def done(cell: Cell) -> str:
        try:
            record = done_before(cell, run, config, goal)
        except (ValueError, OSError):
            return ""  # the cell's own process says what is wrong
        if record and record.status == "diverged":
            return f"diverged after {record.step} steps"
        return "finished" if record else ""

    scheduler = Scheduler(cells, run, launcher, at_once, threads, watch, goal, done)
    scheduler.work()
    if scheduler.failures:
        raise CellFailed("; ".join(sorted(scheduler.failures)))
    return at_once


def cells_at_once(config: Config, cells: int, jobs: int | None, launcher: Launcher) -> int:
    """Return how many cells may run together: --jobs, or what the launcher has room for."""
    most = launcher.at_once
    if most is None:  # on this machine: one cell per core, or per GPU
        most = 1 if not launcher.gpus and pick_device(config.device).type != "cpu" else cores()
    return max(1, min(cells, jobs or most))


def conditions_of(config: Config, run: Path, at_once: int, launcher: Launcher) -> Conditions:
    """Return the conditions of a run, which its first command fixes.

    Threads: OMP_NUM_THREADS, or a cell's share of the cores; 1 on other machines.
    """
    said = os.environ.get("OMP_NUM_THREADS", "")
    threads = 1 if launcher.at_once else max(1, cores() // at_once)
    if said.isdecimal() and int(said):
        threads = int(said)
    with _alone(run):  # two commands may begin at the same time
        return fix_conditions(run, config, threads, gpus=launcher.gpus)


def train_one(
    config: Config,
    run: Path,
    watch: Watch,
    launcher: Launcher | None = None,
    progress: Progress = silent,
) -> Path:
    """Train the config's only cell, score it on one quick split, and return its model's path.

    Raises `CellFailed` if training diverged: then there is no model.
    """
    for name in ("encodings", "seeds"):
        if len(found := getattr(config, name)) > 1:
            raise ValueError(
                f"{name} must have one value to train one model, got {list(found)}; "
                f"ropewalk compare trains several"
            )
    if config.sweep:
        raise ValueError(
            f"sweep must be empty to train one model, got {shown(dict(config.sweep))}; ropewalk "
            f"compare tries its values"
        )
    quickest: Facts = {"length_multiples": (1,)}
    if config.task == "translation":
        quickest = {"splits": ("validation",)}
    config = config.model_copy(update=quickest)
    elsewhere = launcher is not None and launcher.name != "local"
    prepare(config, run, progress, elsewhere=elsewhere)
    run_cells(config, run, watch=watch, launcher=launcher)
    cell = cells_of(config)[0]
    path = cell.folder(run) / "training.json"
    record = read_record(path, read_checked_json(path, most_bytes=MOST_DATA_BYTES))
    if record.status == "diverged":
        raise CellFailed(
            f"{cell}: training diverged after {record.step} of {record.steps} steps: its loss is "
            f"not finite, and there is no model; choose a lower learning_rate than "
            f"{config.learning_rate:g}, or a longer warmup, and another folder with --out"
        )
    return path.with_name("model.safetensors")


def _check_same(run: Path, config: Config, digest: str) -> None:
    held = read_run_config(run).training()
    differing = [
        f"{name} is {held.get(name)!r} there and {value!r} here"
        for name, value in config.training().items()
        if held.get(name) != value
    ]
    corpus = run / "corpus.json"
    if corpus.exists() and read_checked_json(corpus, "digest")["digest"] != digest:
        differing.append("the data has changed since")
    if differing:
        raise ValueError(
            f"{run} has a run with another config: {'; '.join(differing)}; choose another folder "
            f"with --out, or use the same config to resume it"
        )
