"""A sweep: fields whose values are tried on validation data, for each encoding by itself."""

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

#: Fields with values, in the order of a sweep: what one cell has of its own.
Settings = tuple[tuple[str, Any], ...]

#: How far a cell is taken: trained, tried with the sweep's decoding settings, scored on the tests.
Goal = Literal["trained", "tuned", "scored"]

#: Fields that change training and leave the prepared data as it is.
TRAINING_FIELDS = (
    *("width", "heads", "kv_heads", "feed_forward", "encoder_layers", "decoder_layers", "layers"),
    *("attention", "dropout", "epochs", "batch_tokens", "batch_sentences", "accumulate"),
    *("learning_rate", "warmup", "schedule", "label_smoothing", "clip"),
)
#: Fields that a trained model is decoded by.
DECODING_FIELDS = ("beam", "length_penalty", "select", "average")

KNOWN = (*TRAINING_FIELDS, *DECODING_FIELDS)
MOST_POINTS = 100  # of a grid


def read_sweep(texts: Iterable[str], option: str = "--sweep") -> dict[str, list[Any]]:
    """Read ``field=value,value,…`` from the command line; commas in brackets do not split."""
    sweep: dict[str, list[Any]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ValueError(f"{option} must read field=value,value,…, got {shown(text)}")
        if name in sweep:
            raise ValueError(
                f"{option} must name {shown(name)} once, got it twice; write all its values in one"
            )
        words = name == "attention"  # "performer(features=8)" is no YAML
        each = [value.strip() for value in split_at(values, ",")]
        if "" in each:
            raise ValueError(
                f"{option} must have a value before and after each comma, got {shown(text)}"
            )
        sweep[name] = each if words else [read_value(value) for value in each]
    return sweep


def check_sweep(sweep: object, fields: Collection[str]) -> None:
    """Raise ValueError unless this names fields that a sweep can vary, each with its values.

    fields: the names of all fields of a config.
    """
    if not isinstance(sweep, dict):
        raise ValueError("must be fields, each with a list of values")
    for name, values in sweep.items():
        if name not in KNOWN:
            hint = "" if name in fields else did_you_mean(str(name)[:80], KNOWN)
            raise ValueError(
                f"must vary fields of the model, of training or of decoding, such as "
                f"learning_rate; {shown(name)} is none of them{hint}"
            )
        if not isinstance(values, (list, tuple)) or not values:
            raise ValueError(f"must give {name} a list of values, not {shown(values)}")


def points(sweep: Mapping[str, Sequence[Any]], fields: Collection[str]) -> list[Settings]:
    """Give every combination of the values of those swept fields; one empty point if none is.

    Fields come in an order of their own, so that the order of a command line changes no folder.
    """
    swept = [name for name in KNOWN if name in sweep and name in fields]
    axes = [[(name, value) for value in sweep[name]] for name in swept]
    return list(itertools.product(*axes))


def count_points(sweep: Mapping[str, Sequence[Any]]) -> int:
    """Give the number of combinations without forming them."""
    return math.prod(len(values) for values in sweep.values())


def described(settings: Settings) -> str:
    """Write settings for people and folders: ``learning_rate=0.002 dropout=0.1``."""
    return " ".join(f"{name}={value}" for name, value in settings)


def settings_to_json(settings: Settings) -> str:
    """Write settings as one line of JSON."""
    return json.dumps(dict(settings))


def settings_from_json(text: str) -> Settings:
    """Read what ``settings_to_json`` wrote."""
    return tuple(json.loads(text).items())


def best(trials: Sequence[Facts], key: str, *, higher_is_better: bool) -> Facts:
    """Give the trial with the best value under ``key``; None loses, of equals the first wins."""
    sign = 1 if higher_is_better else -1

    def value(trial: Facts) -> float:
        found = trial.get(key)
        return -math.inf if found is None else sign * float(found)

    return max(trials, key=value)
