"""A process imports nothing from where it works, and ends deaf to the signals that it handled.

Fails if a child of a command runs a file of the working directory because it has a module's name,
or if a signal that arrives at exit prints a traceback or changes the exit status.
"""

import os
import signal
import subprocess
import sys
import time

import pytest

from ropewalk.lab import stopping
from ropewalk.lab.stopping import interrupt_again, interrupt_once, interruptions

AT_EXIT = """
import atexit, os, signal, sys
from ropewalk.lab.stopping import end_with, interrupt_once

number = int(sys.argv[1])
signal.signal(number, interrupt_once)
atexit.register(lambda: [os.kill(os.getpid(), number), print("after it")])
end_with(lambda: 3)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR2"])
def test_a_signal_at_exit_changes_nothing(name):
    words = [sys.executable, "-c", AT_EXIT, str(int(getattr(signal, name)))]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "after it\n", "")


def test_children_do_not_import_from_the_working_directory(traps):
    code = "import subprocess, sys; from ropewalk.lab.stopping import end_with\n"
    code += "child = [sys.executable, '-c', 'import struct, random, yaml']\n"
    code += "end_with(lambda: subprocess.call(child))"
    assert subprocess.run([sys.executable, "-P", "-c", code], timeout=60).returncode == 0


def test_an_interruption_is_collected_and_the_handler_put_back():
    before = signal.getsignal(signal.SIGINT)
    with interruptions() as received:
        os.kill(os.getpid(), signal.SIGINT)
        assert received == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interruption_in_a_destructor_is_not_lost(monkeypatch):
    """Fails if Ctrl-C is dropped when it arrives where Python cannot raise."""

    class Interrupted:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGTERM)

    def work():
        Interrupted()  # destroyed at once
        time.sleep(30)

    monkeypatch.setattr(sys, "unraisablehook", interrupt_again)
    monkeypatch.setattr(stopping, "_interrupted_at", float("-inf"))
    before = signal.signal(signal.SIGTERM, interrupt_once)
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.signal(signal.SIGTERM, before)
