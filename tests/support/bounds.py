"""Measured bounds on one external input: CPU time, and memory beyond an idle process.

Reading or refusing an input takes at most 2 s of CPU, and 500 MB more than the process has after
its imports. Tests allow twice that time, and more on a machine that is slower at plain Python just
then: on a core that is old or shared, the same work takes longer.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MOST_SECONDS, MOST_BYTES = 2 * 2.0, 500 * 10**6
STOPPED_AFTER = 12.0  # of CPU; code that waits for a pipe is stopped by wall time
WAITED = 60.0
LOOP, LOOP_SECONDS = 1_000_000, 0.03  # additions, and their seconds where the 2 s are met
ROOM = 4 * 2**30  # of address space: enough for threads, too little to fill a machine


class TooSlowError(Exception):
    """An input has run for six times the 2 s."""


@dataclass
class Use:
    """The cost of an input: seconds of CPU, and bytes beyond those of the process before."""

    seconds: float = 0.0
    memory: int = 0

    def fault(self) -> str | None:
        """Return which bound is exceeded, if any."""
        if self.seconds > MOST_SECONDS and self.seconds > MOST_SECONDS * _slowness():
            return f"{self.seconds:.1f} s of CPU"
        return f"{self.memory / 1e6:,.0f} MB" if self.memory > MOST_BYTES else None


@contextmanager
def measured() -> Iterator[Use]:
    """Measure the code inside, and stop it with an exception if it takes far too much.

    Only Linux reports the peak memory of a part of a process; elsewhere memory grows by 0.
    """
    use, idle = Use(), _forget_peak()
    before = [signal.signal(number, _stop) for number in (signal.SIGVTALRM, signal.SIGALRM)]
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + ROOM or limits[0], limits[1]))
    signal.setitimer(signal.ITIMER_VIRTUAL, STOPPED_AFTER)
    signal.setitimer(signal.ITIMER_REAL, WAITED)
    started = time.process_time()
    try:
        yield use
    finally:
        use.seconds = time.process_time() - started
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        for number, handler in zip((signal.SIGVTALRM, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)
        use.memory = max(0, _status("VmHWM") - idle)


@contextmanager
def bounded() -> Iterator[None]:
    """Fail if the code inside takes more than the bound, also if it raises."""
    with measured() as use:
        yield
    assert use.fault() is None, use.fault()


def _slowness() -> float:
    """Return how many times as long this core takes now as one that meets the bound."""
    started, total = time.process_time(), 0
    for number in range(LOOP):
        total += number
    return (time.process_time() - started) / LOOP_SECONDS


def _forget_peak() -> int:
    """Reset the peak and return the memory in use now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    return 0


def _stop(*_: object) -> None:
    raise TooSlowError
