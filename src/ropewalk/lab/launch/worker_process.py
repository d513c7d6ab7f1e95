"""The process of a cell, as every launcher starts it on the machine where the cell runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ropewalk.lab.cells import Cell
from ropewalk.lab.sweep import Goal, settings_to_json

STOP_WITH_PARENT = "--stop-at-eof"
# glibc otherwise returns freed memory to the system and takes it again within every training step:
# a twentieth to a tenth of a small model's step. 32 MiB is its largest limit for blocks from the
# heap.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**25)}
MOST_NOISE, MOST_OF_A_LINE = 200, 2_000  # lines kept of a cell's output, and characters of a line


@dataclass(frozen=True)
class Start:
    """What is started: a cell of a run, up to a goal.

    attempt: names this start in the cell's events. dead: the mark of a lease to take over.
    """

    run: Path
    cell: Cell
    goal: Goal
    threads: int
    attempt: str
    dead: str = ""

    def words(self, job: str = "") -> list[str]:
        """Return the command of the cell's process."""
        # -P: do not import from the working directory.
        words = [sys.executable, "-P", "-m", "ropewalk.lab.worker", str(self.run)]
        words += [self.cell.encoding, str(self.cell.seed), "--goal", self.goal]
        words += ["--settings", settings_to_json(self.cell.settings), "--attempt", self.attempt]
        return [*words, "--dead", self.dead, "--job", job, STOP_WITH_PARENT]


class WorkerProcess:
    """A running cell. It saves and ends when it is stopped, or when this process dies."""

    def __init__(self, start: Start, job: str = "") -> None:
        # In its own session: Ctrl-C reaches only this process, which forwards it once. Nothing is
        # written to standard input; when it closes, the cell knows that this process is gone.
        self._process = subprocess.Popen(
            start.words(job),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",  # an imported encoding may print any bytes
            env={
                **KEEP_MEMORY,
                **os.environ,
                "OMP_NUM_THREADS": str(start.threads),
                "TOKENIZERS_PARALLELISM": "false",
            },
            start_new_session=True,
        )
        self._noise: deque[str] = deque(maxlen=MOST_NOISE)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def code(self) -> int | None:
        """Return the exit status, or None while the cell runs."""
        return self.wait(0)

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit status, or None if the cell still runs after these seconds."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        assert self._process.stdin is not None
        self._process.stdin.close()
        return code

    def stop(self) -> None:
        """Ask the cell to save and end."""
        self._process.send_signal(signal.SIGINT)

    def output(self) -> list[str]:
        """Return the last lines that an ended cell printed."""
        self._reader.join(5)
        return [line.rstrip("\n") for line in self._noise]

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            self._noise.extend(iter(partial(stream.readline, MOST_OF_A_LINE), ""))
