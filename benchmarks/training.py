"""Training throughput in real target tokens per second, against the Annotated Transformer's way.

One process measures the rows in turn, for several rounds, and reports the median of the rounds as
a ratio to the first row. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import annotated
import torch
from common import (
    FOLDER,
    conditions,
    default_data,
    matmul_rate,
    precisions,
    product_operations,
    table,
)

from ropewalk.bench.clock import in_turn
from ropewalk.files import write_json
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.data.batches import Batch, EncodedSplit, make_batch, plan_epoch
from ropewalk.lab.data.corpus import Corpus, load_corpus
from ropewalk.lab.loss import autocast
from ropewalk.lab.tasks.translation import Translation
from ropewalk.lab.tokens import Tokens
from ropewalk.lab.training.trainer import Trainer
from ropewalk.machine import cores
from ropewalk.model import TransformerShape

VOCABULARY = 8000
BATCH_TOKENS = 4096  # of a batch of similar lengths, as in the preset multi30k-base
SMOOTHING = 0.1
SHAPES = {
    "base": TransformerShape(VOCABULARY, 512, 8, 2048, 6, 6, dropout=0.1),
    "small": TransformerShape(VOCABULARY, 256, 8, 1024, 3, 3, dropout=0.1),
    "smoke": TransformerShape(VOCABULARY, 32, 2, 64, 1, 1, dropout=0.1),
}
TARGETS = {"float32": 5.0, "bfloat16": 8.0}  # times the baseline in float32


@dataclass
class Row:
    """A way to train: the work of one batch, and of an update of the parameters."""

    name: str
    precision: str
    batch: Callable[[list[int]], tuple[int, float]]  # rows in; real target tokens, operations out
    update: Callable[[], None]
    accumulate: int  # batches to an update
    plan: Iterator[list[int]]

    def measure(self, seconds: float) -> tuple[float, float]:
        """Train for so long, at least one batch; return tokens and operations per second.

        One update is timed, and each batch counts its share of it.
        """
        tokens, operations, batches, spent = 0, 0.0, 0, 0.0
        began = time.perf_counter()
        while batches == 0 or spent < seconds:
            of_batch = self.batch(next(self.plan))
            tokens, operations = tokens + of_batch[0], operations + of_batch[1]
            batches, spent = batches + 1, time.perf_counter() - began
        began = time.perf_counter()
        self.update()
        spent += (time.perf_counter() - began) * batches / self.accumulate
        return tokens / spent, operations / spent


class AnnotatedWay:
    """The baseline's model and optimizer, with the precision and the batches of a row."""

    def __init__(self, shape: TransformerShape, split: EncodedSplit) -> None:
        self.split = split
        self.model = annotated.AnnotatedTransformer(shape).train()
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9
        )

    def row(self, name: str, precision: str, *, fixed: bool) -> Row:
        """Return a row; `fixed`: 32 sentences padded to 72, else batches of similar lengths."""

        def batch(rows: list[int]) -> tuple[int, float]:
            made = (annotated.padded_batch if fixed else make_batch)(self.split, rows)
            with autocast(torch.device("cpu"), precision):
                loss = annotated.annotated_loss(self.model, made, SMOOTHING)
            loss.backward()
            return made.target_tokens, self._operations(made)

        def update() -> None:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

        plan = plan_of(self.split, fixed=fixed)
        return Row(name, precision, batch, update, annotated.ACCUMULATE if fixed else 1, plan)

    def _operations(self, batch: Batch) -> float:
        sentences, source = batch.source.shape
        target = batch.target_in.shape[1]
        return product_operations(self.model.shape, sentences, source, target, sentences * target)


