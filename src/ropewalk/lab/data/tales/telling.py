"""Fills sentence plans with names, trades, or pronouns where the reference is unambiguous."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ropewalk.lab.data.rng import Rng
from ropewalk.lab.data.tales import elements as w
from ropewalk.lab.data.tales.world import Event, Person, Thing, World

SLOT = re.compile(r"\{(\w+)(?:\.(\w+))?\}")
BEGINNING = re.compile(r'(^"?|[.?:] "?)([a-z])')

#: Slot suffixes for pronouns: the forms for women and men.
PRONOUNS = {"he": ("she", "he"), "him": ("her", "him"), "his": ("her", "his")}
FIELDS = ("name", "dish", "wish", "fear", "pet", "saying")

Meant = Person | Thing | w.Place | str


@dataclass(frozen=True)
class Passage:
    """One sentence, or one question with its answer, and the event it tells."""

    text: str
    event: Event


class Telling:
    """Tells the sentences of one tale and remembers whom the last ones mentioned.

    A pronoun means a person that this sentence or the one before mentions, if neither
    mentions anybody else of that gender. The same holds for "it" and things.
    """

    def __init__(self, rng: Rng, world: World) -> None:
        self.rng, self.world = rng, world
        self.paragraphs: list[list[Passage]] = []
        self._before: list[Meant] = []
        self._now: list[Meant] = []
        self._meant: list[Meant] = []

    def paragraph(self) -> None:
        """Begin a paragraph and forget whom the last one mentioned."""
        self.paragraphs.append([])
        self._before, self._now = [], []

    @property
    def length(self) -> int:
        """Number of words told so far."""
        return sum(p.text.count(" ") + 1 for paragraph in self.paragraphs for p in paragraph)

    def say(self, plans: Sequence[str], event: Event, meant: Mapping[str, Meant]) -> None:
        """Tell an event by one of these plans; `meant` maps the plan's slots to their values."""
        plan = self.rng.pick(plans)
        self._before, self._now, self._meant = self._now, [], list(meant.values())

        def fill(slot: re.Match[str]) -> str:
            return self._fill(meant[slot[1]], slot[2] or "")

        text = BEGINNING.sub(lambda m: m[1] + m[2].upper(), SLOT.sub(fill, plan))
        self.paragraphs[-1].append(Passage(text, event))

    def _fill(self, meant: Meant, form: str) -> str:
        if isinstance(meant, Person):
            return self._person(meant, form)
        if isinstance(meant, Thing):
            return self._thing(meant, form)
        if isinstance(meant, w.Place):
            return meant.at if form == "at" else meant.name
        return meant

    def _person(self, person: Person, form: str) -> str:
        told = self._told(person, form)
        if told is not None:
            return told
        certain = self._certain(person)
        self._now.append(person)
        if form in PRONOUNS and (form == "he" or form == "his" or certain):
            return PRONOUNS[form][not person.woman]
        if form == "" and certain and self.rng.chance(0.7):
            return PRONOUNS["he"][not person.woman]
        phrase = self._phrase(person)
        return f"{phrase}'s" if form == "s" else phrase

    def _told(self, person: Person, form: str) -> str | None:
        """Return the attribute of a person for a slot like `dish`, or None for a reference."""
        if form == "name":
            self._now.append(person)
        if form in FIELDS:
            return str(getattr(person, form))
        habit = person.temper.habit
        fields = {
            "trade": person.trade.name,
            "temper": person.temper.name,
            "manner": person.temper.manner,
            "habit": habit,
            "home": person.home.at,
            "animal": person.animal.name,
        }
        if form == "does":
            return self.rng.pick(person.animal.does)
        if form == "work":
            return self.rng.pick(person.trade.chores)
        return fields.get(form)

    def _certain(self, person: Person) -> bool:
        """Return whether a pronoun can only mean this person."""
        spoken = self._before + self._now
        people = [each for each in spoken + self._meant if isinstance(each, Person)]
        return person in spoken and not any(
            each.woman == person.woman for each in people if each is not person
        )

    def _phrase(self, person: Person) -> str:
        draw = self.rng.random()
        if draw < 0.6:
            return person.name
        if draw < 0.85 or (person, "temper") not in self.world.told:
            return f"the {person.trade.name}"
        return f"the {person.temper.name} {person.trade.name}"

    def _thing(self, thing: Thing, form: str) -> str:
        if form == "noun":
            return thing.noun
        spoken = [each for each in self._before + self._now if isinstance(each, Thing)]
        certain = thing in spoken and all(each is thing for each in spoken)
        self._now.append(thing)
        full = f"{thing.look} {thing.noun}"
        if form == "a":
            return f"a {full}"
        if form in ("full", "bare"):
            return full if form == "bare" else f"the {full}"
        if form == "" and certain and self.rng.chance(0.7):
            return "it"
        draw = self.rng.random()
        people = [each for each in self._now + self._meant if isinstance(each, Person)]
        if draw < 0.2 and all(thing.owner.woman != each.woman for each in people):
            self._now.append(thing.owner)
            return f"{thing.owner.name}'s {thing.noun}"
        return f"the {full}" if draw < 0.7 else f"the {thing.noun}"
