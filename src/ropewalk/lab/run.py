"""A run folder: prepared once, then filled cell by cell, each in a process of its own."""

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


class CellFailed(RuntimeError):  # noqa: N818, it is no error of this process
    """A cell's process ended without a result; what it had written is still there."""


def cells_of(config: Config) -> list[Cell]:
    """Give the cells of a comparison, seed by seed, so that each seed is whole early."""
    return [Cell(encoding, seed) for seed in config.seeds for encoding in config.encodings]


def default_folder(config: Config) -> Path:
    """Give the run folder that a config has where none is named."""
    if config.task == "translation":
        return Path("runs") / config.preset
    return Path("runs") / f"{config.task}-{config.preset}"


def prepare(config: Config, run: Path) -> Task:
    """Read or draw the data and write what cells need: config, vocabulary, token ids.

    Gives the task. A folder that holds a run of another training config or other data is refused.
    """
    with _taken_by_the_system(run):
        for place in (run, *run.parents):
            if place.exists() and not place.is_dir():
                raise ValueError(f"--out must be a folder, got {run}, where {place} is a file")
    grid = [config.with_settings(point) for point in points(config.sweep, config.sweep)]
    for each in grid:
        check_memory(each, 1)  # before data is read; behind it the vocabulary is known
    remove_parts(run)
    task = open_task(config, run)
    digest = task.digest()
    if (run / "config.json").exists():
        _check_same(run, config, digest)
    with _taken_by_the_system(run):
        run.mkdir(parents=True, exist_ok=True)
    facts = task.prepare()
    for each in grid:
        check_memory(each, facts["vocabulary"])
    write_checked_json(run / "corpus.json", {"digest": digest, **facts})
    write_checked_json(run / "config.json", config.facts())
    return task


@contextmanager
def _taken_by_the_system(run: Path) -> Iterator[None]:
    """Make a mistake of the user's of what the system says of a run folder that can't be."""
    try:
        yield
    except (OSError, RecursionError) as error:
        why = "too many folders in one another"
        if isinstance(error, OSError):
            why = error.strerror or str(error)
        raise ValueError(
            f"--out must be a folder that can be made, got {shown(str(run))}: {why}; name another"
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
    """Run cells of a prepared run, ``jobs`` at a time (default: one for each core); give jobs.

    Those of the config if none are given; each is taken to the goal. ``watch`` hears their events.
    At Ctrl-C each cell saves its step before KeyboardInterrupt goes on, and so it does where
    listening to one fails, ``watch`` included. A failed cell does not stop the others; behind them
    all, ``CellFailed`` names it. Cells that another command works on come last, once it has left
    them.
    """
    cells = cells_of(config) if cells is None else cells
    most = cores() if pick_device(config.device).type == "cpu" else 1  # cells that fit at a time
    jobs = min(len(cells), jobs or most)
    pool = Pool(cells, run, jobs, watch, goal)
    # Python before 3.13 takes a thread for ended once its join() is interrupted: wait for events.
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
    """Train the config's first cell, score it where that is quickest, and give its model's file.

    A training that diverged leaves none: ``CellFailed`` says so.
    """
    for name in ("encodings", "seeds"):
        if len(found := getattr(config, name)) > 1:
            raise ValueError(
                f"{name} must name one to train one model, got {list(found)}; ropewalk compare "
                f"trains several"
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
            f"no finite number, and there is no model; take a lower learning_rate, now "
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
            f"{run} holds a run of another config: {'; '.join(differing)}; name another folder "
            f"with --out, or give the same config to go on with it"
        )