def ropewalk_row(
    name: str, precision: str, shape: TransformerShape, split: EncodedSplit, folder: Path
) -> Row:
    """Return the row of ropewalk's own training step, which ends with the update."""
    sizes = {k: v for k, v in asdict(shape).items() if k != "vocabulary"}
    settings = {**sizes, "batch_tokens": BATCH_TOKENS, "precision": precision, "device": "cpu"}
    config = make_config("multi30k-base", settings=settings)
    task = Translation(config, folder)
    task.data, task.vocabulary = {"train": split, "validation": split}, shape.vocabulary
    trainer = Trainer(task, "sinusoidal", 1, folder)

    def batch(rows: list[int]) -> tuple[int, float]:
        before = trainer.record.target_tokens
        trainer.step([rows])
        tokens = trainer.record.target_tokens - before
        source, target = (1 + max(len(s[i]) for i in rows) for s in (split.source, split.target))
        return tokens, product_operations(shape, len(rows), source, target, tokens)

    return Row(name, precision, batch, lambda: None, 1, plan_of(split, fixed=False))


def plan_of(split: EncodedSplit, *, fixed: bool) -> Iterator[list[int]]:
    """Yield batches without end, in the same order for every row."""
    sentences = annotated.SENTENCES if fixed else None
    plan = plan_epoch(split, tokens=BATCH_TOKENS, sentences=sentences, seed=1, epoch=0)
    return itertools.cycle(plan)


def rows_of(shape: TransformerShape, split: EncodedSplit) -> list[Row]:
    """Return the rows of a model, the baseline first."""
    way = AnnotatedWay(shape, split)
    nowhere = FOLDER / "results" / "none"  # a single step reads and writes nothing
    rows = [
        way.row("baseline", "float32", fixed=True),
        way.row("baseline", "bfloat16", fixed=True),
        way.row("+ less padding", "float32", fixed=False),
        ropewalk_row("+ fusion = ropewalk", "float32", shape, split, nowhere),
        ropewalk_row("ropewalk", "bfloat16", shape, split, nowhere),
    ]
    return [row for row in rows if row.precision in precisions()]


