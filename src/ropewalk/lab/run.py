"""A run folder: prepared once, then filled cell by cell, each in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.lab.batches import EncodedSplit, write_splits
from ropewalk.lab.cell import cell_folder
from ropewalk.lab.checkpoint import read_json, write_json
from ropewalk.lab.config import Config
from ropewalk.lab.corpus import Corpus, load_corpus
from ropewalk.lab.tokens import Tokens
from ropewalk.machine import cores, pick_device


class CellFailed(RuntimeError):  # noqa: N818, it is no error of this process
    """A cell's process ended without a result; what it had written is still there."""


@dataclass(frozen=True)
class Cell:
    """One encoding with one seed."""

    encoding: str
    seed: int

    def folder(self, run: Path) -> Path:
        return cell_folder(run, self.encoding, self.seed)

    def __str__(self) -> str:
        return f"{self.encoding}, seed {self.seed}"


def cells_of(config: Config) -> list[Cell]:
    """Give the cells of a comparison, seed by seed, so that each seed is whole early."""
    return [Cell(encoding, seed) for seed in config.seeds for encoding in config.encodings]


def prepare(config: Config, run: Path) -> Corpus:
    """Read the corpus and write what cells need: config, vocabulary, token ids. Gives the corpus.

    A folder that holds a run of another training config or corpus is refused.
    """
    corpus = load_corpus(config.data, source=config.source, target=config.target)
    unknown = [s for s in config.splits or () if s not in corpus.splits or s == "train"]
    if unknown:
        raise ValueError(
            f"splits must be of {', '.join(s for s in corpus.splits if s != 'train')}, "
            f"got {unknown[0]!r}"
        )
    if not config.splits and not corpus.test_splits:
        raise ValueError(
            f"corpus {corpus.name!r} has no test split; add test.{corpus.source} and "
            f"test.{corpus.target}, or score another with splits=validation"
        )
    digest = _digest(corpus)
    if (run / "config.json").exists():
        _check_same(run, config, digest)
    tokens = Tokens.train(
        (sentence for pair in corpus.splits["train"] for sentence in pair),
        config.vocabulary,
        lowercase=config.lowercase,
    )
    splits = {name: _encode(tokens, pairs) for name, pairs in corpus.splits.items()}
    splits["train"], left_out = _shortened(splits["train"], config.longest)
    tokens.save(run / "tokenizer.json")
    write_splits(run / "splits.safetensors", splits)
    facts = {
        "digest": digest,
        "left_out": left_out,
        "vocabulary": tokens.size,
        "longest_in_training": {
            "source": max(map(len, splits["train"].source)),
            "target": max(map(len, splits["train"].target)),
        },
    }
    write_json(run / "corpus.json", facts)
    write_json(run / "config.json", config.model_dump(mode="json"))
    return corpus


def run_cells(
    config: Config,
    run: Path,
    jobs: int | None = None,
    watch: Callable[[Cell, dict[str, Any]], None] = lambda cell, event: None,
) -> int:
    """Run all cells of a prepared run, ``jobs`` at a time (default: one for each core); give jobs.

    ``watch`` hears each cell's events. At Ctrl-C each cell saves its step before KeyboardInterrupt
    goes on. A failed cell does not stop the others; behind them all, ``CellFailed`` names it.
    """
    cells = cells_of(config)
    most = cores() if pick_device(config.device).type == "cpu" else 1  # cells that fit at a time
    jobs = min(len(cells), jobs or most)
    waiting: queue.SimpleQueue[Cell] = queue.SimpleQueue()
    for cell in cells:
        waiting.put(cell)
    running: dict[Cell, subprocess.Popen[str]] = {}
    failures: list[str] = []
    stopping = threading.Event()

    def work() -> None:
        while not stopping.is_set():
            try:
                cell = waiting.get_nowait()
            except queue.Empty:
                return
            process = _start(run, cell, max(1, cores() // jobs))
            running[cell] = process
            if stopping.is_set():
                process.send_signal(signal.SIGINT)
            error = _follow(process, cell, watch)
            del running[cell]
            if error is not None and not stopping.is_set():
                failures.append(f"{cell}: {error}")

    workers = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            while worker.is_alive():
                worker.join(0.2)
    except KeyboardInterrupt:
        stopping.set()
        for process in list(running.values()):
            process.send_signal(signal.SIGINT)
        for worker in workers:
            worker.join(60)
        raise
    if failures:
        raise CellFailed("; ".join(sorted(failures)))
    return jobs


def _start(run: Path, cell: Cell, threads: int) -> subprocess.Popen[str]:
    # A session of its own: Ctrl-C reaches this process, which passes it on once.
    return subprocess.Popen(
        [sys.executable, "-m", "ropewalk.lab.cell", str(run), cell.encoding, str(cell.seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"},
        start_new_session=True,
    )


def _follow(
    process: subprocess.Popen[str], cell: Cell, watch: Callable[[Cell, dict[str, Any]], None]
) -> str | None:
    """Pass on a cell's events until it ends; give what went wrong, if anything did."""
    assert process.stdout is not None
    assert process.stderr is not None
    noise: list[str] = []
    stderr = process.stderr
    reader = threading.Thread(target=lambda: noise.extend(stderr), daemon=True)
    reader.start()
    error = None
    watch(cell, {"phase": "starting"})
    for line in process.stdout:
        event = json.loads(line)
        error = event.get("error", error)
        watch(cell, event)
    code = process.wait()
    reader.join()
    if code and error is None:
        error = "".join(noise).strip() or f"the process ended with status {code}"
    ended = {0: "finished", 130: "interrupted"}
    watch(cell, {"phase": ended.get(code, "failed")})
    return error if code else None


def _encode(tokens: Tokens, pairs: tuple[tuple[str, str], ...]) -> EncodedSplit:
    sources, targets = zip(*pairs, strict=True)
    return EncodedSplit(tokens.encode(sources), tokens.encode(targets))


def _shortened(split: EncodedSplit, longest: int) -> tuple[EncodedSplit, int]:
    both = zip(split.source, split.target, strict=True)
    kept = [(s, t) for s, t in both if len(s) <= longest and len(t) <= longest]
    if not kept:
        raise ValueError(f"longest must leave training pairs, got {longest}: all are longer")
    sources, targets = zip(*kept, strict=True)
    return EncodedSplit(list(sources), list(targets)), len(split) - len(kept)


def _digest(corpus: Corpus) -> str:
    text = json.dumps([corpus.source, corpus.target, dict(corpus.splits)], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _check_same(run: Path, config: Config, digest: str) -> None:
    held = Config.model_validate(read_json(run / "config.json")).training()
    differing = [
        f"{name} is {held.get(name)!r} there and {value!r} here"
        for name, value in config.training().items()
        if held.get(name) != value
    ]
    if (run / "corpus.json").exists() and read_json(run / "corpus.json")["digest"] != digest:
        differing.append("the corpus has changed since")
    if differing:
        raise ValueError(
            f"{run} holds a run of another config: {'; '.join(differing)}; name another folder "
            f"with --out, or give the same config to go on with it"
        )
