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
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import get_context
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

#: What a forked process works on: the function and its items, set as it begins.
_task: tuple[Callable[[Any], Any], Sequence[Any]]


def on_each_core(work: Callable[[X], Y], items: Sequence[X]) -> list[Y]:
    """Return `work(item)` of each item, in order; as many processes work as torch has threads.

    Items are begun in order. If several fail, the error of the first one is raised, as by a loop.
    Nothing is forked in any of these cases: torch has one thread; there is at most one item; the
    caller is a daemon process; the system is not Linux; or, with a warning once in this process,
    the caller is not the main thread (another may hold a lock, which would stay locked in a forked
    process). Forked processes end when this function returns or raises (after Ctrl-C too), and when
    this process is killed. Raises MemoryError if the system kills one, and RuntimeError if one ends
    in another way.
    """
    count = min(torch.get_num_threads(), len(items))
    alone = count < 2 or sys.platform != "linux" or multiprocessing.current_process().daemon
    if not alone and threading.current_thread() is not threading.main_thread():
        alone = True
        _say_one_process()
    if alone:
        return [work(item) for item in items]
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(count, get_context("fork"), _begin, (work, items))
    helpers: set[BaseProcess] = set()
    try:
        with _signals_later(), warnings.catch_warnings():
            # Python 3.12 warns that other threads may hold locks: only the main one calls this.
            warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
            results = pool.map(_answer, range(len(items)))  # forks all processes
            helpers = set(multiprocessing.active_children()) - others
        return list(results)
    except BrokenProcessPool:
        pool.shutdown()
        raise _end_of(helpers) from None
    finally:
        for helper in helpers:
            helper.kill()
        pool.shutdown(cancel_futures=True)


@cache  # once in a process
def _say_one_process() -> None:
    what = "batches are searched one after another, in one process, outside of the main thread"
    why = "only that can start others safely; translate in it to use every core"
    warnings.warn(f"{what}: {why}", RuntimeWarning, stacklevel=4)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Deliver Ctrl-C and the like after this block: a new process must first learn to ignore it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_of(helpers: Iterable[BaseProcess]) -> Exception:
    """Return how the first process ended; the pool then terminates the others."""
    statuses = {helper.exitcode for helper in helpers}
    if -signal.SIGKILL in statuses:
        return MemoryError(
            "the system killed a process of the search, probably because memory was used up; "
            "set OMP_NUM_THREADS=1 to search in one process"
        )
    status = next(iter(statuses - {-signal.SIGTERM}), -signal.SIGTERM)
    return RuntimeError(
        f"a process of the search ended with status {status}; set OMP_NUM_THREADS=1 to search "
        f"in one process, which may show the cause"
    )


def _begin(work: Callable[[X], Y], items: Sequence[X]) -> None:
    """Prepare a forked process for work."""
    global _task
    _task = work, items
    for number in STOP_SIGNALS:  # the parent ends this process, by SIGTERM or SIGKILL
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)  # with more, torch would wait for threads that a fork does not copy
    _keep_memory()


def _answer(place: int) -> Any:
    """Work on an item. An error that cannot be sent becomes a RuntimeError with its words."""
    work, items = _task
    try:
        return work(items[place])
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))  # some can be pickled but not read
        except Exception:
            raise RuntimeError(f"{type(error).__name__}: {error}") from None
        raise


def _keep_memory() -> None:
    """Let the allocator of the GNU C library keep what is freed, since each step needs it again.

    By default it returns large pieces to the system, which then clears them again, page by page.
    That took a fifth of the processor time in the search of benchmarks/serving.py.
    """
    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, MOST_KEPT)
        mallopt(_MMAP_THRESHOLD, LARGEST_ON_HEAP)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
