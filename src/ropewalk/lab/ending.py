"""How a command and a cell end: once per Ctrl-C, even if imported code left threads running."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

AT_ONCE = 2.0  # seconds in which several signals count as one

_interrupted_at = float("-inf")


def interrupt_once(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt (a signal handler), but not again while the first one propagates.

    A second one inside C++ code, such as the import of torch, would abort the process.
    """
    global _interrupted_at
    before, _interrupted_at = _interrupted_at, time.monotonic()
    if _interrupted_at - before > AT_ONCE:
        raise KeyboardInterrupt


def end_with(work: Callable[[], int | None]) -> NoReturn:
    """Run `work` and exit with the status that it returns.

    At exit Python waits for every non-daemon thread, even after Ctrl-C. Threads that imported code
    started must not keep the process alive.
    """
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
