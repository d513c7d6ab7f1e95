"""`on_each_core` gives the results and errors of a plain loop.

These fail when results depend on the number of processes or come in another order, when an error in
a process is lost, changed or repeated, when a process that dies leaves the caller waiting, and when
processes survive Ctrl-C or the death of their parent.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_tasks import translation_config

from ropewalk.lab.decoding import processes
from ropewalk.lab.decoding.processes import on_each_core
from ropewalk.lab.decoding.translator import translate_ids
from ropewalk.lab.models import build_model

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
    assert not multiprocessing.active_children()


class Unreadable(Exception):  # noqa: N818
    """An error that pickle writes but cannot read."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_a_search_gives_the_same_bits_in_one_process_and_in_two():
    model = build_model(translation_config(), "rotary", 0, 600).eval()
    draw = torch.Generator().manual_seed(0)
    lengths = torch.randint(0, 5, (12,), generator=draw).tolist()
    sources = [torch.randint(3, 600, (n,), generator=draw).tolist() for n in lengths]
    parallel = translate_ids(model, sources, beam=3, tokens=50)
    torch.set_num_threads(1)
    assert translate_ids(model, sources, beam=3, tokens=50) == parallel


@given(st.lists(st.integers(-9, 9), max_size=12))
@settings(max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_results_are_in_order_and_the_first_error_is_raised(numbers):
    def work(number: int) -> tuple[int, int]:
        if number < 0:
            raise ValueError(f"number must be at least 0, got {number}")
        return number, torch.ones(1000).sum().int().item()

    negative = [number for number in numbers if number < 0]
    if negative:
        with pytest.raises(ValueError, match=f"number must be at least 0, got {negative[0]}$"):
            on_each_core(work, numbers)
    else:
        assert on_each_core(work, numbers) == [(number, 1000) for number in numbers]


def test_two_processes_share_the_work():
    def where(_: int) -> int:
        time.sleep(0.02)
        return os.getpid()

    found = on_each_core(where, range(10))
    assert len(set(found)) == 2
    assert os.getpid() not in found


def test_one_item_one_thread_and_other_threads_stay_in_this_process():
    assert on_each_core(lambda _: os.getpid(), [1]) == [os.getpid()]
    processes._say_one_process.cache_clear()
    with ThreadPoolExecutor(1) as other, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for items in ([1], [1, 2], [1, 2]):
            found = other.submit(on_each_core, lambda _: os.getpid(), items).result()
            assert found == [os.getpid()] * len(items)
    (warning,) = said  # once, and none for one item
    assert "main thread: only that can start others safely" in str(warning.message)
    torch.set_num_threads(1)
    assert on_each_core(lambda _: os.getpid(), [1, 2]) == [os.getpid()] * 2


def test_an_error_that_cannot_be_sent_is_told_in_words():
    def work(_: int) -> None:
        raise Unreadable(1, 2)

    with pytest.raises(RuntimeError, match=r"^Unreadable: 1 and 2$"):
        on_each_core(work, [1, 2])


def test_a_process_that_is_killed_is_reported_as_out_of_memory():
    with pytest.raises(MemoryError, match="set OMP_NUM_THREADS=1 to search in one process"):
        on_each_core(lambda _: os.kill(os.getpid(), signal.SIGKILL), range(4))


def test_a_process_that_ends_is_reported_with_its_status():
    with pytest.raises(RuntimeError, match="a process of the search ended with status 3"):
        on_each_core(lambda _: os._exit(3), range(4))


SCRIPT = r"""
import os, sys, time, torch
from ropewalk.lab.decoding.processes import on_each_core
torch.set_num_threads(2)
def work(_):
    os.write(1, b"%d\n" % os.getpid())  # at once: two processes share the pipe
    time.sleep(60)
on_each_core(work, range(4))
"""


@pytest.mark.slow  # a process that imports torch
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_no_process_survives_ctrl_c_or_its_parent(ending):
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    processes = [int(parent.stdout.readline()) for _ in range(2)]
    # Ctrl-C reaches all processes of a terminal at once.
    (os.killpg if ending == signal.SIGINT else os.kill)(parent.pid, ending)
    _, said = parent.communicate(timeout=30)
    assert said.count("KeyboardInterrupt") == (1 if ending == signal.SIGINT else 0)
    for process in processes:
        until = time.monotonic() + 30
        while Path(f"/proc/{process}/stat").exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert not Path(f"/proc/{process}/stat").exists()
