"""Translation speed: ropewalk's batched, cached beam search against one sentence at a time.

Both baselines compute the full prefix again at each step: The Annotated Transformer's own way,
with padded sources and unfused attention, and ropewalk's model without its cache. All have the
same weights and the same beam, and must find the same translations. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import FOLDER, conditions, default_data, seconds_of_call, table
from torch import nn
from translation_ways import Way, ways_of

from ropewalk.bench.clock import in_turn
from ropewalk.encodings.absolute import Sinusoidal
from ropewalk.files import write_json
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.data.corpus import load_corpus
from ropewalk.lab.decoding.beam_search import Hypothesis, best
from ropewalk.lab.decoding.translator import Translator
from ropewalk.lab.models import build_model
from ropewalk.lab.tokens import Tokens
from ropewalk.machine import cores
from ropewalk.model import Transformer
from ropewalk.model.linear import linear

TARGET = 20.0  # times the baseline


def measure(
    model: Transformer,
    sources: list[list[int]],
    beam: int,
    *,
    every: int,
    rounds: int,
    say: Callable[[str], None] = lambda text: None,
) -> list[Way]:
    """Measure each way in turn, for several rounds; the slow ones on every n-th sentence."""
    ways = ways_of(model, beam) + (ways_of(model, 1) if beam > 1 else [])
    everything = range(len(sources))
    for way in ways:  # untimed: weights are packed at the first sentences
        way.run(sources[:2])

    def measured(way: Way) -> None:  # each round takes other sentences
        first = len(way.seconds) % every
        way.measure(sources, everything[first::every] if way.sampled else everything)

    in_turn(
        {f"{way.name}, beam {way.beam}": partial(measured, way) for way in ways},
        rounds,
        after_round=lambda done: say(f"round {done} of {rounds}"),
    )
    return ways


def compare_hypotheses(
    model: Transformer, sources: list[list[int]], ours: Way, theirs: Way, length_penalty: float
) -> dict[str, Any]:
    """Compare the best hypotheses of two ways; if they differ, search again in float64.

    Other batches sum in another order and round differently, which can decide near ties.
    Differences that come from rounding vanish in float64.
    """

    def chosen(found: list[Hypothesis]) -> Hypothesis:
        return best(found, length_penalty)

    rows = sorted(ours.found.keys() & theirs.found.keys())
    pairs = {i: (chosen(ours.found[i]), chosen(theirs.found[i])) for i in rows}
    differing = [i for i, (a, b) in pairs.items() if a.ids != b.ids]
    gaps = [
        abs(a.score(length_penalty) - b.score(length_penalty))
        for a, b in (pairs[i] for i in differing)
    ]
    exact = copy.deepcopy(model).double()
    ways = ways_of(exact, ours.beam)
    again = [way.run([sources[i] for i in differing]) for way in (ways[0], ways[-1])]
    agreeing = sum(chosen(a).ids == chosen(b).ids for a, b in zip(*again, strict=True))
    return {
        "sentences": len(rows),
        "identical": len(rows) - len(differing),
        "share": round(1 - len(differing) / len(rows), 4),
        "differing_but_identical_in_float64": agreeing,
        "largest_difference_of_score": max(gaps, default=0.0),
    }


def search_operations(model: Transformer, sources: list[list[int]], way: Way) -> float:
    """Count the floating-point operations of the linear maps in the cached search."""

    def weights(module: nn.Module) -> int:
        maps = [m for m in module.modules() if isinstance(m, nn.Linear)]
        return sum(m.weight.numel() for m in maps)

    of_memory = sum(weights(layer.get_submodule("cross.key_value")) for layer in model.decoder)
    of_source = weights(model.encoder) + of_memory
    of_target = weights(model.decoder) - of_memory + model.embedding.weight.numel()
    read = sum(len(source) + 1 for source in sources)
    steps = sum(1 + max(len(h.ids) for h in found) for found in way.found.values())
    return 2.0 * (read * of_source + steps * way.beam * of_target)


@torch.inference_mode()
def product_rate(width: int, hidden: int, seconds: float) -> float:
    """Return the operations per second of a feed-forward's first map of 600 beams, alone.

    It uses ropewalk's own products, the fastest in torch.
    """
    x, weight = torch.randn(600, width), torch.randn(hidden, width)
    return 2 * x.numel() * hidden / seconds_of_call(lambda: linear(x, weight), seconds)


def summarized(
    model: Transformer, sources: list[list[int]], ways: list[Way], penalty: float
) -> dict[str, Any]:
    """Return each way's seconds and ratio to the first, the gains of cache and batches, a limit."""
    seconds = [median(way.seconds) for way in ways]
    rate = product_rate(model.shape.width, model.shape.feed_forward, 1.0)
    return {
        "rows": [
            {
                "name": way.name,
                "beam": way.beam,
                "seconds": round(taken, 3),
                "every_round": [round(s, 3) for s in way.seconds],
                "extrapolated": way.sampled,
                "sentences_per_s": round(len(sources) / taken, 2),
                "ratio": round(seconds[0] / taken, 2),
            }
            for way, taken in zip(ways, seconds, strict=True)
        ],
        "gains": {
            "no padding, fusion": round(seconds[0] / seconds[1], 2),
            "cache": round(seconds[1] / seconds[2], 2),
            "batches": round(seconds[2] / seconds[3], 2),
        },
        "target": {
            "target": TARGET,
            "The Annotated Transformer's": round(seconds[0] / seconds[3], 2),
            "the same model without a cache": round(seconds[1] / seconds[3], 2),
        },
        "linear_maps_at_bare_speed": {
            "gflops": round(rate / 1e9, 1),
            "seconds": round(search_operations(model, sources, ways[3]) / rate, 3),
        },
        "agreement": {
            f"{way.name} and batched": compare_hypotheses(model, sources, ways[3], way, penalty)
            for way in ways[:3]
        },
    }


