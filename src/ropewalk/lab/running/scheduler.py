"""Runs the cells of a run to their goal: starts them with a launcher and follows their events."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ropewalk.checks import shown
from ropewalk.files import Facts
from ropewalk.lab.cells import Cell, cells_of
from ropewalk.lab.config import Config, Goal
from ropewalk.lab.data.stream import Progress, silent
from ropewalk.lab.running.cell import done_before
from ropewalk.lab.running.events import EventReader, Watch
from ropewalk.lab.running.launcher import End, Job, Launcher, LocalLauncher, Start
from ropewalk.lab.running.lease import Sightings
from ropewalk.lab.running.run_folder import fix_conditions, prepare
from ropewalk.lab.stopping import BUSY, INTERRUPTED, CellFailed
from ropewalk.lab.training.process_group import is_launched
from ropewalk.lab.training.trainer import ended_training
from ropewalk.machine import cores, pick_device

ASK_AGAIN = 0.5  # seconds between two looks at a cell that another command is running
LOOKS_EVERY = 0.1  # seconds, and more for many cells
STARTS_AGAIN = 60.0  # seconds until a cluster that refused cells is asked again
SAVES_WITHIN = 60.0  # seconds for running cells to save after Ctrl-C
RESTARTS = 5  # of a cell whose job was killed, or whose machine died


@dataclass
class _Running:
    job: Job
    events: EventReader
    error: str | None = None
    outcome: str = "finished"


class Scheduler:
    """Waiting and running cells. The run's folder says what is done, so another can go on."""

    def __init__(
        self,
        cells: Sequence[Cell],
        run: Path,
        launcher: Launcher,
        at_once: int,
        threads: int,
        watch: Watch,
        goal: Goal,
        done: Callable[[Cell], str] = lambda cell: "",
    ) -> None:
        """done: returns how a cell ended that has reached the goal, or ""."""
        self._run, self._launcher, self._at_once = run, launcher, at_once
        self._threads, self._watch, self._goal, self._done = threads, watch, goal, done
        self._waiting = deque(cells)
        self._running: dict[Cell, _Running] = {}
        self._sightings = Sightings()
        self._told: set[Cell] = set()  # cells of another command that the watcher knows about
        self._asked: dict[Cell, float] = {}
        self._restarts: dict[Cell, int] = {}  # of cells that a cluster interrupted
        self._stopping = False
        self.failures: list[str] = []

    def work(self) -> None:
        """Run all cells. At an exception, such as Ctrl-C, running cells save first."""
        try:
            while self._waiting or self._running:
                self._look()
                self._start()
                time.sleep(max(LOOKS_EVERY, len(self._running) / 100))
        except BaseException:
            self._stop()
            raise

    def _start(self) -> None:
        """Start waiting cells that no other command is running, as many as may run together."""
        ready: list[Cell] = []
        for _ in range(len(self._waiting)):
            if len(self._running) + len(ready) >= self._at_once:
                break
            cell = self._waiting.popleft()
            if self._is_held(cell):
                self._waiting.append(cell)
            elif how := self._done(cell):
                self._watch(cell, {"phase": f"already {how}"})
            else:
                ready.append(cell)
        if not ready:
            return
        starts = [
            Start(
                run=self._run.resolve(),
                cell=cell,
                goal=self._goal,
                threads=self._threads,
                attempt=uuid4().hex,
                dead=self._sightings.mark(cell.folder(self._run)),
            )
            for cell in ready
        ]
        try:
            jobs = self._launcher.start(starts)
        except ValueError:
            if not self._running:
                raise
            # The cluster took jobs before: it may again, and the running ones need not stop.
            self._waiting.extendleft(reversed(ready))
            self._asked |= dict.fromkeys(ready, time.monotonic() + STARTS_AGAIN - ASK_AGAIN)
            return
        for cell, start, job in zip(ready, starts, jobs, strict=True):
            events = EventReader(cell.folder(self._run), start.attempt)
            self._running[cell] = _Running(job, events)
            self._watch(cell, {"phase": f"queued, {job.place}" if job.place else "starting"})

    def _is_held(self, cell: Cell) -> bool:
        """Return whether another command is running a cell; report it once."""
        if time.monotonic() - self._asked.get(cell, -ASK_AGAIN) < ASK_AGAIN:
            return True
        if held := self._sightings.is_held(cell.folder(self._run)):
            self._leave(cell)
        return held

    def _leave(self, cell: Cell) -> None:
        """Leave a cell to the command that is running it, for a while; report it once."""
        self._asked[cell] = time.monotonic()
        if cell not in self._told:
            self._told.add(cell)
            self._watch(cell, {"phase": "another command is running it"})

    def _look(self) -> None:
        """Forward new events, and take away cells that have ended."""
        for cell, running in list(self._running.items()):
            end = running.job.end()  # before its last events are read
            for event in running.events():
                running.error = event.get("error", running.error)
                running.outcome = event.get("ended", running.outcome)
                self._watch(cell, event)
            if end is not None:
                del self._running[cell]
                self._finish(cell, running, end)

    def _finish(self, cell: Cell, running: _Running, end: End) -> None:
        if end.code == BUSY:
            self._leave(cell)
            self._waiting.append(cell)
            return
        # On this machine, only a person interrupts a cell; a cluster does it by itself.
        if end.code == INTERRUPTED and not self._stopping and self._launcher.name != "local":
            self._restarts[cell] = self._restarts.get(cell, 0) + 1
            if self._restarts[cell] <= RESTARTS:
                self._watch(cell, {"phase": "interrupted; it starts again"})
                self._waiting.append(cell)
                return
        if end.code == 0:
            for line in end.output:
                self._watch(cell, {"printed": line})
        outcomes = {0: running.outcome, INTERRUPTED: "interrupted"}
        self._watch(cell, {"phase": outcomes.get(end.code, "failed")})
        if end.code and not self._stopping:
            printed = "\n".join(end.output).strip()
            why = running.error or printed or f"the process ended with status {end.code}"
            self.failures.append(f"{cell}: {why}")

    def _stop(self) -> None:
        """Let running cells save; return when they have, or after a minute."""
        self._stopping = True
        self._waiting.clear()
        for running in self._running.values():
            running.job.stop()
        until = time.monotonic() + SAVES_WITHIN
        while self._running and time.monotonic() < until:
            try:
                self._look()
            except Exception:  # the watcher may be what failed
                self._running = {c: r for c, r in self._running.items() if r.job.end() is None}
            time.sleep(LOOKS_EVERY)


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
        from ropewalk.lab.running.torchrun import run_cells_together

        run_cells_together(config, run, cells, goal, watch)
        return 1
    launcher = launcher or LocalLauncher()
    at_once = cells_at_once(config, len(cells), jobs, launcher)
    threads = fix_conditions(config, run, at_once, launcher).threads

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
    record = ended_training(cell.folder(run))
    if record.status == "diverged":
        raise CellFailed(
            f"{cell}: training diverged after {record.step} of {record.steps} steps: its loss is "
            f"not finite, and there is no model; choose a lower learning_rate than "
            f"{config.learning_rate:g}, or a longer warmup, and another folder with --out"
        )
    return cell.folder(run) / "model.safetensors"
