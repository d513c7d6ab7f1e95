"""Tuning of each encoding in a sweep: trials on validation data, and the choice.

Every encoding has the same budget: each training setting once, with the first seed, compared by
validation loss; then each decoding setting, with every seed, compared by the task's score on
validation data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeVar

from ropewalk.checks import shown
from ropewalk.files import Facts, read_checked_json, write_checked_json
from ropewalk.lab.cells import Cell, cells_of
from ropewalk.lab.config import DECODING_FIELDS, TRAINING_FIELDS, Config, Settings, points
from ropewalk.lab.config_sources import read_run_config, read_sweep, with_sweep
from ropewalk.lab.models import load_model
from ropewalk.lab.results import DecodingTrial, Trial
from ropewalk.lab.tasks import CLASSES, Task
from ropewalk.lab.tensors import load_weights
from ropewalk.lab.training.checkpoints import chosen_snapshots, mean_of
from ropewalk.lab.training.trainer import TRAINED, Record, ended_training
from ropewalk.machine import pick_device

T = TypeVar("T")

_TRIALS = "decoding.json"  # of a cell


@dataclass(frozen=True)
class Choice:
    """The settings chosen for an encoding, and the trials that they were chosen from."""

    settings: Settings = ()
    trials: tuple[Trial, ...] = ()
    decoding_trials: tuple[DecodingTrial, ...] = ()

    def facts(self) -> Facts:
        """Return the entries of results; none without a sweep."""
        if not self.settings:
            return {}
        trials = {"trials": self.trials, "decoding_trials": self.decoding_trials}
        return {
            "settings": dict(self.settings),
            **{name: [trial.as_json() for trial in of] for name, of in trials.items() if of},
        }


def trial_cells(config: Config) -> list[Cell]:
    """Return the trial cells of training settings; none if the sweep has no such settings."""
    grid = points(config.sweep, TRAINING_FIELDS)
    if grid == [()]:
        return []
    return [Cell(name, config.seeds[0], point) for point in grid for name in config.encodings]


def is_trained(cell: Cell, run: Path) -> bool:
    """Return whether a cell's training has ended."""
    return os.path.lexists(cell.folder(run) / TRAINED)


def cells_with(config: Config, choices: Mapping[str, Choice]) -> list[Cell]:
    """Return the cells of a comparison with the settings chosen for their encodings."""
    return [Cell(c.encoding, c.seed, choices[c.encoding].settings) for c in cells_of(config)]


def chosen_training(config: Config, run: Path) -> dict[str, Choice]:
    """Return each encoding's training settings, chosen from its trials.

    The lowest validation loss wins: the last one, or with select=best the lowest. A training that
    diverged loses to any other.
    """
    cells = trial_cells(config)
    if not cells:
        return {name: Choice() for name in config.encodings}
    choices = {}
    for name in config.encodings:
        trials = [_trial(cell, config, run) for cell in cells if cell.encoding == name]
        lowest = best(trials, lambda trial: trial.validation_loss, higher_is_better=False)
        choices[name] = Choice(tuple(lowest.settings.items()), tuple(trials))
    return choices


def chosen(config: Config, run: Path) -> dict[str, Choice]:
    """Return all settings of each encoding, chosen from the trials of a tuned run."""
    choices = chosen_training(config, run)
    grid = points(config.sweep, DECODING_FIELDS)
    if grid == [()]:
        return choices
    metric = CLASSES[config.task].tuned_metric
    for name, choice in choices.items():
        cells = [Cell(name, seed, choice.settings) for seed in config.seeds]
        tried = [_read_decoding(cell.folder(run)) for cell in cells]
        trials = []
        for point in grid:
            scores = [of_seed.get(_decoding(config, point), {}) for of_seed in tried]
            trials.append(_over_seeds(point, scores, metric.key))
        tried_best = best(
            trials, lambda trial: trial.mean(metric.key), higher_is_better=metric.higher_is_better
        )
        settings = choice.settings + tuple(tried_best.settings.items())
        choices[name] = Choice(settings, choice.trials, tuple(trials))
    return choices


