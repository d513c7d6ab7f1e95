"""The process of one cell: one encoding with one seed.

`python -m ropewalk.lab.running.worker RUN_FOLDER ENCODING SEED` trains it, or resumes it, and
scores it. It reports progress in `events.jsonl` of the cell's folder; all output, also of an
imported encoding, goes to standard error. With `--stop-at-eof` it saves and ends when standard
input closes, which happens when the parent process dies. `--settings JSON` has the cell's own
settings. `--goal trained` skips the test splits; `--goal tuned` tries the sweep's decoding settings
on validation data instead. `--attempt` names this start in the events, `--job` the job for people,
and `--dead` is the mark of a lease that may be taken over.
"""

from __future__ import annotations

import _thread
import argparse
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch

from ropewalk.files import Busy, read_checked_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import Goal, encodings_unchecked
from ropewalk.lab.config_sources import read_run_config
from ropewalk.lab.running.cell import done_before, lack_of_memory, run_owned
from ropewalk.lab.running.events import Emit, Event, event_writer
from ropewalk.lab.running.launcher import STOP_WITH_PARENT
from ropewalk.lab.running.lease import owned
from ropewalk.lab.stopping import BUSY, INTERRUPTED, end_with, interrupt_once, stopping_signals

ASK_AGAIN = 5.0  # seconds between two requests to stop


def _stop_with_parent() -> None:
    """Make this process save and end when standard input closes, as when the parent dies."""

    def wait() -> None:
        while os.read(0, 1):  # unbuffered: a buffer is locked at interpreter exit
            pass
        while True:  # repeatedly: a signal between two stages may be lost
            if hasattr(signal, "pthread_kill"):
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:
                _thread.interrupt_main()
            time.sleep(ASK_AGAIN)

    threading.Thread(target=wait, daemon=True).start()


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m ropewalk.lab.running.worker")
    parser.add_argument("run", type=Path)
    parser.add_argument("encoding")
    parser.add_argument("seed", type=int)
    parser.add_argument("--settings", type=json.loads, default={}, metavar="JSON")
    parser.add_argument("--goal", choices=get_args(Goal), default="scored")
    for name in ("attempt", "job", "dead"):
        parser.add_argument(f"--{name}", default="")
    parser.add_argument(STOP_WITH_PARENT, action="store_true", dest="stop_at_eof")
    return parser.parse_args(words)


def _main(*words: str) -> int:
    options = _arguments(words)
    # Nobody reads standard output; code that bypasses sys.stdout writes to it too.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    emit: Emit = _say

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        emit({"warning": " ".join(str(message).split())})

    try:
        # Background jobs of a shell inherit an ignored SIGINT; here only the parent sends it.
        own = [signal.SIGINT] if options.stop_at_eof else []
        for number in {*own, *stopping_signals()}:
            signal.signal(number, interrupt_once)
        warnings.showwarning = warn
        if own:
            _stop_with_parent()
        cell = Cell(options.encoding, options.seed, tuple(options.settings.items()))
        folder = cell.folder(options.run)
        read_checked_json(options.run / "config.json")  # before a folder is made in it
        with owned(folder, job=options.job, dead=options.dead) as owner:
            with encodings_unchecked(), suppress(ValueError, OSError):  # which `run_owned` reports
                if done_before(cell, options.run, read_run_config(options.run), options.goal):
                    return 0  # it waited in a queue while another process ran it
            facts: Event = {
                "host": owner.host,
                "job": owner.job,
                "pid": owner.pid,
                "started": owner.started,
                "threads": torch.get_num_threads(),
            }
            with event_writer(folder, options.attempt, facts) as emit:
                return _ending(partial(run_owned, options.run, cell, emit, options.goal), emit)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Busy:
        return BUSY
    except (ValueError, OSError) as error:
        print(_in_words(error), file=sys.stderr)
        return 1


def _say(event: Event) -> None:
    """Print an event that happens before the cell's folder is owned."""
    print(event.get("warning", event), file=sys.stderr)


def _in_words(error: ValueError | OSError) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}; files written before are intact"
    return " ".join(str(error).split())


def _ending(work: Callable[[], None], emit: Emit) -> int:
    """Run a cell and return the exit status; an error that is no fault of the code is an event."""
    try:
        work()
        return 0
    except SystemExit as error:  # by an imported encoding; the cell is not finished
        reason = f"an encoding ended the process: SystemExit: {error.code}"
    except (MemoryError, RuntimeError) as error:
        if (lack := lack_of_memory(error)) is None:
            raise
        reason = lack
    except (ValueError, OSError) as error:
        reason = _in_words(error)
    try:
        emit({"error": reason})
    except OSError:  # the disk is full, or gone
        print(reason, file=sys.stderr)
    return 1


if __name__ == "__main__":
    end_with(lambda: _main(*sys.argv[1:]))