def measure_model(
    shape: TransformerShape,
    split: EncodedSplit,
    rounds: int,
    seconds: float,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Measure every row in turn, for several rounds, together with the bare products."""
    torch.manual_seed(1)
    rows = rows_of(shape, split)
    for row in rows:  # untimed: memory is taken and weights are packed at the first batch
        row.measure(0.0)
        say(f"warm: {row.name}, {row.precision}")
    sizes = shape.width, shape.feed_forward
    bare = {p: partial(matmul_rate, *sizes, p, min(1.0, seconds)) for p in precisions()}
    measures = [*(partial(row.measure, seconds) for row in rows), *bare.values()]
    samples = in_turn(
        {str(place): measure for place, measure in enumerate(measures)},
        rounds,
        after_round=lambda done: say(f"round {done} of {rounds}"),
    )
    rates = [*samples.values()][: len(rows)]
    limits = dict(zip(bare, map(median, [*samples.values()][len(rows) :]), strict=True))
    return {
        "shape": asdict(shape),
        "bare_matmul_gflops": {k: round(v / 1e9, 1) for k, v in limits.items()},
        **summarized(rows, rates, limits),
    }


def summarized(
    rows: Sequence[Row], rates: Sequence[Sequence[tuple[float, float]]], limits: dict[str, float]
) -> dict[str, Any]:
    """Return each row's medians, its ratio to the first, and what each change gained."""
    out = []
    speeds = [median(tokens for tokens, _ in found) for found in rates]
    for row, found, speed in zip(rows, rates, speeds, strict=True):
        rate = median(operations for _, operations in found)
        out.append(
            {
                "name": row.name,
                "precision": row.precision,
                "tokens_per_s": round(speed, 1),
                "every_round": [round(tokens, 1) for tokens, _ in found],
                "ratio": round(speed / speeds[0], 2),
                "gflops": round(rate / 1e9, 1),
                "share_of_matmul": round(rate / limits[row.precision], 3),
            }
        )
    speed_of = {(r.name, r.precision): s for r, s in zip(rows, speeds, strict=True)}
    fused = speed_of["+ fusion = ropewalk", "float32"]
    gains = {
        "less padding": speed_of["+ less padding", "float32"] / speeds[0],
        "fusion": fused / speed_of["+ less padding", "float32"],
    }
    reached = {"float32": fused / speeds[0]}
    if ("ropewalk", "bfloat16") in speed_of:
        fast, slow = speed_of["ropewalk", "bfloat16"], speed_of["baseline", "bfloat16"]
        gains |= {"bfloat16": fast / fused, "bfloat16 alone, on the baseline": slow / speeds[0]}
        reached |= {"bfloat16": fast / speeds[0]}
    return {
        "rows": out,
        "gains": {name: round(gain, 2) for name, gain in gains.items()},
        "targets": {
            precision: {"target": TARGETS[precision], "reached": round(times, 2)}
            for precision, times in reached.items()
        },
    }


def shown(name: str, results: dict[str, Any]) -> str:
    """Return the table of a model's rows."""
    head = [name, "precision", "target tokens/s", "× baseline", "GFLOP/s", "of bare matmul"]
    cells = [
        [
            row["name"],
            row["precision"],
            f"{row['tokens_per_s']:,.0f}",
            f"{row['ratio']:.2f}",
            f"{row['gflops']:,.0f}",
            f"{row['share_of_matmul']:.0%}",
        ]
        for row in results["rows"]
    ]
    for precision, rate in results["bare_matmul_gflops"].items():
        cells.append(["bare matmul", precision, "", "", f"{rate:,.0f}", "100%"])
    gains = ", ".join(f"{what} × {gain:.2f}" for what, gain in results["gains"].items())
    targets = ", ".join(
        f"{precision} {found['reached']:.2f} (target {found['target']:.0f})"
        for precision, found in results["targets"].items()
    )
    return f"{table(head, cells)}\n\ngains: {gains}\ntimes the baseline: {targets}\n"


def encode(corpus: Corpus) -> EncodedSplit:
    """Encode the training pairs that fit the baseline's length with both marks."""
    pairs = corpus.splits["train"]
    tokens = Tokens.train((s for pair in pairs for s in pair), VOCABULARY, lowercase=True)
    sources, targets = (tokens.encode(side) for side in zip(*pairs, strict=True))
    both = zip(sources, targets, strict=True)
    kept = [(s, t) for s, t in both if max(len(s), len(t)) + 2 <= annotated.LENGTH]
    return EncodedSplit([s for s, _ in kept], [t for _, t in kept])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table for each model and write all numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="base,small", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="at least, per row and round")
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--data", default=default_data(), help="as in ropewalk compare")
    parser.add_argument("--out", type=Path, help="default: results/training.json in this folder")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, one batch of each row")
    options = parser.parse_args(arguments)
    if options.smoke:
        options.models, options.rounds, options.seconds = "smoke", 1, 0.0
    unknown = [name for name in options.models.split(",") if name not in SHAPES]
    if unknown or options.rounds < 1:
        parser.error(f"models must be of {', '.join(SHAPES)}, and rounds at least 1")
    torch.set_num_threads(options.threads)
    results = conditions(options.threads)
    began = time.monotonic()
    corpus = load_corpus(options.data)
    split = encode(corpus)
    results["corpus"] = {
        "name": corpus.name,
        "pairs": len(split),
        "left_out": len(corpus.splits["train"]) - len(split),
        "target_tokens_of_a_sentence": round(sum(len(t) + 1 for t in split.target) / len(split), 2),
    }
    results["rounds"], results["seconds"] = options.rounds, options.seconds
    results["models"] = {}
    for name in options.models.split(","):
        found = measure_model(SHAPES[name], split, options.rounds, options.seconds, print)
        results["models"][name] = found
        print("\n" + shown(name, found), flush=True)
    results["duration_s"] = round(time.monotonic() - began, 1)
    out = options.out or (None if options.smoke else FOLDER / "results" / "training.json")
    if out is not None:
        write_json(out, results)
        print(f"{out} in {results['duration_s']:.0f} s")


if __name__ == "__main__":
    main()
