"""A sweep: fields with values that are tried on validation data, separately per encoding."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

from ropewalk.checks import did_you_mean, shown
from ropewalk.encodings.parsing import split_at
from ropewalk.files import Facts
from ropewalk.lab.fields import read_value

#: The swept fields of one cell with their values, in the order of `KNOWN`.
Settings = tuple[tuple[str, Any], ...]

#: The stage at which work on a cell stops: after training, after trying the sweep's decoding
#: settings on validation data, or after scoring on test data.
Goal = Literal["trained", "tuned", "scored"]

#: Fields that change training but not the prepared data.
TRAINING_FIELDS = (
    *("width", "heads", "kv_heads", "feed_forward", "encoder_layers", "decoder_layers", "layers"),
    *("attention", "dropout", "epochs", "batch_tokens", "batch_sentences", "accumulate"),
    *("learning_rate", "warmup", "schedule", "label_smoothing", "clip"),
)
#: Fields that can change without training again: they determine which snapshots are used for
#: decoding, and how the beam search works.
DECODING_FIELDS = ("beam", "length_penalty", "select", "average")

KNOWN = (*TRAINING_FIELDS, *DECODING_FIELDS)
MOST_POINTS = 100  # combinations of a sweep


def read_sweep(texts: Iterable[str], option: str = "--sweep") -> dict[str, list[Any]]:
    """Return a sweep from `field=value,value,…`; commas in parentheses do not split."""
    sweep: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ValueError(f"{option} must have the form field=value,value,…, got {shown(text)}")
        if name in sweep:
            raise ValueError(
                f"{option} must name {shown(name)} once, got it twice; write its values in one list"
            )
        words = name == "attention"  # names of attentions are kept as written
        each = [value.strip() for value in split_at(values, ",")]
        if "" in each:
            raise ValueError(f"{option} must have no empty value, got {shown(text)}")
        sweep[name] = each if words else [read_value(value) for value in each]
    return sweep


def check_sweep(sweep: object, fields: Collection[str]) -> None:
    """Raise ValueError unless keys are fields that a sweep can vary, and values are lists.

    fields: the names of all fields of a config.
    """
    if not isinstance(sweep, dict):
        raise ValueError("must be fields, each with a list of values")
    for name, values in sweep.items():
        if name not in KNOWN:
            hint = "" if name in fields else did_you_mean(str(name)[:80], KNOWN)
            raise ValueError(f"can't vary {shown(name)}; it can vary {', '.join(KNOWN)}{hint}")
        if not isinstance(values, (list, tuple)) or not values:
            raise ValueError(f"must set {name} to a list of values, not {shown(values)}")


def points(sweep: Mapping[str, Sequence[Any]], fields: Collection[str]) -> list[Settings]:
    """Return all combinations of the values that `sweep` gives to `fields`; `[()]` if none.

    The order of fields is fixed, so that folder names do not depend on the order of options.
    """
    swept = [name for name in KNOWN if name in sweep and name in fields]
    axes = [[(name, value) for value in sweep[name]] for name in swept]
    return list(itertools.product(*axes))


def count_points(sweep: Mapping[str, Sequence[Any]]) -> int:
    """Return the number of combinations without building them."""
    return math.prod(len(values) for values in sweep.values())


def described(settings: Settings) -> str:
    """Return settings as text for people and folders: `learning_rate=0.002 dropout=0.1`."""
    return " ".join(f"{name}={value}" for name, value in settings)


def settings_to_json(settings: Settings) -> str:
    """Return settings as one line of JSON."""
    return json.dumps(dict(settings))


def settings_from_json(text: str) -> Settings:
    """Return the settings that `settings_to_json` wrote."""
    return tuple(json.loads(text).items())


def best(trials: Sequence[Facts], key: str, *, higher_is_better: bool) -> Facts:
    """Return the trial with the best value under `key`; None loses, and ties go to the first."""
    sign = 1 if higher_is_better else -1

    def value(trial: Facts) -> float:
        found = trial.get(key)
        return -math.inf if found is None else sign * float(found)

    return max(trials, key=value)
