"""The cost of each position encoding: time and memory, in training and in decoding, by length.

The same decoder-only model with each encoding, at lengths from 128 on. Each encoding has a process
of its own. At each length the processes take turns for several rounds. Only times of the same round
are compared, and the median of the rounds counts, so that a disturbance moves few ratios. See
README.md in this folder.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from common import FOLDER, conditions, table, write_pictures
from cost_steps import LAYERS, SHAPE, Worker

from ropewalk.bench.clock import in_turn
from ropewalk.encodings import split_names
from ropewalk.figures import Picture
from ropewalk.figures.drawing import Scheme, style, width_of
from ropewalk.figures.plot_data import short
from ropewalk.files import readable_json, write_bytes
from ropewalk.machine import cores

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


def by_length(workers: Sequence[Worker], lengths: Sequence[int], rounds: int) -> list[list[Any]]:
    """Measure all workers at each length, in turn, for several rounds; return a list for each.

    The first worker is what the others are compared with. Raises RuntimeError if it fails.
    """
    rows: list[list[Any]] = [[] for _ in workers]
    for length in lengths:
        measures = {str(i): partial(w.measure, length) for i, w in enumerate(workers)}
        found = [
            [answer for answer in answers if answer is not None]
            for answers in in_turn(measures, rounds).values()
        ]
        if workers[0].failure:
            raise RuntimeError(
                f"the first encoding, which the others are compared with, failed at {length} "
                f"tokens: {workers[0].failure}"
            )
        for row, worker, answers in zip(rows, workers, found, strict=True):
            failed = {"failed": worker.failure}
            row.append(failed if worker.failure else summarized(answers, found[0]))
    return rows


def summarized(answers: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians over rounds of the seconds and of their ratios to the base's."""
    seconds = [answer["seconds"] for answer in answers]
    ratios = [own / other["seconds"] for own, other in zip(seconds, base, strict=True)]
    return {
        "seconds": _rounded(median(seconds)),
        "ratio": _rounded(median(ratios)),
        "ratios": [_rounded(each) for each in ratios],
        "bytes": max(answer["bytes"] for answer in answers),
    }


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def shown(results: dict[str, Any], work: str) -> str:
    """Return the table of one work: milliseconds by length, as multiples of the first encoding."""
    base = results["rows"][0][work]
    rows = [["none, ms", *(f"{at['seconds'] * 1e3:,.1f}" for at in base)]]
    for row in results["rows"]:
        cells = ["–" if "failed" in at else f"{at['ratio']:.2f}" for at in row[work]]
        rows.append([row["name"], *cells])
    return table([f"{WORKS[work]}: × none", *(f"{n:,}" for n in results["lengths"])], rows)


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
    times = {
        work: {
            row["name"]: [
                (length, at["ratio"])
                for length, at in zip(results["lengths"], row[work], strict=True)
                if "failed" not in at
            ]
            for row in results["rows"]
        }
        for work in WORKS
    }
    names = [row["name"] for row in results["rows"]]

    def draw(scheme: Scheme) -> Figure:
        figure = scheme.blank(7.2 + width_of(names), 4.6)
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
            scheme.title(axes, WORKS[work])
            scheme.calm(axes)
        panels[0].set_ylabel("time, as a multiple of no encoding")
        scheme.names_beside(figure, panels)
        return figure

    told = []
    for work, lines in times.items():
        last = [f"{name}, {short(ps[-1][1])}" for name, ps in lines.items() if ps]
        told.append(f"{WORKS[work]}: {'; '.join(last)}")
    alt = "Time by length in tokens, as a multiple of no encoding. At the greatest length of each: "
    return Picture(draw, f"{alt}{'. '.join(told)}.", {"times": times})


def numbers(text: str) -> list[int]:
    """Return numbers that are separated by commas."""
    return [int(number) for number in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print tables, and write all numbers as JSON and a figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--encodings", default=ENCODINGS, help="as in ropewalk compare")
    parser.add_argument("--lengths", type=numbers, default=LENGTHS)
    parser.add_argument("--linear", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", type=Path, default=FOLDER / "results" / "cost.json")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {options.rounds}")
    lengths = list(options.lengths)
    rows = [("softmax", name) for name in split_names(options.encodings)]
    rows += LINEAR if options.linear else ()
    names = [name if attention == "softmax" else f"{attention}: {name}" for attention, name in rows]
    results: dict[str, Any] = conditions(cores())
    began = time.monotonic()
    results |= {"lengths": lengths, "model": {**SHAPE, "layers": LAYERS}}
    results |= {"rounds": options.rounds, "rows": [{"name": name} for name in names]}
    for work in WORKS:
        workers = [Worker(work, name, attention) for attention, name in rows]
        try:
            found = by_length(workers, lengths, options.rounds)
        except RuntimeError as error:
            parser.error(str(error))
        finally:
            for worker in workers:
                worker.close()
        for row, measured in zip(results["rows"], found, strict=True):
            row[work] = measured
            failures = {at["failed"] for at in measured if "failed" in at}
            print(f"{work}, {row['name']}:", *failures or {"measured"}, flush=True)
    results["duration_s"] = round(time.monotonic() - began, 1)
    for text in (*(shown(results, work) for work in WORKS), shown_memory(results)):
        print("\n" + text)
    write_bytes(options.out, (readable_json(results) + "\n").encode())
    write_pictures(options.out, drawn(results))
    print(f"\n{options.out} in {results['duration_s']:.0f} s")


if __name__ == "__main__":
    main()
