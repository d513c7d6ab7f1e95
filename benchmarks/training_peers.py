"""Training throughput in real target tokens per second of CPU time, against transformers' Trainer.

The ways take turns in one process, for several rounds; a ratio is taken within a round. See
README.md in this folder.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import FOLDER, conditions, default_data, precisions, table
from training_ways import WAYS, sentences_of

from ropewalk.bench.clock import in_turn
from ropewalk.files import write_json
from ropewalk.lab.data.batches import EncodedSplit
from ropewalk.lab.data.corpus import Corpus, load_corpus
from ropewalk.lab.tokens import Tokens
from ropewalk.model import TransformerShape

# A shape, and the tokens of a batch: those of the presets multi30k-cpu and multi30k-base.
MODELS = {
    "cpu": (TransformerShape(4000, 128, 4, 512, 4, 4, dropout=0.1), 1536),
    "base": (TransformerShape(8000, 512, 8, 2048, 6, 6, dropout=0.1), 4096),
    "smoke": (TransformerShape(200, 32, 2, 64, 1, 1, dropout=0.1), 256),
}
PEER = "Trainer, group_by_length"
TARGET = 1.5  # times the peer
NEEDED = {"transformers": "all rows but ropewalk's", "accelerate": "the rows of the Trainer"}


def measure(
    shape: TransformerShape,
    tokens: int,
    split: EncodedSplit,
    rounds: int,
    seconds: float,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Measure every way in each precision, in turn, and return the rows."""
    ways = {
        (name, precision): make(shape, split, precision, tokens)
        for precision in precisions()
        for name, make in WAYS.items()
        if not missing(name)
    }
    for (name, precision), way in ways.items():  # untimed: memory is taken, weights are packed
        way.train(seconds / 4)
        say(f"warm: {name}, {precision}")
    keys = {f"{name}, {precision}": (name, precision) for name, precision in ways}
    samples = in_turn(
        {label: partial(ways[key].train, seconds) for label, key in keys.items()},
        rounds,
        after_round=lambda done: say(f"round {done} of {rounds}"),
    )
    rates = {keys[label]: [done / spent for done, spent in x] for label, x in samples.items()}
    return [row(*key, found, rates.get((PEER, key[1]), found)) for key, found in rates.items()]


def row(name: str, precision: str, found: list[float], peer: list[float]) -> dict[str, Any]:
    """Return the medians of the rounds: the rate, and its ratio to the peer's."""
    ratios = [own / other for own, other in zip(found, peer, strict=True)]
    return {
        "name": name,
        "precision": precision,
        "tokens_per_s": round(median(found), 1),
        "every_round": [round(rate, 1) for rate in found],
        "ratio": round(median(ratios), 2),
        "ratio_least": round(min(ratios), 2),
        "ratio_most": round(max(ratios), 2),
    }


def missing(name: str) -> str | None:
    """Return the package that a way needs and that is not installed, or None."""
    needed = {"ropewalk": (), "Marian": ("transformers",)}.get(name.split()[0], NEEDED)
    for package in needed:
        try:
            version(package)
        except PackageNotFoundError:
            return package
    return None


def shown(name: str, rows: list[dict[str, Any]]) -> str:
    """Return the table of a model's rows."""
    head = [name, "precision", "target tokens/s", "× Trainer", "least and most of a round"]
    cells = [
        [
            row["name"],
            row["precision"],
            f"{row['tokens_per_s']:,.0f}",
            f"{row['ratio']:.2f}",
            f"{row['ratio_least']:.2f} to {row['ratio_most']:.2f}",
        ]
        for row in rows
    ]
    return table(head, cells)


def encode(corpus: Corpus, vocabulary: int) -> EncodedSplit:
    """Encode the training pairs."""
    pairs = corpus.splits["train"]
    tokens = Tokens.train((s for pair in pairs for s in pair), vocabulary, lowercase=True)
    return EncodedSplit(*(tokens.encode(side) for side in zip(*pairs, strict=True)))


def arguments_of(words: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default="cpu", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="at least, per row and round")
    parser.add_argument("--data", default=default_data(), help="as in ropewalk compare")
    parser.add_argument("--out", type=Path, help="default: results/training-peers.json beside this")
    parser.add_argument("--smoke", action="store_true", help="a tiny model, one step of each row")
    options = parser.parse_args(words)
    if options.smoke:
        options.models, options.rounds, options.seconds = "smoke", 1, 0.0
    if set(options.models.split(",")) - set(MODELS) or options.rounds < 1:
        parser.error(f"models must be of {', '.join(MODELS)}, and rounds at least 1")
    return options


def main(words: Sequence[str] | None = None) -> None:
    """Measure, print a table for each model and write all numbers as JSON."""
    options = arguments_of(words)
    torch.set_num_threads(1)  # CPU time is then the time of the work
    results, began = conditions(1), time.monotonic()
    for package, what in NEEDED.items():
        try:
            results["versions"][package] = version(package)
        except PackageNotFoundError:
            print(f"{package} is not installed: without it, {what} are left out")
    corpus = load_corpus(options.data)
    results["corpus"] = {"name": corpus.name, "pairs": len(corpus.splits["train"])}
    results |= {"rounds": options.rounds, "seconds": options.seconds, "models": {}}
    for name in options.models.split(","):
        shape, tokens = MODELS[name]
        split = encode(corpus, shape.vocabulary)
        rows = measure(shape, tokens, split, options.rounds, options.seconds, print)
        sentences = sentences_of(split, tokens)
        facts = {"batch_tokens": tokens, "sentences_of_a_trainer_batch": sentences}
        results["models"][name] = {"shape": asdict(shape), **facts, "rows": rows}
        print("\n" + shown(name, rows) + "\n", flush=True)
    results |= {"target": TARGET, "duration_s": round(time.monotonic() - began, 1)}
    out = options.out or (None if options.smoke else FOLDER / "results" / "training-peers.json")
    if out is not None:
        write_json(out, results)
        print(f"{out} in {results['duration_s']:.0f} s")


if __name__ == "__main__":
    main()
