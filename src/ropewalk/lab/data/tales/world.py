"""The world of one tale: its people, places and things, and their state as the tale proceeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ropewalk.lab.data.rng import Rng
from ropewalk.lab.data.tales import elements as w

#: Facts about a person, apart from name and trade.
FACTS = ("saying", "home", "temper", "dish", "wish", "fear", "pet")


@dataclass(frozen=True, eq=False)
class Person:
    """A person in a tale, with all facts about them."""

    name: str
    woman: bool
    trade: w.Trade
    temper: w.Temper
    home: w.Place
    dish: str
    wish: str
    fear: str
    animal: w.Animal
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

    def describe_cast(self) -> str:
        """Return the names and trades of the cast in alphabetical order."""
        return ", ".join(sorted(f"{person.name} the {person.trade.name}" for person in self.cast))

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