def shown(results: dict[str, Any]) -> str:
    """Return the tables of what was measured."""
    cells = [
        [
            row["name"] + (" (extrapolated)" if row["extrapolated"] else ""),
            str(row["beam"]),
            f"{row['seconds']:,.1f}",
            f"{row['sentences_per_s']:,.1f}",
            f"{row['ratio']:.1f}",
        ]
        for row in results["rows"]
    ]
    limit, reached = results["linear_maps_at_bare_speed"], dict(results["target"])
    first = ["linear maps at bare speed", str(results["rows"][0]["beam"])]
    cells.append([*first, f"{limit['seconds']:,.1f}", "", ""])
    head = [f"all of {results['split']}", "beam", "seconds", "sentences/s", "× baseline"]
    lines = [
        f"{pair}: {found['identical']} of {found['sentences']} translations identical; of the "
        f"others, {found['differing_but_identical_in_float64']} are so in float64"
        for pair, found in results["agreement"].items()
    ]
    gains = ", ".join(f"{what} × {gain:.1f}" for what, gain in results["gains"].items())
    target = reached.pop("target")
    against = ", ".join(f"{ratio:.1f} of {what}" for what, ratio in reached.items())
    times = f"times as fast: {against} (target {target:.0f})"
    return "\n".join([table(head, cells), "", f"gains: {gains}", times, *lines])


def untrained(sentences: Sequence[str], beam: int) -> Translator:
    """Return a tiny untrained model, to test that everything runs."""
    tokens = Tokens.train(sentences, 200)
    settings = {"width": 32, "heads": 2, "feed_forward": 64, "device": "cpu"}
    model = build_model(make_config(settings=settings), "sinusoidal", 1, tokens.size)
    return Translator(model.eval(), tokens, beam, 0.6)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table and write all numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, help="model.safetensors of a run, in its folder")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--every", type=int, default=20, help="alone: every n-th sentence")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--data", default=default_data(), help="as in ropewalk compare")
    parser.add_argument("--split", help="default: the corpus's first test split")
    parser.add_argument("--out", type=Path, help="default: results/translation.json in this folder")
    parser.add_argument("--smoke", action="store_true", help="few sentences, an untrained model")
    options = parser.parse_args(arguments)
    if (options.model is None) != options.smoke:
        parser.error("give either --model or --smoke")
    if min(options.beam, options.every, options.rounds) < 1:
        parser.error("beam, every and rounds must be at least 1")
    torch.set_num_threads(options.threads)
    results = conditions(options.threads)
    began = time.monotonic()
    corpus = load_corpus(options.data)
    split = options.split or corpus.test_splits[0]
    if split not in corpus.splits:
        parser.error(f"split must be of {', '.join(corpus.splits)}, got {split!r}")
    texts = [source for source, _ in corpus.splits[split]][: 8 if options.smoke else None]
    if options.smoke:
        translator, options.every, options.rounds = untrained(texts, options.beam), 2, 1
    else:
        translator = Translator.load(options.model, beam=options.beam, device="cpu")
    if not isinstance(translator.model.decoder_encoding, Sinusoidal):
        parser.error("--model must be sinusoidal, as The Annotated Transformer is")
    model, sources = translator.model, translator.tokens.encode(texts)
    every, rounds = min(options.every, len(sources)), options.rounds
    ways = measure(model, sources, options.beam, every=every, rounds=rounds, say=print)
    results |= {
        "corpus": corpus.name,
        "split": split,
        "sentences": len(sources),
        "sampled_every": every,
        "rounds": rounds,
        "shape": asdict(model.shape),
        "encoding": type(model.decoder_encoding).__name__,
        **summarized(model, sources, ways, translator.length_penalty),
    }
    results["duration_s"] = round(time.monotonic() - began, 1)
    print("\n" + shown(results))
    out = options.out or (None if options.smoke else FOLDER / "results" / "translation.json")
    if out is not None:
        write_json(out, results)
        print(f"{out} in {results['duration_s']:.0f} s")


if __name__ == "__main__":
    main()