def try_decoding(task: Task, grid: Sequence[Settings], record: Record, folder: Path) -> None:
    """Decode validation data with a cell's model in each setting that was not tried yet."""
    tried = _read_decoding(folder)
    groups: dict[tuple[str, int, int], list[Settings]] = {}
    for point in untried(task.config, grid, folder):
        config = task.config.with_settings(point)
        groups.setdefault((config.select, config.average, config.beam), []).append(point)
    for (select, average, _), together in groups.items():
        snapshots = chosen_snapshots(folder, select, average, record.validation)
        model, _ = load_model(snapshots[-1], pick_device(task.config.device))
        load_weights(model, mean_of(snapshots)[0])
        scores = task.validation_scores(model, [task.config.with_settings(p) for p in together])
        decodings = [_decoding(task.config, point) for point in together]
        tried |= zip(decodings, scores, strict=True)
        trials = [{"decoding": dict(own), "scores": of} for own, of in tried.items()]
        write_checked_json(folder / _TRIALS, {"trials": trials})


def untried(config: Config, grid: Sequence[Settings], folder: Path) -> list[Settings]:
    """Return the decoding settings that a cell has not tried yet."""
    tried = _read_decoding(folder)
    return [point for point in grid if _decoding(config, point) not in tried]


def _trial(cell: Cell, config: Config, run: Path) -> Trial:
    record = ended_training(cell.folder(run))
    loss = None
    if record.status == "finished":
        losses = [seen["loss"] for seen in record.validation]
        loss = min(losses) if config.select == "best" else losses[-1]
    return Trial(
        settings=dict(cell.settings), seed=cell.seed, status=record.status, validation_loss=loss
    )


def _read_decoding(folder: Path) -> dict[Settings, Facts]:
    """Return the scores of the decoding settings that a cell has tried; none if it diverged."""
    path = folder / _TRIALS
    trials = read_checked_json(path, "trials")["trials"] if os.path.lexists(path) else []
    return {tuple(trial["decoding"].items()): trial["scores"] for trial in trials}


def _decoding(config: Config, point: Settings) -> Settings:
    """Return all decoding fields of a setting, including those that the sweep does not vary."""
    own = config.with_settings(point).decoding()
    return tuple((name, own[name]) for name in DECODING_FIELDS if name in own)


def _over_seeds(point: Settings, of_seeds: Sequence[Facts], key: str) -> DecodingTrial:
    """Return each score of a decoding setting as a list over seeds, and its mean.

    A seed that diverged has None and is in no setting's mean. `key` is always present.
    """
    scores: Facts = {}
    for name in dict.fromkeys([key, *(name for of_seed in of_seeds for name in of_seed)]):
        values = tuple(of_seed.get(name) for of_seed in of_seeds)
        known = [value for value in values if value is not None]
        scores[name] = values
        scores[f"mean_{name}"] = fmean(known) if known else None
    return DecodingTrial(settings=dict(point), **scores)


def read_tuned_config(run: Path, texts: Sequence[str]) -> Config:
    """Return the config of a finished run with a sweep of `field=value,value,…` for decoding.

    It replaces decoding settings of an earlier sweep; training settings stay.
    """
    if not os.path.exists(run / "results.json"):
        raise ValueError(
            f"RUN must be the folder of a finished run, got {shown(str(run))}; it has no "
            f"results.json"
        )
    sweep = read_sweep(texts, "a setting to tune")
    others = [name for name in sweep if name not in DECODING_FIELDS]
    if others:
        raise ValueError(
            f"tune tries {', '.join(DECODING_FIELDS)}, got {shown(others[0])}; for fields that "
            f"change training use ropewalk compare --sweep"
        )
    config = read_run_config(run)
    cells = cells_with(config, chosen_training(config, run))
    waiting = [cell for cell in cells if not is_trained(cell, run)]
    if waiting:
        raise ValueError(
            f"RUN must be the folder of a finished run, got {shown(str(run))}: {waiting[0]} is not "
            f"trained; finish it with ropewalk compare"
        )
    trained = {name: held for name, held in config.sweep.items() if name not in DECODING_FIELDS}
    return with_sweep(config, {**trained, **sweep})


def best(trials: Sequence[T], score: Callable[[T], float | None], *, higher_is_better: bool) -> T:
    """Return the trial with the best score; None loses, and ties go to the first."""
    known = [trial for trial in trials if score(trial) is not None]
    sign = 1 if higher_is_better else -1
    return max(known or trials, key=lambda trial: sign * (score(trial) or 0))
