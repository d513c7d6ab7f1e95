"""Memory and time of preparing a large corpus: pairs of two files are tokenized into a store.

    python benchmarks/corpus.py --smoke            200,000 pairs
    python benchmarks/corpus.py --pairs 4500000    the size of WMT 2014 German-English
    python benchmarks/corpus.py --random-ids       random ids in a store: only planning

The files are written first: each pair joins two different pairs of the built-in corpus. The memory
is the largest sum of the proportional set sizes (PSS) of this process and its children, read from
/proc/PID/smaps_rollup twice a second. A page that several processes map counts once.
After a kill, the same command with the same --out goes on, and the report says so.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rich.console import Console

from ropewalk import machine
from ropewalk.files import write_json
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.data.batches import make_batch, plan_epoch
from ropewalk.lab.data.corpus import load_corpus
from ropewalk.lab.data.store import MappedSplit, write_index, write_part
from ropewalk.lab.data.stream import BLOCK_PAIRS
from ropewalk.lab.running.progress import Watcher
from ropewalk.lab.running.run_folder import prepare
from ropewalk.lab.tasks.translation import Translation

EVERY = 0.5  # seconds between two readings of memory
EPOCHS = 2  # whose plans are timed


def main() -> None:
    """Prepare a run, draw two epochs and read every batch once; print and write the facts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=4_500_000)
    parser.add_argument("--smoke", action="store_true", help="200,000 pairs")
    parser.add_argument("--out", type=Path, help="the run folder, which is kept")
    parser.add_argument("--json", type=Path, help="write the facts there")
    parser.add_argument("--random-ids", action="store_true", help="write and tokenize no text")
    options = parser.parse_args()
    pairs = 200_000 if options.smoke else options.pairs
    with TemporaryDirectory() as temporary:
        run = options.out or Path(temporary) / "run"
        facts = measure_store(pairs, run) if options.random_ids else measure(pairs, run)
    for name, value in facts.items():
        print(f"{name}: {value}")
    if options.json:
        write_json(options.json, facts)


def measure(pairs: int, run: Path) -> dict[str, Any]:
    """Return peak memory and times of a corpus of two files."""
    data = write_corpus(pairs, run.with_name(f"{run.name}-text"))
    config = make_config(settings={"data": data, "batch_tokens": 4096, "device": "cpu"})
    found = sorted((run / "pairs").glob("*.ids.npy"))
    facts: dict[str, Any] = {"pairs": pairs, "parts_of_earlier_sessions": len(found)}
    with Peak() as peak, Watcher(Console()) as watcher:
        began = time.monotonic()
        task = prepare(config, run, watcher.progress)
        facts["prepare_seconds"] = round(time.monotonic() - began, 1)
        facts["prepare_peak_pss_mib"] = peak.mib
        assert isinstance(task, Translation)
        facts["tokens"] = int(task.data["train"].sizes().sum())
        for epoch in range(EPOCHS):
            began = time.monotonic()
            plan = task.plan(1, epoch)
            facts[f"plan_seconds_{epoch}"] = round(time.monotonic() - began, 2)
        facts["batches"] = len(plan)
        began, some = time.monotonic(), range(0, len(plan), max(1, len(plan) // 1000))
        for i in some:
            task.batch(plan[i], 0)
        facts["milliseconds_per_batch"] = round((time.monotonic() - began) / len(some) * 1e3, 2)
    facts["peak_pss_mib"] = peak.mib
    size = sum(path.stat().st_size for path in (run / "pairs").iterdir())
    facts["disk_mib"] = round(size / 2**20) if pairs > 10**5 else round(size / 2**20, 1)
    return facts | {"cores": machine.cores(), "load": machine.load(), "cpu": machine.processor()}


def write_corpus(pairs: int, folder: Path) -> str:
    """Write this many different pairs; return the names of both files as `--data` takes them."""
    train = load_corpus("phrases").splits["train"]
    folder.mkdir(parents=True, exist_ok=True)
    paths = folder / "corpus.de", folder / "corpus.en"
    with (
        paths[0].open("w", encoding="utf-8") as sources,
        paths[1].open("w", encoding="utf-8") as targets,
    ):
        for number in range(pairs):
            first = number % len(train)
            second = (first + 1 + number // len(train)) % len(train)
            for file, one, other in zip(
                (sources, targets), train[first], train[second], strict=True
            ):
                file.write(f"{one} {other}\n")
    return ",".join(map(str, paths))


def measure_store(pairs: int, folder: Path) -> dict[str, Any]:
    """Return peak memory and times of opening and planning a store of random ids."""
    draw, parts = np.random.default_rng(0), -(-pairs // BLOCK_PAIRS)
    for number in range(parts):
        size = min(BLOCK_PAIRS, pairs - number * BLOCK_PAIRS)
        lengths = draw.integers(4, 25, (size, 2)).astype(np.uint32)
        ids = draw.integers(4, 2_000, int(lengths.sum())).astype(np.uint16)
        write_part(folder, number, {"ids": ids, "lengths": lengths}, {})
    write_index(folder, parts, {})
    facts: dict[str, Any] = {"pairs": pairs, "ids": "random"}
    with Peak() as peak:
        began = time.monotonic()
        split = MappedSplit(folder)
        facts["open_seconds"] = round(time.monotonic() - began, 2)
        for epoch in range(EPOCHS):
            began = time.monotonic()
            plan = plan_epoch(split, tokens=4096, sentences=None, seed=1, epoch=epoch)
            facts[f"plan_seconds_{epoch}"] = round(time.monotonic() - began, 2)
        facts["batches"] = len(plan)
        for i in range(0, len(plan), max(1, len(plan) // 1000)):
            make_batch(split, plan[i])
    facts["peak_pss_mib"] = peak.mib
    return facts | {"cores": machine.cores(), "load": machine.load(), "cpu": machine.processor()}


class Peak:
    """The largest sum of PSS of this process and its descendants while it is open."""

    def __init__(self) -> None:
        self.mib = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            kilobytes = sum(map(pss, family(os.getpid())))
            self.mib = max(self.mib, kilobytes // 1024)
            if self._stop.wait(EVERY):
                return


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    found = [pid]
    for each in found:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            try:
                found += map(int, task.read_text().split())
            except OSError:
                continue
    return found


def pss(pid: int) -> int:
    """Return the proportional set size of a process in kilobytes, 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
