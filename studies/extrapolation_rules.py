"""Trials and significance tests of rotary's scaling rules on trained models, without training."""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from pathlib import Path

import torch
from common import markdown_table
from torch import Tensor

from ropewalk.files import Facts, write_checked_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.config import Config
from ropewalk.lab.models import build_model
from ropewalk.lab.report.formats import (
    digits_of_difference,
    format_number,
    format_p_value,
)
from ropewalk.lab.results import MetricFacts, Results, Verdict, read_results
from ropewalk.lab.scoring.significance import by_document, compare_with
from ropewalk.lab.tasks import CLASSES, Task, open_task
from ropewalk.lab.tasks.generated import Generated
from ropewalk.lab.tensors import load_weights, read_tensors

#: The encoding of each rule; m is the factor by which a sequence exceeds the L tokens of training.
#: LongRoPE is not included: its factors are searched for one model and fit no other.
RULE_TRIALS = {
    "none": "rotary",
    "Linear": "rotary(rule=linear, factor={m})",
    "NTKAware": "rotary(rule=ntkaware, factor={m})",
    "DynamicNTK": "rotary(rule=dynamicntk, factor=2, original_length={L}, length={n})",
    "YaRN": "rotary(rule=yarn, factor={m}, original_length={L})",
    "Llama3": "rotary(rule=llama3, factor={m}, low_freq_factor=1, high_freq_factor=4, "
    "original_length={L})",
}


def try_rules(run: Path) -> Facts | None:
    """Score a run's rotary models at each length under each rule; None if it has no rotary."""
    results = read_results(run)
    config = results.config
    if config.sweep:
        raise ValueError(f"run must have no sweep, got {run}: its rotary has its own settings")
    if "rotary" not in config.encodings:
        return None
    task = open_task(config, run)
    trained = _tokens_trained(task)
    found: dict[str, dict[str, list[Facts | None]]] = {}
    for rule, written in RULE_TRIALS.items():
        found[rule] = {}
        for split in task.splits:
            multiple = int(split.removeprefix("x"))
            if multiple == 1 and rule != "none":
                continue  # at the trained length every rule is the plain rope
            encoding = written.format(m=multiple, L=trained, n=multiple * trained)
            found[rule][split] = [
                _score(config, task, run, seed, encoding, split) for seed in config.seeds
            ]
    key = task.metrics[0].key
    statistics = {
        rule: {
            split: [None if each is None else each["statistics"] for each in cells]
            for split, cells in splits.items()
        }
        for rule, splits in found.items()
    }
    return {
        "trained_tokens": trained,
        "scores": {
            rule: {
                split: [None if each is None else each[key] for each in cells]
                for split, cells in splits.items()
            }
            for rule, splits in found.items()
        },
        "statistics": statistics,
        "tested": task.tested_metric.facts(),
        "tests": compare_rules(results, statistics),
    }


def compare_rules(results: Results, statistics: Facts) -> dict[str, Facts]:
    """Test each rule's statistics on each split against those of plain rotary, on the same items.

    A rule without a result for one of its seeds is not tested.
    """
    task = CLASSES[results.task]
    metric, tests = task.tested_metric, {}
    assert metric.score is not None
    for split in results.splits:
        tried = [rule for rule in statistics if split in statistics[rule]]
        systems: list[Tensor | None] = []
        for rule in tried:
            cells = statistics[rule][split]
            known = None if None in cells else torch.stack([*map(task.statistics_of, cells)])
            documents = results.documents.get(split)
            systems.append(
                known if known is None or documents is None else by_document(known, documents)
            )
        versus = compare_with(
            0, systems, metric.score, margin=metric.margin, higher_is_better=metric.higher_is_better
        )
        tests[split] = {
            rule: asdict(each) for rule, each in zip(tried, versus, strict=True) if each is not None
        }
    return tests


def _tokens_trained(task: Task) -> int:
    """Return the most tokens a model has read in training; end marks are only predicted."""
    if isinstance(task, Generated):
        return max(task.lengths_in_training) - 1
    return task.config.train_length


def _score(
    config: Config, task: Task, run: Path, seed: int, encoding: str, split: str
) -> Facts | None:
    """Return the score as results store it: each metric's value, the statistics of each item."""
    folder = Cell("rotary", seed).folder(run)
    if "no_result" in task.evaluation(split, folder):
        return None
    model = build_model(config, encoding, seed, task.vocabulary)
    # A rope has no parameters, so the weights fit every rule.
    load_weights(model, read_tensors(folder / "model.safetensors")[0])
    with tempfile.TemporaryDirectory() as scratch:
        found = task.evaluate(model, split, Path(scratch))
        write_checked_json(
            Path(scratch) / f"{split}.json",
            {"seconds": 0.0, "decoding": config.decoding(), **found},
        )
        scored = task.score(split, Path(scratch))
        return None if "no_result" in scored else scored


def tests_table(rules: Facts) -> str:
    """Return a table of each rule's difference from plain rotary, or why there is none."""
    if "tests" not in rules:  # the first runs of this script stored no statistics of items
        seeds = len(next(iter(rules["scores"]["none"].values())))
        return (
            f"An observation of {seeds} seed{'s' if seeds > 1 else ''}, not a finding: the rules "
            "were not tested against plain rotary (`none`), because item scores were not stored."
        )
    tested = rules["tested"]
    rows = []
    for split, versus in rules["tests"].items():
        for rule, each in versus.items():
            digits = digits_of_difference(
                Verdict.model_validate(each), MetricFacts.model_validate(tested)
            )
            difference, low, high = (
                format_number(each[key], digits, signed=True)
                for key in ("difference", "low", "high")
            )
            p = format_p_value(each["p_holm"])
            name = f"`{rule}` ×{split.removeprefix('x')}"
            rows.append([name, difference, f"{low} to {high}", p, each["verdict"]])
    if not rows:
        return "No rule could be tested against plain rotary (`none`): there are too few results."
    head = ["", f"difference in {tested['name']}", "95 % interval", "p (Holm)", "verdict"]
    title = (
        "Compared with plain rotary (`none`): the same models, so differences are taken within "
        "each seed. The test resamples items and these differences. p is corrected (Holm) for all "
        "rules of a length. The interval is for one rule alone, so it can leave out 0 while the "
        "verdict is “open”:"
    )
    return f"{title}\n\n{markdown_table(head, rows)}"
