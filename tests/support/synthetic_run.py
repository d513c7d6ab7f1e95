"""An invented run folder for tests: consistent numbers, awkward strings, one diverged training."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

from ropewalk.files import Facts
from ropewalk.lab.config import slug
from ropewalk.lab.report.verdicts import summarize
from ropewalk.lab.results import Results
from ropewalk.lab.tasks import CLASSES

ENCODINGS = ("none", "sinusoidal", "rotary(theta=1e6)")
SEEDS = (1, 2)
SPLITS = ("test", "long")
BINS = {
    "test": [
        {"from": 3, "to": 8, "sentences": 41},
        {"from": 9, "to": 9, "sentences": 39},
        {"from": 10, "to": 14, "sentences": 40},
    ],
    "long": [{"from": 20, "to": 26, "sentences": 25}, {"from": 27, "to": 40, "sentences": 25}],
}
BLEU = {"none": 27.31, "sinusoidal": 37.19, "rotary(theta=1e6)": 39.59}
AWKWARD = "Der Mann <b>grüßt</b> & sagt </script><script>alert('Ü')</script>"


def results(encodings: tuple[str, ...] = ENCODINGS, *, diverged: bool = True) -> Facts:
    """Facts as a comparison writes them; with `diverged` the last training has no result."""
    lost = (encodings[-1], SEEDS[-1]) if diverged else None
    rows = [_row(name, place, lost) for place, name in enumerate(encodings)]
    summarize(rows, SPLITS, ("bleu", "chrf"))
    for place, row in enumerate(rows):
        for split in SPLITS:
            row["summary"][split]["versus_first"] = _versus(rows[0], row, split) if place else None
    return {
        "ropewalk": "0.1.0",
        "command": "ropewalk compare --data 'corpus <ä>' --seeds 1,2",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "started": "2026-11-20T12:00:00+00:00",
        "sittings": 2,
        "duration_s": 4321.5,
        "versions": {"python": "3.11.2", "torch": "2.13.0", "sacrebleu": "2.6.0"},
        "machine": {
            "processor": "Some CPU & Co",
            "cores": 2,
            "threads_per_cell": 1,
            "cells_at_once": 2,
            "device": "cpu",
            "precision": "bfloat16",
        },
        "config": {
            "preset": "quick",
            "task": "translation",
            "data": "corpus <ä>",
            "source": "de",
            "target": "en",
            "encodings": list(encodings),
            "seeds": list(SEEDS),
            "lowercase": True,
            "width": 64,
            "beam": 4,
            "length_penalty": 0.6,
        },
        "corpus": {
            "name": "corpus <ä>",
            "source": "de",
            "target": "en",
            "pairs": {"train": 29000, "validation": 1014, "test": 120, "long": 50},
            "seen_in_training": {
                "validation": {"source": 9, "target": 12, "pairs": 3},
                "test": {"source": 17, "target": 19, "pairs": 6},
                "long": {"source": 0, "target": 0, "pairs": 0},
            },
            "longest_in_training": {"source": 44, "target": 41},
            "left_out": 7,
            "vocabulary": 7985,
            "notes": ["line 7 was blank on both sides"],
        },
        "signatures": {
            "bleu": "nrefs:1|case:lc|eff:no|tok:13a|smooth:exp|version:2.6.0",
            "chrf": "nrefs:1|case:lc|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
        },
        "task": "translation",
        "metrics": [metric.facts() for metric in CLASSES["translation"].metrics],
        "tested_metric": "bleu",
        "note": None,
        "against": [],
        "splits": list(SPLITS),
        "length_bins": BINS,
        "encodings": rows,
    }


def typed(facts: Facts) -> Results:
    """Results as the report reads them."""
    return Results.model_validate(facts)


def examples(facts: Facts) -> Facts:
    """Six sentences, the first of them awkward, with a translation by each encoding."""
    sentences = []
    for index in range(6):
        source, reference = AWKWARD, "the man says <b>hello</b>"
        if index:
            source = f"der Mann grüßt {index} Leute im Park"
            reference = f"the man greets {index} people in the park"
        hypotheses = {
            row["slug"]: " ".join(reference.split()[: 5 + place] + ["</script>"] * (place == 1))
            for place, row in enumerate(facts["encodings"])
        }
        sentences.append({"index": index, "source": source, "reference": reference})
        sentences[-1]["hypotheses"] = hypotheses
    return {"split": "test", "rule": "the first two of each length bin", "sentences": sentences}


def attention(facts: Facts, *, sentences: int = 2, layers: int = 2, heads: int = 3) -> Facts:
    """Maps in which each head has its weight at a different place."""
    chosen = [
        {"index": i, "source": AWKWARD if i == 0 else "ein Hund läuft", "target": "a dog runs"}
        for i in range(sentences)
    ]
    source = ["▁der", "▁Mann", "▁grüß", "t", "</script>", "<b>", "[EOS]"]
    target = ["[BOS]", "▁the", "▁man", "▁greets", "&amp;"]
    maps = {}
    for place, row in enumerate(facts["encodings"]):
        sizes = (layers, heads, place)
        sites = [
            {
                "encoder": _map(source[i:], source[i:], *sizes, causal=False),
                "decoder": _map(target[i:], target[i:], *sizes, causal=True),
                "cross": _map(target[i:], source[i:], *sizes, causal=False),
            }
            for i in range(sentences)
        ]
        maps[row["slug"]] = {"seed": SEEDS[0], "sentences": sites}
    return {"rule": "quartiles of length <in tokens>", "sentences": chosen, "encodings": maps}


def write_run(folder: Path, facts: Facts | None = None) -> Path:
    """Write the three files that the report is made from."""
    facts = results() if facts is None else facts
    folder.mkdir(parents=True, exist_ok=True)
    files = {"results": facts, "examples": examples(facts), "attention": attention(facts)}
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def _row(name: str, place: int, lost: tuple[str, int] | None) -> Facts:
    return {
        "name": name,
        "slug": slug(name),
        "parameters": 7_600_128 + 512 * place,
        "cells": [_cell(name, place, seed, (name, seed) == lost) for seed in SEEDS],
    }


def _cell(name: str, place: int, seed: int, lost: bool) -> Facts:
    rng = random.Random(f"{name}{seed}")
    steps, pace = (60 if lost else 400), 1.5 + 0.05 * place
    floor = 2.4 - 0.1 * place + 0.03 * seed
    training = [
        {
            "step": s,
            "seconds": s * pace,
            "loss": floor + 6 * math.exp(-s / 50) + rng.uniform(-0.2, 0.2),
        }
        for s in range(2, steps + 1, 2)
    ]
    validation = [
        {"step": s, "seconds": s * pace, "loss": floor - 0.3 + 4 * math.exp(-s / 60)}
        for s in range(40, steps + 1, 40)
    ]
    if lost:
        training[-1]["loss"] = float("nan")
    bleu = {
        "test": BLEU.get(name, 30.0) + 0.4 * seed,
        "long": BLEU.get(name, 30.0) / 2 - 0.3 * seed,
    }
    return {
        "seed": seed,
        "status": "diverged" if lost else "finished",
        "steps": steps,
        "train_seconds": round(steps * pace, 2),
        "tokens_per_s": 2150.0 - 40 * place + seed,
        "peak_memory_bytes": 900_000_000 + 1_000_000 * place + seed,
        "training": training,
        "validation": validation,
        "validation_loss": None if lost else validation[-1]["loss"],
        "scores": {split: _scores(split, 0.0 if lost else bleu[split], rng) for split in SPLITS},
    }


def _scores(split: str, bleu: float, rng: random.Random) -> Facts:
    bins = BINS[split]
    return {
        "bleu": bleu,
        "chrf": bleu and bleu + 20,
        "decode_seconds": 12.5,
        "sentence_bleu": [
            round(min(100.0, max(0.0, rng.gauss(bleu, 10))) if bleu else 0.0, 2)
            for _ in range(sum(bin_["sentences"] for bin_ in bins))
        ],
        "by_length": [{"bleu": round(bleu and bleu + 2 - 2 * i, 3)} for i in range(len(bins))],
    }


def _versus(first: Facts, row: Facts, split: str) -> Facts:
    there, here = (x["summary"][split]["bleu"]["mean"] for x in (first, row))
    difference = here - there
    sure = abs(difference) > 3
    reach = abs(difference) / 2 if sure else abs(difference) + 1
    return {
        "difference": difference,
        "low": difference - reach,
        "high": difference + reach,
        "p": 0.0005 if sure else 0.31,
        "p_holm": 0.001 if sure else 0.31,
        "margin": 1.0,
        "verdict": ("better" if difference > 0 else "worse") if sure else "open",
    }


def _map(
    rows: list[str], columns: list[str], layers: int, heads: int, place: int, *, causal: bool
) -> Facts:
    """Head h of layer l looks `l + h + place` tokens ahead; neighbors differ in weight."""

    def row(layer: int, head: int, r: int) -> list[float]:
        open_ = r + 1 if causal else len(columns)
        mixed = 7 * r + 31 * layer + 17 * head + 43 * place
        parts = [(13 * c + mixed) % 89 + 1 if c < open_ else 0 for c in range(len(columns))]
        peak = (r + layer + head + place) % open_
        parts[peak] += 1000 - sum(parts)
        return [thousandths / 1000 for thousandths in parts]

    weights = [
        [[row(layer, head, r) for r in range(len(rows))] for head in range(heads)]
        for layer in range(layers)
    ]
    return {"rows": rows, "columns": columns, "weights": weights}
