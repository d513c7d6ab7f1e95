"""What the folder of a run says about its cells, without the command that started it."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ropewalk.checks import shown
from ropewalk.files import is_locked, shown_path
from ropewalk.lab.cells import Cell, cells_of
from ropewalk.lab.config import DECODING_FIELDS, Config, Goal, encodings_unchecked
from ropewalk.lab.config_sources import read_run_config
from ropewalk.lab.report.formats import format_duration, format_number
from ropewalk.lab.results import Results, read_results
from ropewalk.lab.running.cell import done_before
from ropewalk.lab.running.events import Event, read_session
from ropewalk.lab.running.lease import LEASE, Lease, has_ended, read_lease, this_machine
from ropewalk.lab.running.tuning import cells_with, chosen, chosen_training, is_trained, trial_cells

COLUMNS = ("CELL", "STATE", "STEP", "LEFT", "PLACE OR REASON")
RUN_COLUMNS = ("FOLDER", "TASK", "STATE", "SCORE", "ENCODINGS")
MOST_RUNS = 1000
DONE = ("finished", "diverged")


@dataclass(frozen=True)
class CellStatus:
    """The state of a cell: in one word, and what it does or why it failed.

    left: estimated seconds of training, if they are known.
    """

    cell: Cell
    state: str
    step: str = ""
    left: float | None = None
    place: str = ""
    detail: str = ""

    def row(self) -> tuple[str, ...]:
        """Return the columns."""
        left = "" if self.left is None else format_duration(self.left)
        parts = (self.detail, self.place)
        return (str(self.cell), self.state, self.step, left, ", ".join(filter(None, parts)))


@dataclass(frozen=True)
class RunStatus:
    """The state of all cells of a run, trials of a sweep first."""

    run: Path
    config: Config
    cells: tuple[CellStatus, ...]
    finished: bool

    def summary(self) -> str:
        """Return one line: how many cells are in which state, and what to do."""
        counts = Counter(cell.state for cell in self.cells)
        states = ", ".join(f"{count} {state}" for state, count in counts.items())
        if self.finished:
            return f"{states}. The run is complete: {self.run / 'report.html'}"
        return f"{states}. To continue, repeat the command that started the run."


def read_status(run: Path) -> RunStatus:
    """Return the state of a run. Raises ValueError if the folder has no run."""
    if not os.path.isfile(run / "config.json"):
        raise ValueError(
            f"RUN must be the folder of a run, which has a config.json, got {shown(str(run))}"
        )
    with encodings_unchecked():
        config = read_run_config(run)
        cells = tuple(
            _cell_status(cell, run, config, only_train=trial) for cell, trial in _all(config, run)
        )
    return RunStatus(run, config, cells, _has_results(config, run, cells))


def list_runs(folder: Path) -> list[tuple[str, ...]]:
    """Return a row for each run in a folder or in its folders, newest first."""
    if not folder.is_dir():
        raise ValueError(f"FOLDER must be a folder that contains runs, got {shown(str(folder))}")
    found = [path.parent for depth in ("*", "*/*") for path in folder.glob(f"{depth}/corpus.json")]
    found = [run for run in found if (run / "config.json").is_file()]
    if not found:
        raise ValueError(f"FOLDER must contain runs, got {shown(str(folder))}, which has none")
    newest = sorted(
        found, key=lambda run: run.joinpath("config.json").stat().st_mtime, reverse=True
    )
    return [_run_row(run, run.relative_to(folder)) for run in newest[:MOST_RUNS]]


def _has_results(config: Config, run: Path, cells: Sequence[CellStatus]) -> bool:
    """Return whether the results in the folder are those of its config, which may have grown."""
    written = all((run / name).exists() for name in ("results.json", "report.html"))
    if not written or any(cell.state not in DONE for cell in cells):
        return False
    rows = read_results(run).encodings
    held = {(row.name, cell.seed) for row in rows for cell in row.cells}
    return held == {(cell.encoding, cell.seed) for cell in cells_of(config)}


def _run_row(run: Path, name: Path) -> tuple[str, ...]:
    try:
        status = read_status(run)
        states, best = [cell.state for cell in status.cells], ""
        state = f"{sum(one in DONE for one in states)} of {len(states)} cells"
        if "running" in states:
            state += f", {states.count('running')} running"
        if status.finished:
            state, best = "complete", _best(read_results(run))
        config = status.config
        return (shown_path(name), config.task, state, best, ", ".join(config.encodings))
    except (ValueError, OSError, KeyError) as error:
        why = " ".join(str(error).split())[:80]
        return (shown_path(name), "?", "cannot be read", "", why)


def _best(results: Results) -> str:
    """Return the best mean of the tested metric, and the encoding that has it."""
    metric, split = results.tested, results.splits[0]
    means = {row.name: row.summary[split].spread(metric.key).mean for row in results.encodings}
    known = {name: mean for name, mean in means.items() if mean is not None}
    if not known:
        return ""
    best = (max if metric.higher_is_better else min)(known, key=known.__getitem__)
    return f"{metric.name} {format_number(known[best], metric.digits)} ({best})"


def _all(config: Config, run: Path) -> list[tuple[Cell, bool]]:
    """Return all cells of a run that are known now, and whether each is only a trial."""
    trials = trial_cells(config)
    found = [(cell, True) for cell in trials]
    if all(is_trained(cell, run) for cell in trials):
        choices = chosen_training(config, run)
        if set(config.sweep) & set(DECODING_FIELDS) and (run / "results.json").exists():
            choices = chosen(config, run)
        own = cells_with(config, choices)
        used = {cell.folder(run) for cell in own}
        found = [each for each in found if each[0].folder(run) not in used]
        found += [(cell, False) for cell in own]
    return found


def _cell_status(cell: Cell, run: Path, config: Config, *, only_train: bool) -> CellStatus:
    folder = cell.folder(run)
    session, lease = read_session(folder), read_lease(folder)
    nothing: Event = {}
    training = next((e for e in reversed(session) if e.get("phase") == "training"), nothing)
    phase = next((e["phase"] for e in reversed(session) if "phase" in e), "starting")
    step = f"{training['step']}/{training['steps']}" if training else ""
    is_held = is_locked(folder)
    if is_held or (lease is not None and not has_ended(lease.owner, is_held)):
        left = _left(training) if phase == "training" else None
        silent = 0.0 if is_held or lease is None else time.time() - lease.renewed_ns / 1e9
        if lease is not None and not lease.renewed_ns:
            return CellStatus(cell, "unknown", detail=f"owner.json: {lease.owner.host}")
        if silent > LEASE:  # by this machine's clock, which may differ: nothing else is known
            sign = f"last sign {format_duration(silent)} ago by this machine's clock"
            return CellStatus(cell, "silent", step, None, f"{_place(lease)}, {sign}")
        detail = "" if phase == "training" else phase
        return CellStatus(cell, "running", step, left, _place(lease), detail)
    if is_trained(cell, run):
        goal: Goal = "trained" if only_train else "scored"
        try:
            record = done_before(cell, run, config, goal)
            return CellStatus(cell, record.status if record else "trained", step)
        except ValueError as damage:  # the cell's process would fail with it
            return CellStatus(cell, "failed", step, detail=" ".join(str(damage).split())[:200])
    if error := next((str(e["error"]) for e in reversed(session) if "error" in e), ""):
        return CellStatus(cell, "failed", step, detail=error[:200])
    if (folder / "last.safetensors").exists():
        return CellStatus(cell, "interrupted", step)
    return CellStatus(cell, "waiting")


def _left(training: Event) -> float | None:
    """Return the seconds of training that are left, at the mean speed so far."""
    step, seconds = training.get("step", 0), training.get("seconds")
    if not step or seconds is None:
        return None
    return float(seconds) / int(step) * (int(training["steps"]) - int(step))


def _place(lease: Lease | None) -> str:
    """Return where a cell runs."""
    if lease is None:
        return "this machine"
    owner = lease.owner
    here = owner.machine == this_machine()
    parts = ("this machine" if here else owner.host, owner.job, f"process {owner.pid}")
    return ", ".join(part for part in parts[: 3 if owner.pid else 2] if part)
