"""A comparison from corpus to report: prepare, run every cell, score, explain."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk import __version__
from ropewalk.lab import scores, significance
from ropewalk.lab.cell import read_hypotheses, slug
from ropewalk.lab.checkpoint import read_json, read_tensors, write_json
from ropewalk.lab.config import Config
from ropewalk.lab.corpus import Corpus, overlap
from ropewalk.lab.explain import attention_of, examples_of
from ropewalk.lab.report import write_report
from ropewalk.lab.run import Cell, cells_of, prepare, run_cells
from ropewalk.lab.train import Record, build_model
from ropewalk.machine import (
    commit,
    cores,
    pick_device,
    pick_precision,
    processor,
    versions,
)

Facts = dict[str, Any]


@dataclass(frozen=True)
class Scored:
    """A cell with its record and its hypotheses of each split."""

    cell: Cell
    record: Record
    hypotheses: dict[str, list[str]]
    seconds: dict[str, float]


def compare(
    config: Config,
    run: Path,
    *,
    jobs: int | None = None,
    command: Sequence[str] = (),
    note: str | None = None,
    watch: Callable[[Cell, Facts], None] = lambda cell, event: None,
    stage: Callable[[str], None] = lambda name: None,
) -> Facts:
    """Run a whole comparison in the folder ``run`` and give what it wrote to ``results.json``.

    What is finished there is kept and what was interrupted goes on. ``watch`` hears of cells,
    ``stage`` of what is done otherwise. ``note`` is a remark on the run's conditions.
    """
    began, started = time.monotonic(), datetime.now(timezone.utc)
    stage("reading the corpus")
    corpus = prepare(config, run)
    sitting = _Sitting(run, started, began)
    try:
        at_once = run_cells(config, run, jobs, watch)
    finally:
        sitting.close()
    stage("scoring")
    results = assemble(config, run, corpus)
    results["machine"]["cells_at_once"] = at_once
    results["machine"]["threads_per_cell"] = max(1, cores() // at_once)
    results |= {"command": shlex.join(command), "note": note, **sitting.facts()}
    write_json(run / "results.json", results)
    stage("drawing attention")
    write_json(run / "examples.json", examples_of(results, run, corpus))
    write_json(run / "attention.json", attention_of(results, run, corpus))
    stage("writing the report")
    write_report(run)
    return results


class _Sitting:
    """Time spent on a run, added up over the sittings that it took."""

    def __init__(self, run: Path, started: datetime, began: float) -> None:
        self.path, self.began = run / "sittings.json", began
        self.held: list[Facts] = read_json(self.path) if self.path.exists() else []
        self.held.append({"started": started.isoformat(timespec="seconds"), "seconds": 0.0})

    def close(self) -> None:
        self.held[-1]["seconds"] = round(time.monotonic() - self.began, 1)
        write_json(self.path, self.held)

    def facts(self) -> Facts:
        return {
            "started": self.held[0]["started"],
            "sittings": len(self.held),
            "duration_s": round(sum(sitting["seconds"] for sitting in self.held), 1),
        }


def assemble(config: Config, run: Path, corpus: Corpus) -> Facts:
    """Score every cell of a run that is complete and put all facts together."""
    splits = list(config.splits or corpus.test_splits)
    held = {cell: _read(cell, run, splits) for cell in cells_of(config)}
    prepared = read_json(run / "corpus.json")
    device = pick_device(config.device)
    rows = [_row(config, encoding, run, held, corpus, splits) for encoding in config.encodings]
    leanest = min(row["parameters"] for row in rows)
    soonest = min(scored.record.seconds for scored in held.values())
    for row in rows:
        row["extra_parameters"] = row["parameters"] - leanest
        records = [held[Cell(row["name"], seed)].record for seed in config.seeds]
        row["equal_time"] = {
            "seconds": soonest,
            "validation_loss": _spread([_loss_at(record, soonest) for record in records]),
        }
    for split in splits:
        _compare_rows(config, rows, held, corpus, split)
    return {
        "ropewalk": __version__,
        "commit": commit(),
        "versions": versions(),
        "machine": {
            "processor": processor(),
            "cores": cores(),
            "device": device.type,
            "precision": pick_precision(config.precision, device),
        },
        "config": config.model_dump(mode="json"),
        "corpus": {
            "name": corpus.name,
            "source": corpus.source,
            "target": corpus.target,
            "pairs": {split: len(pairs) for split, pairs in corpus.splits.items()},
            "seen_in_training": overlap(corpus),
            "notes": list(corpus.notes),
            **{k: prepared[k] for k in ("left_out", "vocabulary", "longest_in_training")},
        },
        "signatures": scores.signatures(lowercase=config.lowercase),
        "splits": splits,
        "length_bins": {
            split: scores.length_bins([pair[0] for pair in corpus.splits[split]])
            for split in splits
        },
        "encodings": rows,
    }


def _read(cell: Cell, run: Path, splits: list[str]) -> Scored:
    folder = cell.folder(run)
    record = Record(**read_json(folder / "training.json")["record"])
    found = {split: read_hypotheses(folder, split) for split in splits}
    return Scored(
        cell,
        record,
        {split: texts for split, (texts, _) in found.items()},
        {split: seconds for split, (_, seconds) in found.items()},
    )


def _row(
    config: Config,
    encoding: str,
    run: Path,
    held: dict[Cell, Scored],
    corpus: Corpus,
    splits: list[str],
) -> Facts:
    cells = [
        _cell(held[Cell(encoding, seed)], corpus, splits, config.lowercase) for seed in config.seeds
    ]
    summary = {
        split: {
            metric: _spread([cell["scores"][split][metric] for cell in cells])
            for metric in ("bleu", "chrf")
        }
        for split in splits
    }
    return {
        "name": encoding,
        "slug": slug(encoding),
        "parameters": _parameters(config, Cell(encoding, config.seeds[0]), run),
        "cells": cells,
        "summary": summary,
        **{
            name: _spread([cell[name] for cell in cells])
            for name in ("validation_loss", "tokens_per_s", "peak_memory_bytes")
        },
    }


def _cell(scored: Scored, corpus: Corpus, splits: list[str], lowercase: bool) -> Facts:
    record = scored.record
    finished = record.status == "finished"
    facts: Facts = {
        "seed": scored.cell.seed,
        "status": record.status,
        "steps": record.step,
        "train_seconds": round(record.seconds, 2),
        "tokens_per_s": round(record.tokens_per_s, 1),
        "peak_memory_bytes": record.peak_memory_bytes,
        "validation_loss": record.validation[-1]["loss"] if finished else None,
        "training": _thinned(record.training),
        "validation": record.validation,
        "scores": {},
    }
    for split in splits:
        sources, references = zip(*corpus.splits[split], strict=True)
        score = scores.score(scored.hypotheses[split], references, sources, lowercase=lowercase)
        facts["scores"][split] = {
            "bleu": round(score.bleu, 4),
            "chrf": round(score.chrf, 4),
            "decode_seconds": round(scored.seconds[split], 2),
            "sentence_bleu": [round(x, 2) for x in score.sentence_bleu],
            "by_length": [{"bleu": round(x, 3)} for x in score.by_length],
        }
    return facts


def _compare_rows(
    config: Config, rows: list[Facts], held: dict[Cell, Scored], corpus: Corpus, split: str
) -> None:
    references = [pair[1] for pair in corpus.splits[split]]
    systems = [
        [held[Cell(row["name"], seed)].hypotheses[split] for seed in config.seeds] for row in rows
    ]
    versus = significance.compare_with_first(systems, references, lowercase=config.lowercase)
    for row, found in zip(rows, versus, strict=True):
        row["summary"][split]["versus_first"] = None if found is None else asdict(found)


def _parameters(config: Config, cell: Cell, run: Path) -> int:
    path = cell.folder(run) / "model.safetensors"
    if path.exists():
        return sum(tensor.numel() for tensor in read_tensors(path)[0].values())
    vocabulary = read_json(run / "corpus.json")["vocabulary"]
    model = build_model(config, cell.encoding, cell.seed, vocabulary)
    return sum(parameter.numel() for parameter in model.parameters())


def _loss_at(record: Record, seconds: float) -> float | None:
    """Give validation loss at this training time, interpolated between validations."""
    seen = [point for point in record.validation if point["loss"] is not None]
    if not seen or record.status != "finished":
        return None
    times, losses = [p["seconds"] for p in seen], [p["loss"] for p in seen]
    return round(float(np.interp(seconds, times, losses)), 5)


def _spread(values: list[float | None]) -> Facts:
    """Give all values and their mean; without one of them (a diverged cell) there is no mean."""
    known = [value for value in values if value is not None]
    mean = round(sum(known) / len(known), 5) if len(known) == len(values) else None
    return {"mean": mean, "values": values}


def _thinned(points: list[dict[str, float]], most: int = 200) -> list[dict[str, float]]:
    """Give at most this many points of a curve, each the mean of those that it stands for."""
    size = -(-len(points) // most) if points else 1
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [
        {**group[-1], "loss": round(sum(p["loss"] for p in group) / len(group), 4)}
        for group in groups
    ]
