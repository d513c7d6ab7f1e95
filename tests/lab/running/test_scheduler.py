"""The scheduler with launchers of its own: no processes.

These fail if a cell is started twice or never, if more cells run than may, if a cell of another
command is worked on, if a cell that a cluster interrupted is given up, or if Ctrl-C leaves running
cells behind.
"""

from __future__ import annotations

import pytest

from ropewalk.lab.cells import Cell
from ropewalk.lab.running import scheduler as module
from ropewalk.lab.running.events import event_writer
from ropewalk.lab.running.launcher import End
from ropewalk.lab.running.scheduler import Scheduler
from ropewalk.lab.stopping import BUSY, INTERRUPTED

CELLS = [Cell(name, seed) for seed in (1, 2, 3) for name in ("none", "rotary")]


class PlannedJob:
    place = "planned"

    def __init__(self, launcher, start, end):
        self.launcher, self.start, self._end, self.looks = launcher, start, end, 0

    def end(self):
        self.looks += 1
        if self.looks < 3:
            return None
        if self.looks == 3:
            self.launcher.running.discard(self.start.cell)
            folder = self.start.cell.folder(self.start.run)
            folder.mkdir(parents=True, exist_ok=True)
            with event_writer(folder, self.start.attempt, {}) as write:
                write({"step": 1})
        return self._end

    def stop(self):
        self.launcher.stopped.add(self.start.cell)
        self._end = End(INTERRUPTED)


class PlannedLauncher:
    """Ends each start of a cell as planned; then with status 0."""

    at_once, gpus = 100, 0

    def __init__(self, plan=None, name="planned"):
        self.name, self.plan = name, {cell: list(ends) for cell, ends in (plan or {}).items()}
        self.started, self.running, self.most, self.stopped = [], set(), 0, set()

    def start(self, starts):
        made = []
        for start in starts:
            self.started.append(start.cell)
            assert start.cell not in self.running
            self.running.add(start.cell)
            ends = self.plan.get(start.cell)
            made.append(PlannedJob(self, start, ends.pop(0) if ends else End(0)))
        self.most = max(self.most, len(self.running))
        return made

    def close(self):
        pass


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "LOOKS_EVERY", 0.001)
    monkeypatch.setattr(module, "ASK_AGAIN", 0.001)


def schedule(launcher, run, at_once=100, watch=lambda cell, event: None, done=lambda cell: ""):
    found = Scheduler(CELLS, run, launcher, at_once, 1, watch, "scored", done)
    found.work()
    return found


@pytest.mark.parametrize("at_once", [1, 2, 4, 100])
def test_every_cell_runs_once_and_no_more_together_than_may(tmp_path, at_once):
    launcher, events = PlannedLauncher(), []
    found = schedule(launcher, tmp_path, at_once, lambda *event: events.append(event))
    assert sorted(launcher.started, key=str) == sorted(CELLS, key=str)
    assert launcher.most == min(at_once, len(CELLS))
    assert found.failures == []
    for told in ({"step": 1}, {"phase": "finished"}):
        named = [str(cell) for cell, event in events if event == told]
        assert sorted(named) == sorted(map(str, CELLS))


def test_what_others_work_on_comes_again_and_what_fails_is_named(tmp_path):
    first, second = CELLS[:2]
    plan = {first: [End(BUSY), End(BUSY)], second: [End(1, ("Traceback", "KeyError: x"))]}
    launcher, told = PlannedLauncher(plan), []
    found = schedule(launcher, tmp_path, watch=lambda *event: told.append(event))
    assert launcher.started.count(first) == 3
    assert told.count((first, {"phase": "another command is running it"})) == 1
    assert all(launcher.started.count(cell) == 1 for cell in CELLS[1:])
    assert found.failures == ["rotary, seed 1: Traceback\nKeyError: x"]


def test_a_cluster_may_interrupt_a_cell_but_not_forever(tmp_path):
    first, second = CELLS[:2]
    often = [End(INTERRUPTED)] * (module.RESTARTS + 1)
    launcher = PlannedLauncher({first: [End(INTERRUPTED)] * 3, second: often})
    found = schedule(launcher, tmp_path)
    assert launcher.started.count(first) == 4
    assert found.failures == ["rotary, seed 1: the process ended with status 130"]
    local = PlannedLauncher({first: [End(INTERRUPTED)]}, name="local")
    assert len(schedule(local, tmp_path).failures) == 1  # nobody but a person ends it there


def test_cells_that_are_done_are_told_and_not_started(tmp_path):
    launcher, told, before = PlannedLauncher(), [], set(CELLS[1:4])
    done = dict.fromkeys(before, "finished").get
    schedule(launcher, tmp_path, 1, lambda *event: told.append(event), done)
    assert launcher.started == [CELLS[0], *CELLS[4:]]
    assert {cell for cell, event in told if event.get("phase") == "already finished"} == before


def test_a_cluster_that_refuses_for_a_while_does_not_stop_what_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "STARTS_AGAIN", 0.01)
    launcher, accepts = PlannedLauncher(), [True, False, False]
    start = launcher.start

    def start_or_refuse(starts):
        if accepts and not accepts.pop(0):
            raise ValueError("Slurm must accept the jobs, got 'no'")
        jobs = start(starts)
        if len(launcher.started) == 2:
            jobs[0].looks = -20  # it runs for longer than the cluster refuses
        return jobs

    launcher.start = start_or_refuse
    assert schedule(launcher, tmp_path, 2).failures == []
    assert sorted(launcher.started, key=str) == sorted(CELLS, key=str)
    accepts[:] = [False]
    with pytest.raises(ValueError, match="must accept"):
        schedule(launcher, tmp_path)


def test_an_exception_stops_what_runs_and_starts_nothing_more(tmp_path):
    launcher = PlannedLauncher()

    def watch(cell, event):
        if event.get("step") or launcher.stopped:
            raise KeyboardInterrupt if not launcher.stopped else ValueError("the watcher broke")

    with pytest.raises(KeyboardInterrupt):
        schedule(launcher, tmp_path, 2, watch)
    assert launcher.started == CELLS[:2]
    assert launcher.running == set()
    assert launcher.stopped
