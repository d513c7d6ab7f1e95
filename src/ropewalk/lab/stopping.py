"""How a training, a cell and a command are asked to stop, and how their processes run and end.

A training finishes its step and saves first. A command ends once per Ctrl-C, even if imported code
left threads running.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn


class CellFailed(RuntimeError):  # noqa: N818, not an error of this process
    """A cell's process ended without a result; its files are still there."""


@contextmanager
def interruptions() -> Iterator[list[int]]:
    """Collect Ctrl-C, SIGTERM and SIGHUP instead of interrupting a step."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # Python delivers signals only to the main thread
        return
    before = {
        number: signal.signal(number, lambda number, frame: received.append(number))
        for number in stopping_signals()
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stopping_signals() -> list[signal.Signals]:
    """Return the signals that request a stop, without those that are ignored (nohup)."""
    return [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]


#: Signals that ask a process to stop; the last is Slurm's warning. Windows lacks some.
STOP_SIGNALS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2")
    if hasattr(signal, name)
]
#: Exit statuses of a cell's process.
INTERRUPTED = 130  # stopped by a signal after saving, or lost; the cell may start again
BUSY = 75  # another process works on the cell

#: As `python -P`, but inherited by children: Python does not import from the working directory.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}

AT_ONCE = 2.0  # seconds in which several signals count as one
UNTIL_AGAIN = 0.05  # seconds until a lost signal is sent again, when its callback has ended

_interrupted_at = float("-inf")
_interrupted_by: int = signal.SIGINT


def interrupt_once(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt (a signal handler), but not again while the first one propagates.

    A second one inside C++ code, such as the import of torch, would abort the process.
    """
    global _interrupted_at, _interrupted_by
    before, _interrupted_at = _interrupted_at, time.monotonic()
    if _interrupted_at - before > AT_ONCE:
        _interrupted_by = number
        raise KeyboardInterrupt


def interrupt_again(lost: sys.UnraisableHookArgs) -> None:
    """Send the signal again whose KeyboardInterrupt was lost (an unraisable hook).

    Python drops what is raised in `__del__` and in callbacks of weak references, as torch has them.
    """
    global _interrupted_at
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    _interrupted_at = float("-inf")
    again = threading.Timer(UNTIL_AGAIN, signal.raise_signal, [_interrupted_by])
    again.daemon = True
    again.start()


def end_with(work: Callable[[], int | None]) -> NoReturn:
    """Run `work` in `SAFE_PATH`, and exit with the status that it returns.

    At exit Python waits for every non-daemon thread, even after Ctrl-C. Threads that imported code
    started must not keep the process alive.
    """
    os.environ.update(SAFE_PATH)
    sys.unraisablehook = interrupt_again
    try:
        status = work() or 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except Exception:
        sys.excepthook(*sys.exc_info())
        status = 1
    # From here on, signals would change the exit status, or print a traceback at exit. torchrun
    # sends SIGTERM to all processes as soon as one has failed.
    handled = {n for n in signal.valid_signals() if signal.getsignal(n) is interrupt_once}
    for number in {signal.SIGINT, signal.SIGTERM, *handled}:
        signal.signal(number, signal.SIG_IGN)
    own = threading.main_thread()
    if all(thread is own or thread.daemon for thread in threading.enumerate()):
        sys.exit(status)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the stream may be closed
            stream.flush()
    os._exit(status)
