"""A run folder: prepared once, then filled by one process per cell."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ropewalk.checks import shown
from ropewalk.files import (
    MOST_DATA_BYTES,
    Facts,
    read_checked_json,
    remove_parts,
    write_checked_json,
)
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import Config
from ropewalk.lab.config_reader import read_run_config
from ropewalk.lab.models import check_memory
from ropewalk.lab.processes import Pool, Watch
from ropewalk.lab.sweep import Goal, points
from ropewalk.lab.tasks import Task, open_task
from ropewalk.lab.train import read_record
from ropewalk.machine import cores, pick_device


class CellFailed(RuntimeError):  # noqa: N818, not an error of this process
    """A cell's process ended without a result; its files are still there."""


def cells_of(config: Config) -> list[Cell]:
    """Return the cells of a comparison, seed by seed, so that each seed is complete early."""
    return [Cell(encoding, seed) for seed in config.seeds for encoding in config.encodings]


def default_folder(config: Config) -> Path:
    """Return the default run folder of a config."""
    if config.task == "translation":
        return Path("runs") / config.preset
    return Path("runs") / f"{config.task}-{config.preset}"


def prepare(config: Config, run: Path) -> Task:
    """Read or generate the data, write what cells need (config, token ids), and return the task.

    Raises ValueError if the folder has a run with another training config or other data.
    """
    with _as_user_error(run):
        for place in (run, *run.parents):
            if place.exists() and not place.is_dir():
                raise ValueError(f"--out must be a folder, got {run}, but {place} is a file")
    grid = [config.with_settings(point) for point in points(config.sweep, config.sweep)]
    for each in grid:
        check_memory(each, 1)  # before data is read; again below, with the vocabulary
    remove_parts(run)
    task = open_task(config, run)
    digest = task.digest()
    if (run / "config.json").exists():
        _check_same(run, config, digest)
    with _as_user_error(run):
        run.mkdir(parents=True, exist_ok=True)
    facts = task.prepare()
    for each in grid:
        check_memory(each, facts["vocabulary"])
    write_checked_json(run / "corpus.json", {"digest": digest, **facts})
    write_checked_json(run / "config.json", config.facts())
    return task


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
) -> int:
    """Run cells of a prepared run up to the goal; return how many ran in parallel.

    Default: all cells of the config, one per core in parallel. `watch` receives their events. At
    Ctrl-C, or if reading events or `watch` fails, each cell saves its step before the exception is
    raised. A failed cell does not stop the others; `CellFailed` names it when all have ended.
    Cells that another command is running come last, when it has finished them.
    """
    cells = cells_of(config) if cells is None else cells
    most = cores() if pick_device(config.device).type == "cpu" else 1  # one cell per GPU
    jobs = min(len(cells), jobs or most)
    pool = Pool(cells, run, jobs, watch, goal)
    # Before 3.13, Python considers a thread ended once its join() is interrupted: wait for events.
    ended = [threading.Event() for _ in range(jobs)]
    for end in ended:
        threading.Thread(target=pool.work_to, args=(end,), daemon=True).start()
    try:
        for end in ended:
            while not end.wait(0.2):
                pass
    except KeyboardInterrupt:
        pool.stop()
        for end in ended:
            end.wait(60)
        raise
    if pool.broken:
        raise pool.broken[0]
    if pool.failures:
        raise CellFailed("; ".join(sorted(pool.failures)))
    return jobs


def train_one(config: Config, run: Path, watch: Watch) -> Path:
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
    prepare(config, run)
    run_cells(config, run, watch=watch)
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
