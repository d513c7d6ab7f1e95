"""The cost of each position encoding: time and memory, in training and in decoding, by length.

The same decoder-only model with each encoding, at lengths from 128 on. Each encoding is measured
in separate processes, shorter lengths first, so that a peak of memory belongs to its length. See
README.md in this folder.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from common import FOLDER, conditions, table, write_pictures
from torch.nn.functional import cross_entropy

from ropewalk.encodings import build, split_names
from ropewalk.figures import Picture
from ropewalk.figures.drawing import blank, calm, names_beside, title, width_of
from ropewalk.figures.numbers import short
from ropewalk.figures.palette import Scheme, style
from ropewalk.files import readable_json, write_bytes
from ropewalk.machine import cores, peak_memory
from ropewalk.model import LanguageModel, TransformerShape, initialize

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
ENCODINGS = (
    "none,integer,binary,sinusoidal,learned(max_positions=8400),rotary,rotary(rotary_dim=32),"
    "rotary(learned=True),xpos,alibi,t5,kerple,fire,tupe(max_positions=8400),shaw,transformer_xl,deberta,"
    "cope"
)
LINEAR = (("elu", "none"), ("elu", "rotary"), ("performer", "none"), ("performer", "rotary"))
WORKS = {
    "train": "one training step, forward and backward",
    "decode": "one token on a cache of that length",
}
SHAPE = {"vocabulary": 256, "width": 256, "heads": 4, "feed_forward": 1024}
LAYERS = 2
MEMORY = 20 * 2**30  # memory limit of a process in bytes, which protects the machine
SECONDS = 1.0  # to repeat an encoding at a length, after one warm-up call


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
    """Return a function that decodes one token after a prompt of this length."""
    tokens = torch.randint(SHAPE["vocabulary"], (1, length))
    cache = model.shape.new_cache(LAYERS)
    with torch.inference_mode():
        model(tokens[:, :-1], cache=cache)

    @torch.inference_mode()
    def step() -> None:
        model.logits(model(tokens[:, -1:], cache=cache)[:, -1])

    return step


def measure(model: LanguageModel, work: str, length: int) -> dict[str, Any]:
    """Time one work at one length, in this process: seconds, and the bytes it has used so far."""
    step = {"train": train_step, "decode": decode_step}[work](model, length)
    step()
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - began < SECONDS and len(times) < 200):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return {"seconds": median(times), "fastest": min(times), "times": len(times)}


def in_own_process(
    work: str, encoding: str, attention: str, lengths: Sequence[int]
) -> list[dict[str, Any]]:
    """Measure in a new process; the lengths at which it fails say how it failed."""
    spec = json.dumps([work, encoding, attention, lengths])
    command = [sys.executable, __file__, "--one", spec]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    said = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
    return found + [{"failed": said[-1][:200]}] * (len(lengths) - len(found))


def shown(results: dict[str, Any], work: str) -> str:
    """Return the table of one work: milliseconds by length, as multiples of the first encoding."""
    lengths = results["lengths"]
    base = results["rows"][0][work]
    rows = [["none, ms", *(f"{at['seconds'] * 1e3:,.1f}" for at in base)]]
    for row in results["rows"]:
        cells = [
            "–" if "failed" in at else f"{at['seconds'] / ours['seconds']:.2f}"
            for at, ours in zip(row[work], base, strict=True)
        ]
        rows.append([row["name"], *cells])
    return table([f"{WORKS[work]}: × none", *(f"{n:,}" for n in lengths)], rows)


def shown_memory(results: dict[str, Any]) -> str:
    """Return the memory of a training step and a decoded token at the greatest length."""
    rows = [
        [row["name"], *(_mebibytes(row[work][-1]) for work in WORKS)] for row in results["rows"]
    ]
    return table([f"MiB at {results['lengths'][-1]:,}", *WORKS], rows)


def _mebibytes(at: dict[str, Any]) -> str:
    return "–" if "failed" in at else f"{at['bytes'] / 2**20:,.0f}"


def drawn(results: dict[str, Any]) -> Picture:
    """Return time against length, as multiples of no encoding, a panel for each work."""
    base = results["rows"][0]
    times = {
        work: {
            row["name"]: [
                (n, at["seconds"] / ours["seconds"])
                for n, at, ours in zip(results["lengths"], row[work], base[work], strict=True)
                if "failed" not in at
            ]
            for row in results["rows"]
        }
        for work in WORKS
    }
    names = [row["name"] for row in results["rows"]]

    def draw(scheme: Scheme) -> Figure:
        figure = blank(scheme, 7.2 + width_of(names), 4.6)
        panels = figure.subplots(1, len(WORKS), sharey=True)
        for axes, (work, lines) in zip(panels, times.items(), strict=True):
            for place, (name, points) in enumerate(lines.items()):
                look = style(place)
                xs, ys = [x for x, _ in points], [y for _, y in points]
                axes.plot(
                    xs, ys, look.line, color=look.color, marker=look.marker, markersize=4,
                    linewidth=1, label=name,
                )  # fmt: skip
            axes.set_xscale("log", base=2)
            axes.set_yscale("log")
            axes.set_xlabel("tokens")
            title(axes, scheme, WORKS[work])
            calm(axes, scheme)
        panels[0].set_ylabel("time, as a multiple of no encoding")
        names_beside(figure, panels, scheme)
        return figure

    told = []
    for work, lines in times.items():
        last = [f"{name}, {short(ps[-1][1])}" for name, ps in lines.items() if ps]
        told.append(f"{WORKS[work]}: {'; '.join(last)}")
    alt = "Time by length in tokens, as a multiple of no encoding. At the greatest length of each: "
    return Picture(draw, f"{alt}{'. '.join(told)}.", {"times": times})


def _one(spec: str) -> None:
    work, encoding, attention, lengths = json.loads(spec)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    torch.manual_seed(0)
    model = model_of(encoding, attention).train(work == "train")
    held = peak_memory(torch.device("cpu"))
    for length in lengths:
        found = measure(model, work, length)
        found["bytes"] = peak_memory(torch.device("cpu")) - held
        print(json.dumps(found), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print tables, and write all numbers as JSON and a figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--encodings", default=ENCODINGS, help="as in ropewalk compare")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)))
    parser.add_argument("--linear", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, default=FOLDER / "results" / "cost.json")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        _one(options.one)
        return
    lengths = [int(n) for n in options.lengths.split(",")]
    rows = [("softmax", name) for name in split_names(options.encodings)]
    rows += LINEAR if options.linear else ()
    results: dict[str, Any] = conditions(cores())
    began = time.monotonic()
    results |= {"lengths": lengths, "model": {**SHAPE, "layers": LAYERS}, "rows": []}
    for attention, name in rows:
        row: dict[str, Any] = {"name": name if attention == "softmax" else f"{attention}: {name}"}
        for work in WORKS:
            row[work] = in_own_process(work, name, attention, lengths)
        failures = {at["failed"] for work in WORKS for at in row[work] if "failed" in at}
        print(row["name"], *sorted(failures), flush=True)
        results["rows"].append(row)
    results["duration_s"] = round(time.monotonic() - began, 1)
    for text in (*(shown(results, work) for work in WORKS), shown_memory(results)):
        print("\n" + text)
    write_bytes(options.out, (readable_json(results) + "\n").encode())
    write_pictures(options.out, drawn(results))
    print(f"\n{options.out} in {results['duration_s']:.0f} s")


if __name__ == "__main__":
    main()
