"""Built-in running text: English tales of a small village, generated from a seed.

A tale introduces people early with their homes, things, wishes and fears, and returns to these
facts hundreds of words later. People are called by name, by trade or by a pronoun, ask each other
what the reader has been told, and pass things on, so that the story determines at any time where a
thing is.

lexicon          names, trades, places, things and other word lists; the sentences, with slots
telling          people and things and their current state; fills the slots: names, trades, pronouns

The course of a tale is here: an opening, scenes with actions and questions, an end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ropewalk.lab.data.rng import SPLITS, Rng, Split, split_of
from ropewalk.lab.data.tales import lexicon as w
from ropewalk.lab.data.tales.telling import FACTS, Event, Passage, Person, Telling, Thing, World

FIRST = 4  # people in the opening
WORDS_A_PERSON = 600  # a new person arrives each time the tale grows by this many words
MOST = 12

Paragraphs = tuple[tuple[Passage, ...], ...]


class Story:
    """Generates one tale of about `words` words."""

    def __init__(self, rng: Rng, words: int) -> None:
        self.rng, self.words = rng, words
        self.world = World(rng, min(MOST, FIRST + words // WORDS_A_PERSON))
        self.telling = Telling(rng, self.world)
        self.known: list[Person] = []
        self.things: list[Thing] = []
        self.place = self.world.places[0]

    def tell(self) -> Paragraphs:
        """Tell the tale, from its opening to its end."""
        self._open()
        beats: tuple[Callable[[], None], ...] = (
            *(self._use,) * 8, *(self._where,) * 4, *(self._take,) * 4, *(self._ask,) * 4,
            *(self._give,) * 3, *(self._report,) * 3, *(self._how,) * 2, *(self._put,) * 2,
            self._show, self._whose, self._reveal, self._leave, self._pause,
        )  # fmt: skip
        # The end has about eight words per thing, and half a scene has about thirty.
        while self.telling.length < self.words - 8 * len(self.things) - 30:
            self._arrive()
            for _ in range(5 + self.rng.below(5)):
                self.rng.pick(beats)()
        self._end()
        return tuple(map(tuple, self.telling.paragraphs))

    def _say(self, plan: str, event: Event, **meant: str) -> None:
        """Tell an event by one of the sentence plans of this name."""
        self._say_one_of(w.PLANS[plan], event, **meant)

    def _say_one_of(self, plans: Sequence[str], event: Event, **meant: str) -> None:
        """Tell an event; the slots a to d, t and p are its people, thing and place."""
        season = self.world.season
        slots: dict[str, Person | Thing | w.Place | str] = {
            **dict(zip("abcd", event.people, strict=False)),
            "spot": event.spot,
            "village": self.world.village,
            "season": season.name,
            "weather": self.rng.pick(season.phrases),
            **meant,
        }
        if event.thing is not None:
            slots["t"] = event.thing
        if event.place is not None:
            slots["p"] = event.place
        self.telling.say(plans, event, slots)

    # The parts of a tale

    def _open(self) -> None:
        self.telling.paragraph()
        self._say("opening", Event("opening"))
        for _ in range(FIRST):
            self.telling.paragraph()
            self._introduce("person")

    def _introduce(self, plan: str) -> None:
        person = self.world.cast[len(self.known)]
        self.known.append(person)
        self._say(plan, Event("person", (person,)))
        for fact in (FACTS[0], *self.rng.shuffled(FACTS[1:], 2)):
            self._tell(person, fact)
        for thing in self.world.having(person):
            self.things.append(thing)
            self._say("owner", Event("owner", (person,), thing))

    def _tell(self, person: Person, fact: str) -> None:
        self.world.told.append((person, fact))
        self._say(f"told.{fact}", Event("told", (person,), fact=fact))

    def _arrive(self) -> None:
        """Begin a scene: people come to a place, perhaps after a newcomer is introduced."""
        due = FIRST + self.telling.length // WORDS_A_PERSON
        if len(self.known) < min(due, len(self.world.cast)):
            self.telling.paragraph()
            self._introduce("newcomer")
        self.telling.paragraph()
        first, *others = self.rng.shuffled(self.known, 2 + self.rng.below(2))
        where = self.world.where
        self.place = self.rng.pick([p for p in self.world.places if p is not where[first]])
        where[first] = self.place
        going = Event("go", (first,), place=self.place)
        self._say("scene", going, time=self.rng.pick(w.TIMES))
        for other in others:
            if where[other] is not self.place:
                where[other] = self.place
                self._say("come", Event("go", (other,), place=self.place))

    def _end(self) -> None:
        self.telling.paragraph()
        self._say("ending", Event("ending"))
        for thing in self.rng.shuffled(self.things):
            holder = self.world.holder[thing]
            if holder is None:
                place, spot = self.world.lies[thing]
                self._say("ended_lies", Event("ended", (), thing, place, spot))
            else:
                self._say("ended_held", Event("ended", (holder,), thing))

    # Events of a scene; each does nothing if it is not possible

    def _here(self) -> list[Person]:
        """Return the people at the scene's place, at least one, in random order."""
        return self.rng.shuffled([p for p in self.known if self.world.where[p] is self.place])

    def _use(self) -> None:
        person = self._here()[0]
        facts = [fact for about, fact in self.world.told if about is person]
        fact = self.rng.pick([*facts, "saying", "trade"])
        self._say(f"used.{fact}", Event("use", (person,), fact=fact))

    def _reveal(self) -> None:
        person = self._here()[0]
        untold = [fact for fact in FACTS if (person, fact) not in self.world.told]
        if untold:
            self._tell(person, self.rng.pick(untold))

    def _ask(self) -> None:
        """Somebody asks about a person, and gets a fact that the tale has told."""
        asker, *others = self._here()
        facts = [*self.world.told, *((person, "trade") for person in self.known)]
        person, fact = self.rng.pick([told for told in facts if told[0] is not asker])
        if not others:
            return
        if person is not others[0]:
            self._say(f"asked.{fact}", Event("ask", (asker, others[0], person), fact=fact))
        elif f"asked_self.{fact}" in w.PLANS:
            self._say(f"asked_self.{fact}", Event("ask", (asker, person, person), fact=fact))

    def _give(self) -> None:
        giver, *others = self._here()
        things = self.world.having(giver)
        if others and things:
            self._change("give", Event("give", (giver, others[0]), self.rng.pick(things)))

    def _put(self) -> None:
        person = self._here()[0]
        things = self.world.having(person)
        if things:
            thing, spot = self.rng.pick(things), self.rng.pick(w.SPOTS)
            self._change("put", Event("put", (person,), thing, self.place, spot))

    def _take(self) -> None:
        lying = [(t, spot) for t, (place, spot) in self.world.lies.items() if place is self.place]
        if lying:
            thing, spot = self.rng.pick(lying)
            person = self._here()[0]
            self._change("take", Event("take", (person,), thing, self.place, spot))

    def _change(self, plan: str, event: Event) -> None:
        self.world.happen(event, self._here())
        self._say(plan, event)

    def _show(self) -> None:
        person = self._here()[0]
        things = self.world.having(person)
        if things:
            self._say("show", Event("show", (person,), self.rng.pick(things)))

    def _where(self) -> None:
        """Somebody asks where a thing is; a person who saw it moved answers."""
        asker, *others = self._here()
        saw = self.world.saw
        things = [
            (thing, other)
            for thing in self.things
            for other in others
            if other in saw[thing] and asker not in saw[thing]
        ]
        if not things:
            return
        thing, other = self.rng.pick(things)
        saw[thing].append(asker)
        holder = self.world.holder[thing]
        if holder is None:
            place, spot = self.world.lies[thing]
            answers, event = "lies", Event("where", (asker, other), thing, place, spot)
        else:
            answers = "held_self" if holder is other else "held"
            event = Event("where", (asker, other, holder), thing)
        question, answer = (self.rng.pick(w.PLANS[kind]) for kind in ("where", answers))
        self._say_one_of((f"{question} {answer}",), event)

    def _how(self) -> None:
        """Somebody asks the holder of a thing how they got it."""
        asker, *others = self._here()
        things = [(thing, other) for other in others for thing in self.world.having(other)]
        if not things:
            return
        thing, other = self.rng.pick(things)
        past = self.world.how.get(thing)
        if past is None:
            self._say("how_owned", Event("how", (asker, other), thing))
        elif past.kind == "take":
            event = Event("how", (asker, other), thing, past.place, past.spot)
            self._say("how_found", event)
        elif past.people[0] is not asker:
            self._say("how_given", Event("how", (asker, other, past.people[0]), thing))

    def _report(self) -> None:
        """Somebody reports a past event with a thing to a person who did not see it."""
        teller, *others = self._here()
        seen = [
            event
            for event, saw in self.world.past
            if teller in saw and others and others[0] not in saw and teller not in event.people
        ]
        if seen:
            past = self.rng.pick(seen)
            people = (teller, others[0], *past.people)
            event = Event("report", people, past.thing, past.place, past.spot, past.kind)
            self._say(f"report.{past.kind}", event)

    def _whose(self) -> None:
        asker, *others = self._here()
        things = [thing for thing in self.things if thing.owner not in (asker, *others)]
        if others and things:
            thing = self.rng.pick(things)
            self._say("whose", Event("whose", (asker, others[0], thing.owner), thing))

    def _leave(self) -> None:
        person, *others = self._here()
        if others and (person, "home") in self.world.told:
            self.world.where[person] = person.home
            self._say("leave", Event("go", (person,), place=person.home))

    def _pause(self) -> None:
        self._say("pause", Event("pause"))


SHORTEST = 300
"""Least number of words of a tale: an opening, an end, and scenes between."""


def tales(count: int, words: int, seed: int, split: Split = "train") -> list[str]:
    """Return `count` tales of about `words` words each, one paragraph per line.

    A cast, by names and trades, occurs in one split only, so that no tale is in two. Equal
    arguments give equal tales in every version of Python.

    Raises:
        ValueError: if words is below `SHORTEST` or the split is unknown.
    """
    return [
        "\n".join(" ".join(passage.text for passage in paragraph) for paragraph in tale)
        for tale in derive(count, words, seed, split)
    ]


def derive(count: int, words: int, seed: int, split: Split = "train") -> list[Paragraphs]:
    """Return the tales of `tales`, each passage with the event that it tells."""
    if words < SHORTEST:
        raise ValueError(f"words must be at least {SHORTEST}, got {words}")
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    rng = Rng(f"tales/{split}/{seed}")
    told: list[Paragraphs] = []
    while len(told) < count:
        story = Story(rng, words)
        cast = sorted(f"{person.name} the {person.trade.name}" for person in story.world.cast)
        if split_of(", ".join(cast)) == split:
            told.append(story.tell())
    return told
