"""The words and sentence plans of the tales, from lexicon.toml and sentence_plans.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Kind:
    """A trade, an animal or a season, and phrases: its daily work, what it does, its weather."""

    name: str
    phrases: Sequence[str]


@dataclass(frozen=True)
class Temper:
    """A temper, how such a person speaks, and a habit of such a person."""

    name: str
    manner: str
    habit: str


@dataclass(frozen=True)
class Place:
    """A place, written with its preposition: `in the orchard`."""

    at: str

    @property
    def name(self) -> str:
        """The place without its preposition: `the orchard`."""
        return self.at.partition(" ")[2]


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


def _read_plans() -> Mapping[str, Sequence[str]]:
    """Return the plans of each kind of event, or of `kind.fact`."""
    plans: dict[str, Sequence[str]] = {}
    for kind, content in _read("sentence_plans.toml").items():
        of_facts = content.items() if isinstance(content, dict) else ()
        plans |= {f"{kind}.{fact}": of for fact, of in of_facts} or {kind: content}
    return plans


def _kinds(name: str) -> list[Kind]:
    return [Kind(kind, phrases) for kind, phrases in _WORDS[name].items()]


PLANS = _read_plans()

_WORDS = _read("lexicon.toml")
WOMEN: Sequence[str] = _WORDS["women"]
MEN: Sequence[str] = _WORDS["men"]
VILLAGES: Sequence[str] = _WORDS["villages"]
TRADES = _kinds("trades")
TEMPERS = [Temper(name, *phrases) for name, phrases in _WORDS["tempers"].items()]
PLACES = [Place(at) for at in _WORDS["places"]]
NEAR: Sequence[str] = _WORDS["near"]
SPOTS: Sequence[str] = _WORDS["spots"]
THINGS: Sequence[str] = _WORDS["things"]
LOOKS: Sequence[str] = _WORDS["looks"]
ANIMALS = _kinds("animals")
ANIMAL_NAMES: Sequence[str] = _WORDS["animal_names"]
DISHES: Sequence[str] = _WORDS["dishes"]
WISHES: Sequence[str] = _WORDS["wishes"]
FEARS: Sequence[str] = _WORDS["fears"]
SEASONS = _kinds("seasons")
TIMES: Sequence[str] = _WORDS["times"]
SAYINGS: Sequence[str] = _WORDS["sayings"]
