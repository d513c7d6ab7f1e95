"""A run folder: prepared once, then filled cell by cell, each in a process of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ropewalk.checks import shown
from ropewalk.files import (
    MOST_DATA_BYTES,
    Facts,
    read_checked_json,
    remove_parts,
    write_checked_json,
)
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import Config, read_run_config
from ropewalk.lab.locks import is_locked
from ropewalk.lab.models import check_memory
from ropewalk.lab.tasks import Task, open_task
from ropewalk.lab.train import read_record
from ropewalk.lab.worker import BUSY, INTERRUPTED, STOP_WITH_PARENT
from ropewalk.machine import cores, pick_device

#: Hears a cell's events.
Watch = Callable[[Cell, dict[str, Any]], None]

MOST_NOISE, MOST_OF_A_LINE = 200, 2_000  # lines and characters that are kept of what a cell prints
ASK_AGAIN = 0.5  # seconds between two looks at a cell that another command works on


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
    check_memory(config, 1)  # before data is read; behind it the vocabulary is known
    remove_parts(run)
    task = open_task(config, run)
    digest = task.digest()
    if (run / "config.json").exists():
        _check_same(run, config, digest)
    with _taken_by_the_system(run):
        run.mkdir(parents=True, exist_ok=True)
    facts = task.prepare()
    check_memory(config, facts["vocabulary"])
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
) -> int:
    """Run all cells of a prepared run, ``jobs`` at a time (default: one for each core); give jobs.

    ``watch`` hears each cell's events. At Ctrl-C each cell saves its step before KeyboardInterrupt
    goes on, and so it does where listening to one fails, ``watch`` included. A failed cell does not
    stop the others; behind them all, ``CellFailed`` names it. Cells that another command works on
    come last, once it has left them.
    """
    cells = cells_of(config)
    most = cores() if pick_device(config.device).type == "cpu" else 1  # cells that fit at a time
    jobs = min(len(cells), jobs or most)
    pool = _Pool(cells, run, jobs, watch)
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


class _Pool:
    """Cells that wait and cells that run; each of several threads runs one at a time."""

    def __init__(self, cells: list[Cell], run: Path, jobs: int, watch: Watch) -> None:
        self.run, self.watch, self.threads = run, watch, threads_of_a_cell(jobs)
        self.waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
        for cell in cells:
            self.waiting.put(cell)
        self.running: dict[Cell, subprocess.Popen[str]] = {}
        self.failures: list[str] = []
        self.broken: list[BaseException] = []  # what ended a thread
        self.told: set[Cell] = set()  # whose other command the watcher has heard of
        self.stopping = threading.Event()

    def work_to(self, end: threading.Event) -> None:
        """Run cells until none waits, then set the event; what breaks a thread stops all cells."""
        try:
            self._work()
        except BaseException as error:
            self.broken.append(error)
            self.stop()
        finally:
            end.set()

    def stop(self) -> None:
        """Start no further cell, and let those that run save and end."""
        self.stopping.set()
        for process in list(self.running.values()):
            process.send_signal(signal.SIGINT)

    def _work(self) -> None:
        while not self.stopping.is_set():
            try:
                cell = self.waiting.get_nowait()
            except queue.Empty:
                return
            if is_locked(cell.folder(self.run)):
                self._put_back(cell)
                continue
            code, error = self._run(cell)
            if code == BUSY:
                self.waiting.put(cell)
            elif error is not None and not self.stopping.is_set():
                self.failures.append(f"{cell}: {error}")

    def _run(self, cell: Cell) -> tuple[int, str | None]:
        """Run a cell to its end; give its exit status, and what went wrong if anything did."""
        with _start(self.run, cell, self.threads) as process:
            self.running[cell] = process
            if self.stopping.is_set():
                process.send_signal(signal.SIGINT)
            try:
                error = _follow(process, cell, self.watch)
            except BaseException:
                assert process.stdin is not None
                process.stdin.close()  # its end: the cell saves, and is not waited for in vain
                raise
            finally:
                del self.running[cell]
        return process.returncode, error

    def _put_back(self, cell: Cell) -> None:
        """Put a cell that another command works on behind those that wait, and say so once."""
        if cell not in self.told:
            self.told.add(cell)
            self.watch(cell, {"phase": "another command works on it"})
        self.waiting.put(cell)
        self.stopping.wait(ASK_AGAIN)


def threads_of_a_cell(jobs: int) -> int:
    """Give the threads that each of so many cells gets: its share, or what OMP_NUM_THREADS says."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdecimal() and int(threads) else max(1, cores() // jobs)


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


def _start(run: Path, cell: Cell, threads: int) -> subprocess.Popen[str]:
    # -P: the working directory, whatever lies there, is no place to import from.
    words = [sys.executable, "-P", "-m", "ropewalk.lab.worker", str(run), cell.encoding]
    # A session of its own: Ctrl-C reaches this process, which passes it on once. Nothing is written
    # to standard input: its end tells the cell that this process is gone.
    return subprocess.Popen(
        [*words, str(cell.seed), STOP_WITH_PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",  # an imported encoding may print any bytes
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"},
        start_new_session=True,
    )


def _follow(process: subprocess.Popen[str], cell: Cell, watch: Watch) -> str | None:
    """Pass on a cell's events until it ends; give what went wrong, if anything did."""
    assert process.stdout is not None
    assert process.stderr is not None
    noise: deque[str] = deque(maxlen=MOST_NOISE)
    read = partial(process.stderr.readline, MOST_OF_A_LINE)
    reader = threading.Thread(target=lambda: noise.extend(iter(read, "")), daemon=True)
    reader.start()
    error, outcome = None, "finished"
    watch(cell, {"phase": "starting"})
    for line in process.stdout:
        event = json.loads(line)
        error, outcome = event.get("error", error), event.get("ended", outcome)
        watch(cell, event)
    code = process.wait()
    reader.join()
    if code and error is None:
        error = "".join(noise).strip() or f"the process ended with status {code}"
    if code == BUSY:
        return None
    if code == 0:
        for said in noise:
            watch(cell, {"printed": said.rstrip("\n")})
    ended = {0: outcome, INTERRUPTED: "interrupted"}
    watch(cell, {"phase": ended.get(code, "failed")})
    return error if code else None


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
