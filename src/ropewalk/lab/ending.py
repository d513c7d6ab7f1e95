"""How a command and a cell end: at Ctrl-C once, and whatever threads imported code has left."""

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

AT_ONCE = 2.0  # seconds in which several signals are one wish

_interrupted_at = float("-inf")


def interrupt_once(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, a signal's handler; not again while the first is on its way out.

    A second one inside C++, as while torch is imported, aborts the process.
    """
    global _interrupted_at
    before, _interrupted_at = _interrupted_at, time.monotonic()
    if _interrupted_at - before > AT_ONCE:
        raise KeyboardInterrupt


def end_with(work: Callable[[], int | None]) -> NoReturn:
    """Do the work of this process and end it with the status that it gives.

    Python waits for every thread that is no daemon, and Ctrl-C does not end that: one that
    imported code has started does not keep the process.
    """
    try:
        status = work() or 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except Exception:
        sys.excepthook(*sys.exc_info())
        status = 1
    # All is said: from here on Python would take Ctrl-C for the end, with a status of its own.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own = threading.main_thread()
    if all(thread is own or thread.daemon for thread in threading.enumerate()):
        sys.exit(status)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # closed: nobody listens
            stream.flush()
    os._exit(status)
