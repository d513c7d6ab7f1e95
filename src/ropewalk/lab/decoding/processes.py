"""Independent work in parallel: forked processes of one thread each, as many as torch has threads.

This is for beam search, whose steps consist of many short operations. Threads would wait for one
another in Python; a forked process does not, and has the model without a copy. Only results are
sent.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import torch

from ropewalk.lab.stopping import STOP_SIGNALS

X = TypeVar("X")
Y = TypeVar("Y")

#: Numbers of two settings in malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
#: Bytes that the allocator keeps, and the largest block from its heap, which it keeps too: no more
#: than 32 MiB is accepted.
MOST_KEPT, LARGEST_ON_HEAP = 2**30, 2**25

#: The index of an item, its result or None, and the error that was raised or None.
Answer = tuple[int, Any, Exception | None]


def on_each_core(work: Callable[[X], Y], items: Sequence[X]) -> list[Y]:
    """Return `work(item)` of each item, in order; as many processes work as torch has threads.

    Items are begun in order. If several fail, the error of the first one is raised, as by a loop.
    Nothing is forked in any of these cases: torch has one thread; there is at most one item; the
    caller is not the main thread (another may hold a lock, which would stay locked in a forked
    process); the caller is a daemon process; the system is not Linux. Forked processes end when
    this function returns or raises (after Ctrl-C too), and when this process is killed. Raises
    MemoryError if the system kills one, and RuntimeError if one ends in another way.
    """
    count = min(torch.get_num_threads(), len(items))
    in_main = threading.current_thread() is threading.main_thread()
    is_daemon = multiprocessing.current_process().daemon
    if count < 2 or sys.platform != "linux" or not in_main or is_daemon:
        return [work(item) for item in items]
    found: list[Any] = [None] * len(items)
    with _helpers(work, items, count) as helpers:
        for place, result in _answers(helpers, len(items)):
            found[place] = result
    return found


@contextmanager
def _helpers(
    work: Callable[[X], Y], items: Sequence[X], count: int
) -> Iterator[dict[Connection, BaseProcess]]:
    """Fork processes that wait for indices of items; kill them when the block ends."""
    helpers: dict[Connection, BaseProcess] = {}
    try:
        with _signals_later(), warnings.catch_warnings():
            # Python 3.12 warns that other threads may hold locks: see `on_each_core`.
            warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
            for _ in range(count):
                ours, theirs = multiprocessing.Pipe()
                process = multiprocessing.get_context("fork").Process(
                    target=_serve, args=(work, items, theirs), daemon=True
                )
                process.start()
                theirs.close()
                helpers[ours] = process
        yield helpers
    finally:
        for helper in helpers.values():
            helper.kill()
        for pipe, helper in helpers.items():
            helper.join()
            pipe.close()


@contextmanager
def _signals_later() -> Iterator[None]:
    """Deliver Ctrl-C and the like after this block: a new process must first learn to ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _answers(helpers: dict[Connection, BaseProcess], count: int) -> Iterator[tuple[int, Any]]:
    """Hand out places in order, one to each free process; yield results as they come.

    After an error no more are handed out; those already begun are awaited, because one with a
    lower index may fail too.
    """
    following, working = iter(range(count)), set(helpers)
    errors: dict[int, Exception] = {}
    for pipe in helpers:
        pipe.send(next(following))
    while working:
        for ready in wait(list(working)):
            assert isinstance(ready, Connection)
            place, result, error = _receive(ready, helpers[ready])
            if error is None:
                yield place, result
            else:
                errors[place] = error
            after = None if errors else next(following, None)
            if after is None:
                working.remove(ready)
            else:
                ready.send(after)
    if errors:
        raise errors[min(errors)]


def _receive(pipe: Connection, process: BaseProcess) -> Answer:
    try:
        answer: Answer = pickle.loads(pipe.recv_bytes())
    except (EOFError, OSError):
        process.join()
        status = process.exitcode
        if status == -signal.SIGKILL:
            raise MemoryError(
                "the system killed a process of the search, probably because memory was used up; "
                "set OMP_NUM_THREADS=1 to search in one process"
            ) from None
        raise RuntimeError(
            f"a process of the search ended with status {status}; set OMP_NUM_THREADS=1 to search "
            f"in one process, which may show the cause"
        ) from None
    return answer


def _serve(work: Callable[[X], Y], items: Sequence[X], pipe: Connection) -> None:
    """Work on the items whose places come through the pipe (in a forked process)."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the parent ends this process
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)  # with more, torch would wait for threads that a fork does not copy
    _keep_memory()
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            place = pipe.recv()
            try:
                answer: Answer = (place, work(items[place]), None)
            except Exception as error:
                answer = (place, None, error)
            pipe.send_bytes(_pickled(answer))


def _keep_memory() -> None:
    """Let the allocator of the GNU C library keep what is freed, since each step needs it again.

    By default it returns large pieces to the system, which then clears them again, page by page.
    That took a fifth of the processor time in the search of benchmarks/README.md.
    """
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, MOST_KEPT)
        mallopt(_MMAP_THRESHOLD, LARGEST_ON_HEAP)


def _pickled(answer: Answer) -> bytes:
    place, _, error = answer
    if error is not None:
        try:
            pickle.loads(pickle.dumps(error))  # some can be pickled but not read
        except Exception:
            answer = (place, None, RuntimeError(f"{type(error).__name__}: {error}"))
    return pickle.dumps(answer)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
