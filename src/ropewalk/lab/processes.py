"""Processes of cells: started, followed and stopped, a given number in parallel."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ropewalk.lab.cells import Cell
from ropewalk.lab.sweep import Goal, settings_to_json
from ropewalk.lab.worker import BUSY, INTERRUPTED, STOP_WITH_PARENT
from ropewalk.locks import is_locked
from ropewalk.machine import cores

#: Receives the events of a cell.
Watch = Callable[[Cell, dict[str, Any]], None]

MOST_NOISE, MOST_OF_A_LINE = 200, 2_000  # lines kept of a cell's output, and characters of a line
ASK_AGAIN = 0.5  # seconds between two checks of a cell that another command is running


class Pool:
    """Waiting and running cells; each of several threads runs one at a time."""

    def __init__(
        self, cells: Sequence[Cell], run: Path, jobs: int, watch: Watch, goal: Goal
    ) -> None:
        self.run, self.watch, self.threads = run, watch, threads_of_a_cell(jobs)
        self.goal = goal
        self.waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
        for cell in cells:
            self.waiting.put(cell)
        self.running: dict[Cell, subprocess.Popen[str]] = {}
        self.failures: list[str] = []
        self.broken: list[BaseException] = []  # exceptions that ended a thread
        self.told: set[Cell] = set()  # cells of another command that the watcher knows about
        self.stopping = threading.Event()

    def work_to(self, end: threading.Event) -> None:
        """Run cells until none waits, then set the event. An exception stops all cells."""
        try:
            self._work()
        except BaseException as error:
            self.broken.append(error)
            self.stop()
        finally:
            end.set()

    def stop(self) -> None:
        """Start no more cells; running ones save and end."""
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
        """Run a cell to its end; return its exit status and its error, or None."""
        with start(self.run, cell, self.threads, self.goal) as process:
            self.running[cell] = process
            if self.stopping.is_set():
                process.send_signal(signal.SIGINT)
            try:
                error = follow(process, cell, self.watch)
            except BaseException:
                assert process.stdin is not None
                process.stdin.close()  # the cell then saves and ends
                raise
            finally:
                del self.running[cell]
        return process.returncode, error

    def _put_back(self, cell: Cell) -> None:
        """Put a cell that another command is running at the end of the queue; report it once."""
        if cell not in self.told:
            self.told.add(cell)
            self.watch(cell, {"phase": "another command is running it"})
        self.waiting.put(cell)
        self.stopping.wait(ASK_AGAIN)


def threads_of_a_cell(jobs: int) -> int:
    """Return the threads per cell: OMP_NUM_THREADS, or its share of the cores."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return int(threads) if threads.isdecimal() and int(threads) else max(1, cores() // jobs)


def start(run: Path, cell: Cell, threads: int, goal: Goal) -> subprocess.Popen[str]:
    """Start the process of a cell; it writes events as lines to standard output."""
    # -P: do not import from the working directory.
    words = [sys.executable, "-P", "-m", "ropewalk.lab.worker", str(run), cell.encoding]
    words += [str(cell.seed), "--settings", settings_to_json(cell.settings), "--goal", goal]
    # In its own session: Ctrl-C reaches only this process, which forwards it once. Nothing is
    # written to standard input; when it closes, the cell knows that this process is gone.
    return subprocess.Popen(
        [*words, STOP_WITH_PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="backslashreplace",  # an imported encoding may print any bytes
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"},
        start_new_session=True,
    )


def follow(process: subprocess.Popen[str], cell: Cell, watch: Watch) -> str | None:
    """Forward a cell's events until it ends; return its error, or None."""
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
