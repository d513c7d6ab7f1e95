"""One tale as it proceeds: the state of its people, places and things, and the words for them.

`World` holds the state; `Telling` fills sentence plans with names, trades, or pronouns where the
reference is unambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from ropewalk.lab.data.rng import Rng
from ropewalk.lab.data.tales import lexicon as w

#: Facts about a person, apart from name and trade.
FACTS = ("saying", "home", "temper", "dish", "wish", "fear", "pet")


@dataclass(frozen=True, eq=False)
class Person:
    """A person in a tale, with all facts about them."""

    name: str
    woman: bool
    trade: w.Kind
    temper: w.Temper
    home: w.Place
    dish: str
    wish: str
    fear: str
    animal: w.Kind
    pet: str
    saying: str


@dataclass(frozen=True, eq=False)
class Thing:
    """A thing with a noun and a look of its own, and its owner, who need not hold it."""

    noun: str
    look: str
    owner: Person


@dataclass(frozen=True)
class Event:
    """The event that a sentence tells; `people` are in the order of the plans of its kind.

    Kinds that change something: "go" (people[0] to place), "give" (people[0] gives thing to
    people[1]), "put" (people[0] puts thing at place, spot), "take" (people[0] takes it from there).
    Kinds in which people[1] answers people[0]: "where" (people[2] has the thing, or it lies
    at place, spot), "whose" (it is people[2]'s), "how" (people[1] has it from people[2], found it
    at place, spot, or always had it), "ask" (a fact about people[2]). "told" introduces a fact,
    "use" returns to it; "report" repeats that people[2] gave thing to people[3], or put it
    or took it; "ended" tells where a thing is at the end.
    """

    kind: str
    people: tuple[Person, ...] = ()
    thing: Thing | None = None
    place: w.Place | None = None
    spot: str = ""
    fact: str = ""


class World:
    """People, places and things of one tale, and their current state.

    `where` maps people to places. For a thing, `holder` is who has it, `lies` where it lies if
    nobody has it, `saw` who knows that, and `how` the event that brought it there. `past` has all
    such events with the people who saw them, `told` the facts that the tale has told.
    """

    def __init__(self, rng: Rng, cast: int) -> None:
        self.village = rng.pick(w.VILLAGES)
        self.season = rng.pick(w.SEASONS)
        self.cast = _cast(rng, cast)
        self.places = rng.shuffled(w.PLACES, cast // 2 + 3)
        owners = [*self.cast, *rng.shuffled(self.cast, cast // 2)]
        nouns, looks = rng.shuffled(w.THINGS), rng.shuffled(w.LOOKS)
        things = [Thing(nouns[i], looks[i], owner) for i, owner in enumerate(owners)]
        self.where = {person: person.home for person in self.cast}
        self.holder: dict[Thing, Person | None] = {thing: thing.owner for thing in things}
        self.lies: dict[Thing, tuple[w.Place, str]] = {}
        self.saw: dict[Thing, list[Person]] = {thing: [thing.owner] for thing in things}
        self.how: dict[Thing, Event] = {}
        self.past: list[tuple[Event, list[Person]]] = []
        self.told: list[tuple[Person, str]] = []

    def having(self, person: Person) -> list[Thing]:
        """Return the things that a person has."""
        return [thing for thing, holder in self.holder.items() if holder is person]

    def happen(self, event: Event, saw: Sequence[Person]) -> None:
        """Update the world after a thing is given, put or taken; `saw` are the witnesses."""
        thing = event.thing
        assert thing is not None
        self.saw[thing], self.how[thing] = list(saw), event
        self.past.append((event, list(saw)))
        self.lies.pop(thing, None)
        if event.kind == "put":
            assert event.place is not None
            self.holder[thing], self.lies[thing] = None, (event.place, event.spot)
        else:
            self.holder[thing] = event.people[-1]


def _cast(rng: Rng, size: int) -> list[Person]:
    women = rng.shuffled(w.WOMEN, size)
    men = rng.shuffled(w.MEN, size)
    first = rng.below(2)
    trades, tempers = rng.shuffled(w.TRADES, size), rng.shuffled(w.TEMPERS)
    near, pets = rng.shuffled(w.PLACES, size), rng.shuffled(w.ANIMAL_NAMES, size)
    dishes, wishes = rng.shuffled(w.DISHES, size), rng.shuffled(w.WISHES, size)
    animals, fears = rng.shuffled(w.ANIMALS), rng.shuffled(w.FEARS)
    people = []
    for i in range(size):
        woman = (i + first) % 2 == 0
        people.append(
            Person(
                name=women[i] if woman else men[i],
                woman=woman,
                trade=trades[i],
                temper=tempers[i % len(tempers)],
                home=w.Place(f"{rng.pick(w.NEAR)} {near[i].name}"),
                dish=dishes[i],
                wish=wishes[i],
                fear=fears[i % len(fears)],
                animal=animals[i % len(animals)],
                pet=pets[i],
                saying=rng.pick(w.SAYINGS).format(
                    look=rng.pick(w.LOOKS),
                    thing=rng.pick(w.THINGS),
                    animal=rng.pick(w.ANIMALS).name,
                ),
            )
        )
    return people


SLOT = re.compile(r"\{(\w+)(?:\.(\w+))?\}")
BEGINNING = re.compile(r'(^"?|[.?:] "?)([a-z])')

#: Slot suffixes for pronouns: the forms for women and men.
PRONOUNS = {"he": ("she", "he"), "him": ("her", "him"), "his": ("her", "his")}
#: Slot suffixes for what is told of a person, and the attribute that each stands for.
TOLD = {
    **{name: name for name in ("name", "dish", "wish", "fear", "pet", "saying")},
    **{name: f"{name}.name" for name in ("trade", "temper", "animal")},
    **{name: f"temper.{name}" for name in ("manner", "habit")},
    "home": "home.at",
}

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
        if form in ("does", "work"):
            return self.rng.pick((person.animal if form == "does" else person.trade).phrases)
        return str(attrgetter(TOLD[form])(person)) if form in TOLD else None

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
