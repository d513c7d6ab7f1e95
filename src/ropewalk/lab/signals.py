"""Signals that ask a training to stop: it finishes the step and saves first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2")  # the last: Slurm's warning; not on Windows
    found = [getattr(signal, name) for name in names if hasattr(signal, name)]
    return [each for each in found if signal.getsignal(each) != signal.SIG_IGN]
