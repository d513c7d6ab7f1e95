"""Speed of serving: ropewalk's translation against engines with the same weights.

ropewalk, CTranslate2 and transformers' `generate` translate the same sentences, greedily and with a
beam. Each measurement is a process of its own, and ways take turns. See README.md in this folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import FOLDER, conditions, default_data, table
from serving_ways import WAYS, Ids, m2m100_with_weights_of, write_work
from translation import product_rate, search_operations, untrained
from translation_ways import Way

from ropewalk.bench.clock import in_turn
from ropewalk.files import write_json
from ropewalk.lab.data.corpus import load_corpus
from ropewalk.lab.decoding.translator import Translator, find_model, translate_ids
from ropewalk.lab.tensors import read_tensors
from ropewalk.machine import cores
from ropewalk.model import Transformer

#: What limits torch, its libraries and CTranslate2 to the instructions of older processors.
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "CT2_FORCE_CPU_ISA": "AVX2",
}


@dataclass
class Row:
    """A way with a beam, its measurements, and its last translations."""

    way: str
    beam: int
    seconds: list[float] = field(default_factory=list)
    found: Ids = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """The number of tokens that were written, end marks included."""
        return sum(len(ids) + 1 for ids in self.found)


def measure(
    work: Path,
    rows: list[Row],
    threads: int,
    *,
    rounds: int,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Measure each row in a new process, in turn, for several rounds."""

    def measured(row: Row) -> None:
        words = [str(work), row.way, str(row.beam), str(threads)]
        command = [sys.executable, str(FOLDER / "serving_ways.py"), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{row.way}, beam {row.beam}, failed:\n{done.stderr}")
        answer = json.loads((work / "found.json").read_text(encoding="utf-8"))
        row.seconds.append(answer["seconds"])
        row.found = answer["found"]

    in_turn(
        {f"{row.way}, beam {row.beam}": partial(measured, row) for row in rows},
        rounds,
        after_round=lambda done: say(f"round {done} of {rounds}"),
    )


def rows_of(model: Transformer, beams: Sequence[int]) -> tuple[list[Row], str]:
    """Return the rows that this model allows, and why one is missing."""
    ways, missing = list(WAYS), ""
    try:
        m2m100_with_weights_of(model)
    except (ValueError, ImportError) as error:
        ways.remove("transformers, generate")
        missing = f"no row for transformers: {error}"
    return [Row(way, beam) for beam in beams for way in ways], missing


def summarized(model: Transformer, sources: Ids, rows: list[Row]) -> dict[str, Any]:
    """Return the medians, ratios to ropewalk with the same beam, and the limit of each beam."""
    own = {row.beam: row for row in rows if row.way == "ropewalk"}
    rate = product_rate(model.shape.width, model.shape.feed_forward, 1.0)
    limits = []
    for beam in own:
        way = Way(
            "ropewalk", beam, False, lambda sources, b=beam: translate_ids(model, sources, beam=b)
        )
        way.measure(sources, range(len(sources)))
        seconds = search_operations(model, sources, way) / rate
        limits.append(
            {
                "beam": beam,
                "gflops": round(rate / 1e9, 1),
                "seconds": round(seconds, 4),
                "tokens_per_s": round(own[beam].tokens / seconds, 1),
            }
        )
    return {
        "rows": [
            {
                "name": row.way,
                "beam": row.beam,
                "seconds": round(median(row.seconds), 4),
                "every_round": [round(s, 4) for s in row.seconds],
                "tokens": row.tokens,
                "tokens_per_s": round(row.tokens / median(row.seconds), 1),
                "ratio": round(median(own[row.beam].seconds) / median(row.seconds), 3),
                "identical": sum(
                    a == b for a, b in zip(row.found, own[row.beam].found, strict=True)
                ),
            }
            for row in rows
        ],
        "linear_maps_at_bare_speed": limits,
    }


def shown(results: dict[str, Any]) -> str:
    """Return the table of what was measured."""
    head = ["way", "beam", "seconds", "tokens/s", "speed, × ropewalk", "identical outputs"]
    cells = [
        [
            row["name"],
            str(row["beam"]),
            f"{row['seconds']:,.2f}",
            f"{row['tokens_per_s']:,.0f}",
            f"{row['ratio']:.2f}",
            f"{row['identical']:,} of {results['sentences']:,}",
        ]
        for row in results["rows"]
    ]
    cells += [
        [
            "linear maps at bare speed",
            str(each["beam"]),
            f"{each['seconds']:,.2f}",
            f"{each['tokens_per_s']:,.0f}",
            "",
            "",
        ]
        for each in results["linear_maps_at_bare_speed"]
    ]
    return "\n".join([table(head, cells), *filter(None, [results["missing"]])])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table and write all numbers as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, help="model.safetensors of a run, in its folder")
    parser.add_argument("--beam", type=int, default=4, help="in addition to greedy search")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--data", default=default_data(), help="as in ropewalk compare")
    parser.add_argument("--split", help="default: the corpus's first test split")
    parser.add_argument("--avx2", action="store_true", help="without the AVX-512 of this machine")
    parser.add_argument("--out", type=Path, help="default: results/serving.json in this folder")
    parser.add_argument("--smoke", action="store_true", help="few sentences, an untrained model")
    options = parser.parse_args(arguments)
    if (options.model is None) != options.smoke:
        parser.error("give either --model or --smoke")
    if min(options.beam, options.rounds, options.threads) < 1:
        parser.error("beam, rounds and threads must be at least 1")
    if options.avx2 and not os.environ.items() >= AVX2.items():  # read when torch is imported
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | AVX2)
    torch.set_num_threads(options.threads)
    results = conditions(options.threads)
    began = time.monotonic()
    corpus = load_corpus(options.data)
    split = options.split or corpus.test_splits[0]
    if split not in corpus.splits:
        parser.error(f"split must be of {', '.join(corpus.splits)}, got {split!r}")
    texts = [source for source, _ in corpus.splits[split]][: 8 if options.smoke else None]
    if options.smoke:
        translator, encoding, options.rounds = untrained(texts, 1), "sinusoidal", 1
    else:
        file = find_model(options.model)
        translator = Translator.load(file, beam=1, device="cpu")
        encoding = str(read_tensors(file)[1]["encoding"])
    model, tokens = translator.model, translator.tokens
    sources = tokens.encode(texts)
    rows, missing = rows_of(model, sorted({1, options.beam}))
    with tempfile.TemporaryDirectory() as folder:
        write_work(Path(folder), model, encoding, tokens.pieces(range(tokens.size)), sources)
        measure(Path(folder), rows, options.threads, rounds=options.rounds, say=print)
    results |= {
        "corpus": corpus.name,
        "split": split,
        "sentences": len(sources),
        "rounds": options.rounds,
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "shape": asdict(model.shape),
        "encoding": encoding,
        "missing": missing,
        **summarized(model, sources, rows),
    }
    results["duration_s"] = round(time.monotonic() - began, 1)
    print("\n" + shown(results))
    name = "serving-avx2.json" if options.avx2 else "serving.json"
    out = options.out or (None if options.smoke else FOLDER / "results" / name)
    if out is not None:
        write_json(out, results)
        print(f"{out} in {results['duration_s']:.0f} s")


if __name__ == "__main__":
    main()
