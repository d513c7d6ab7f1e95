"""A comparison from data to report: prepare, run every cell, score, report."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ropewalk import __version__
from ropewalk.checks import shown
from ropewalk.files import Facts, read_checked_json, write_checked_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import DECODING_FIELDS, Config, check_text, slug
from ropewalk.lab.data.stream import Progress, silent
from ropewalk.lab.models import build_model
from ropewalk.lab.published import thinned
from ropewalk.lab.report import write_report
from ropewalk.lab.report.verdicts import check_against, summarize, with_verdicts
from ropewalk.lab.results import Machine, Results
from ropewalk.lab.running.events import Watch
from ropewalk.lab.running.launcher import Launcher, LocalLauncher
from ropewalk.lab.running.run_folder import alone, prepare, read_conditions
from ropewalk.lab.running.scheduler import run_cells
from ropewalk.lab.running.tuning import cells_with, chosen, chosen_training, is_trained, trial_cells
from ropewalk.lab.tasks import Task
from ropewalk.lab.tensors import read_tensors
from ropewalk.lab.training.process_group import is_first_process, is_launched, join
from ropewalk.lab.training.trainer import ended_training
from ropewalk.machine import commit, cores, processor, versions

MOST_CURVE_POINTS = 200  # of a training curve in results


def compare(
    config: Config,
    run: Path,
    *,
    jobs: int | None = None,
    command: Sequence[str] = (),
    after: str = "",
    note: str | None = None,
    against: Sequence[str] = (),
    launcher: Launcher | None = None,
    watch: Watch = lambda cell, event: None,
    stage: Callable[[str], None] = lambda name: None,
    progress: Progress = silent,
) -> Results | None:
    """Run a comparison in the folder `run` and return its results.

    Finished cells are kept and interrupted ones resumed. `watch` receives the events of cells.
    `stage` is called with the name of each step outside of the cells, such as scoring, and
    `progress` with the progress of preparing the data. `after`
    lists the run's earlier commands, one per line; `command` is added to them. `note` is a remark
    that is saved with the results. Every encoding is tested against the first one and against
    those in `against`. `launcher` starts the cells; by default as processes of this machine. Under
    torchrun, only the first process scores and reports; the others return nothing.
    """
    launcher = launcher or LocalLauncher()
    began, started = time.monotonic(), datetime.now(UTC)
    check_against(against, config.encodings)
    if is_launched() and jobs is not None and jobs > 1:
        raise ValueError(
            f"--jobs must be 1 under torchrun, whose processes train one cell together, got "
            f"{jobs}; leave out one of the two"
        )
    try:
        check_text(note or "")
    except ValueError as error:
        raise ValueError(f"note {error}, got {shown(note)}; use other characters") from None
    stage("preparing the data")
    task = prepare(config, run, progress, elsewhere=launcher.name != "local")
    if not is_first_process():
        _run_in_stages(config, run, jobs, watch, stage, launcher)
        return None
    sessions = _Sessions(run, started, began, launcher.name)
    try:
        at_once = _run_in_stages(config, run, jobs, watch, stage, launcher)
    finally:
        sessions.close()
        launcher.close()
    stage("scoring")
    for caution in task.cautions():
        stage(f"warning: {caution}")
    commands = [*after.splitlines(), shlex.join(command)]
    facts = {
        **assemble(task),
        "machine": _machine(task, at_once, sessions.launchers()),
        "command": "\n".join(dict.fromkeys(commands)),
        "note": note,
        **sessions.facts(),
        "against": [],
    }
    results = with_verdicts(Results.model_validate(facts), against)
    write_checked_json(run / "results.json", results.as_json())
    stage("computing attention maps")
    write_checked_json(run / "examples.json", task.examples(results).as_json())
    write_checked_json(run / "attention.json", task.attention(results).as_json())
    stage("writing the report")
    write_report(run)
    return results


def _run_in_stages(
    config: Config,
    run: Path,
    jobs: int | None,
    watch: Watch,
    stage: Callable[[str], None],
    launcher: Launcher,
) -> int:
    """Run the trials of a sweep, then all cells; return how many could run together."""
    if trials := [cell for cell in trial_cells(config) if not is_trained(cell, run)]:
        stage("training with every combination of the sweep")
        run_cells(config, run, jobs, watch, cells=trials, goal="trained", launcher=launcher)
    choices = chosen_training(config, run)
    if set(config.sweep) & set(DECODING_FIELDS):
        stage("trying decoding settings on validation data")
        cells = cells_with(config, choices)
        run_cells(config, run, jobs, watch, cells=cells, goal="tuned", launcher=launcher)
        choices = chosen(config, run)
    cells = cells_with(config, choices)
    return run_cells(config, run, jobs, watch, cells=cells, launcher=launcher)


@dataclass(frozen=True)
class Session:
    """A command that worked on a run: when it started (UTC), its duration and its launcher."""

    started: str
    seconds: float
    launcher: str


class _Sessions:
    """Time spent on a run, summed over its sessions except those that were killed."""

    def __init__(self, run: Path, started: datetime, began: float, launcher: str) -> None:
        self.path, self.began = run / "sittings.json", began
        self.own = Session(started.isoformat(timespec="seconds"), 0.0, launcher)
        with alone(run):  # two commands may begin or end at the same time
            self._write(read_sessions(self.path))  # also known if it is killed

    def close(self) -> None:
        with alone(self.path.parent):
            others = read_sessions(self.path)  # another command may have added its own meanwhile
            if self.own in others:
                others.remove(self.own)
            self.own = replace(self.own, seconds=round(time.monotonic() - self.began, 1))
            self._write(others)

    def _write(self, others: list[Session]) -> None:
        self.sessions = sorted([*others, self.own], key=lambda session: session.started)
        write_checked_json(self.path, {"sittings": [asdict(session) for session in self.sessions]})

    def launchers(self) -> list[str]:
        return list(dict.fromkeys(session.launcher for session in self.sessions))

    def facts(self) -> Facts:
        return {
            "started": self.sessions[0].started,
            "sittings": len(self.sessions),
            "duration_s": round(sum(session.seconds for session in self.sessions), 1),
        }


def read_sessions(path: Path) -> list[Session]:
    """Return the sessions of a run so far."""
    sessions = read_checked_json(path, "sittings")["sittings"] if os.path.lexists(path) else ()
    return [Session(**session) for session in sessions]


def assemble(task: Task) -> Facts:
    """Score every cell of a complete run; return what results say of the task and its encodings."""
    config, choices = task.config, chosen(task.config, task.run)
    rows = []
    for name, choice in choices.items():
        cells = [Cell(name, seed, choice.settings) for seed in config.seeds]
        facts = {"name": name, "slug": slug(name), **choice.facts()}
        facts |= {"parameters": _parameters(task, cells[0])}
        rows.append(facts | {"cells": [_cell_facts(task, cell) for cell in cells]})
    summarize(rows, task.splits, [metric.key for metric in task.metrics])
    return {
        "ropewalk": __version__,
        "commit": commit(),
        "versions": versions(),
        "config": config.facts(),
        "task": config.task,
        "metrics": [metric.facts() for metric in task.metrics],
        "tested_metric": task.tested_metric.key,
        **task.describe_data(),
        "encodings": rows,
    }


def _machine(task: Task, at_once: int, launchers: Sequence[str]) -> Machine:
    conditions = read_conditions(task.run)
    together = {"processes_per_cell": join(task.config.device).world} if is_launched() else {}
    return Machine(
        processor=processor(),
        cores=cores(),
        threads_per_cell=conditions.threads,
        device=conditions.device.partition(":")[0],
        precision=conditions.precision,
        cells_at_once=at_once,
        launchers=tuple(launchers),
        **together,
    )


def _cell_facts(task: Task, cell: Cell) -> Facts:
    folder = cell.folder(task.run)
    record = ended_training(folder)
    finished = record.status == "finished"
    return {
        "seed": cell.seed,
        "status": record.status,
        "steps": record.step,
        "train_seconds": round(record.seconds, 2),
        "tokens_per_s": round(record.tokens_per_s, 1),
        "peak_memory_bytes": record.peak_memory_bytes,
        "validation_loss": record.validation[-1]["loss"] if finished else None,
        "training": thinned(record.training, MOST_CURVE_POINTS),
        "validation": record.validation,
        "scores": {split: task.score(split, folder) for split in task.splits},
    }


def _parameters(task: Task, cell: Cell) -> int:
    path = cell.folder(task.run) / "model.safetensors"
    if path.exists():
        return sum(tensor.numel() for tensor in read_tensors(path)[0].values())
    config = task.config.with_settings(cell.settings)
    model = build_model(config, cell.encoding, cell.seed, task.vocabulary)
    return sum(parameter.numel() for parameter in model.parameters())
