"""A run of several processes: at Ctrl-C the command waits until its cells have saved."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from ropewalk.lab import run
from ropewalk.lab.config import make_config

TINY = {
    "epochs": 2,
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "dropout": 0.1,
    "batch_tokens": 64,
    "precision": "float32",
    "validations": 3,
    "keep": 2,
    "average": 2,
    "device": "cpu",
}


@pytest.mark.skipif(os.name == "nt", reason="there are no signals to send")
def test_an_interrupted_run_waits_until_its_cells_have_saved(tmp_path, monkeypatch):
    """Fails if the command has ended, and says that it can go on, while a cell is still saving."""
    slow = (
        "import pathlib, signal, sys, time\n"
        "told = []\n"
        "signal.signal(signal.SIGINT, lambda *_: told.append(True))\n"
        "pathlib.Path(sys.argv[1], 'begun').touch()\n"
        "while not told: time.sleep(0.01)\n"
        "time.sleep(1)\n"
        "pathlib.Path(sys.argv[1], 'saved').touch()\n"
        "sys.exit(130)\n"
    )
    monkeypatch.setattr(run, "_start", lambda *_: _process([sys.executable, "-c", slow, tmp_path]))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run.run_cells(make_config(settings={**TINY, "encodings": "none"}), tmp_path, jobs=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "saved").exists()


def _process(words):
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
