"""The steps that `cost.py` times, and the process that times those of one encoding.

The process says when it is ready. Then it reads lengths from its standard input, one in a line. It
measures each when it reads it, and answers with a line of JSON. Shorter lengths come first, so that
a peak of memory belongs to its length.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from ropewalk.encodings import build
from ropewalk.lab.running.launcher import KEEP_MEMORY
from ropewalk.machine import peak_memory
from ropewalk.model import LanguageModel, TransformerShape, initialize

SHAPE = {"vocabulary": 256, "width": 256, "heads": 4, "feed_forward": 1024}
LAYERS = 2
MEMORY = 20 * 2**30  # memory limit of a process in bytes, which protects the machine
SECONDS = 0.2  # to repeat a step in one turn
REPEATS = 200  # at most


def model_of(encoding: str, attention: str) -> LanguageModel:
    """Return the model that all encodings share, with this encoding and seed 1."""
    shape = TransformerShape(**SHAPE, encoder_layers=0, decoder_layers=LAYERS, attention=attention)
    model = LanguageModel(shape, build(encoding, shape.stack_shape(causal=True)), causal=True)
    initialize(model, 1)
    return model


def train_step(model: LanguageModel, length: int) -> Callable[[], object]:
    """Return a function that does one training step on a sequence of this length."""
    tokens = torch.randint(SHAPE["vocabulary"], (1, length + 1))

    def step() -> None:
        logits = model.logits(model(tokens[:, :-1]))
        cross_entropy(logits.flatten(0, 1), tokens[0, 1:]).backward()
        model.zero_grad()

    return step


def decode_step(model: LanguageModel, length: int) -> Callable[[], object]:
    """Return a function that decodes the last token of this length, again and again."""
    tokens = torch.randint(SHAPE["vocabulary"], (1, length))
    cache = model.shape.new_cache(LAYERS)
    with torch.inference_mode():
        model(tokens[:, :-1], cache=cache)

    @torch.inference_mode()
    def step() -> None:
        for layer in cache.own:  # without this, each repetition sees a longer cache
            layer.length = length - 1
        model.logits(model(tokens[:, -1:], cache=cache)[:, -1])

    return step


STEPS = {"train": train_step, "decode": decode_step}


def measure(model: LanguageModel, work: str, length: int) -> float:
    """Return the median seconds of a step at this length, prepared anew, after one to warm up."""
    step = STEPS[work](model, length)
    step()
    times: list[float] = []
    began = time.perf_counter()
    while not times or (time.perf_counter() - began < SECONDS and len(times) < REPEATS):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return median(times)


class Worker:
    """A process with the model of one encoding, which measures a length when it is asked to.

    failure: why the process ended, in at most 200 characters, or empty.
    """

    def __init__(self, work: str, encoding: str, attention: str) -> None:
        self.failure = ""
        self._process = subprocess.Popen(
            [sys.executable, __file__, work, encoding, attention],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **KEEP_MEMORY},  # as in training
        )  # fmt: skip
        self._answer()  # wait until it is ready, for its start takes time from other processes

    def measure(self, length: int) -> dict[str, Any] | None:
        """Return `seconds` of a step and the `bytes` used so far; None after a failure."""
        if self.failure:
            return None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended, and gives no answer
            print(length, file=self._process.stdin, flush=True)
        return self._answer()

    def _answer(self) -> dict[str, Any] | None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line) if line else {}
        if not found:
            found["failed"] = f"ended with status {self._process.wait()}"
        self.failure = found.get("failed", "")[:200]
        return None if self.failure else found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with suppress(BrokenPipeError):
            self._process.communicate()


def main(work: str, encoding: str, attention: str) -> None:
    """Measure the lengths that standard input names."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    torch.manual_seed(0)
    try:
        model = model_of(encoding, attention).train(work == "train")
        cpu = torch.device("cpu")
        held = peak_memory(cpu)
        print(json.dumps({"ready": True}), flush=True)
        for line in sys.stdin:
            seconds = measure(model, work, int(line))
            ctypes.CDLL(None).malloc_trim(0)  # or all processes together would fill the memory
            print(json.dumps({"seconds": seconds, "bytes": peak_memory(cpu) - held}), flush=True)
    except Exception as error:
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
