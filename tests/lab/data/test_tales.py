"""The built-in running text: what its people say agrees with what the tale has told.

Two readers check the tales. One follows from event to event who has which thing, and looks for the
answer in the words of each question. The other reads only the text, and finds whom each pronoun can
mean. These tests would fail if an answer were wrong, if a fact were used before it was told or only
just after, if a pronoun could mean two people, if two splits shared a cast, or if another run, seed
or version of Python told other tales.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.lab.data.rng import SPLITS, Split, split_of
from ropewalk.lab.data.tales import SHORTEST, derive, tales
from ropewalk.lab.data.tales.telling import Passage, Person

SEEDS = st.integers(0, 2**31)
WORDS = st.integers(SHORTEST, 1_500)
Tale = tuple[tuple[Passage, ...], ...]


def told(seed: int, words: int) -> Tale:
    return derive(1, words, seed)[0]


def flat(tale: Tale) -> list[Passage]:
    return [passage for paragraph in tale for passage in paragraph]


def forms(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())


def names(person: Person, text: str) -> bool:
    """Whether the text names this person, by name or by trade."""
    return bool(re.search(rf"\b({person.name}|{person.trade.name})\b", text))


def said(passage: Passage) -> str:
    """The last quotation of a passage, which is the answer."""
    return re.findall(r'"([^"]+)"', passage.text)[-1]


FACTS = {
    "saying": lambda person: person.saying,
    "trade": lambda person: person.trade.name,
    "home": lambda person: person.home.at,
    "temper": lambda person: person.temper.name,
    "dish": lambda person: person.dish,
    "wish": lambda person: person.wish,
    "fear": lambda person: person.fear,
    "pet": lambda person: person.pet,
}


@settings(max_examples=15, deadline=None)
@given(SEEDS, WORDS)
def test_things_are_where_the_tale_has_left_them(seed: int, words: int) -> None:
    """Follows each thing from hand to hand and place to place; fails if an answer differs."""
    at: dict[str, tuple[Person | None, str]] = {}
    came: dict[str, tuple[str, Person | None, str]] = {}
    where: dict[Person, str] = {}
    past: list[tuple[str, tuple[Person, ...], str, str]] = []
    knows: dict[str, set[Person]] = {}
    for passage in flat(told(seed, words)):
        event, text = passage.event, passage.text
        people, thing = event.people, event.thing.noun if event.thing else ""
        spot = f"{event.place.at} {event.spot}" if event.place else ""
        if event.kind == "go":
            assert event.place
            where[people[0]] = event.place.at
        elif event.kind == "owner":
            assert event.thing
            assert event.thing.look in text
            assert thing not in at
            knows[thing] = {people[0]}
            at[thing], came[thing] = (people[0], ""), ("own", None, "")
        elif event.kind == "give":
            assert at[thing] == (people[0], "")
            assert where[people[0]] == where[people[1]]
            at[thing], came[thing] = (people[1], ""), ("given", people[0], "")
        elif event.kind == "put":
            assert at[thing] == (people[0], "")
            assert event.place
            assert where[people[0]] == event.place.at
            at[thing] = (None, spot)
        elif event.kind == "take":
            assert at[thing] == (None, spot)
            assert event.spot in text.lower()
            at[thing], came[thing] = (people[0], ""), ("found", None, spot)
        elif event.kind in ("where", "ended"):
            if event.kind == "where":
                assert people[1] in knows[thing]
                assert people[0] not in knows[thing]
                knows[thing].add(people[0])
            holder, lies = at[thing]
            answer = said(passage) if event.kind == "where" else text
            if holder is None:
                place, there = event.place, event.spot
                assert place
                assert f"{place.at} {there}" == lies
                assert place.at in text.lower()
                assert there in text.lower()
            elif event.kind == "where" and holder is people[1]:
                assert answer in ("I have it.", "I have it,", "Here it is,")
            else:
                assert names(holder, answer), text
        elif event.kind == "how":
            assert at[thing] == (people[1], "")
            how, giver, found = came[thing]
            if giver:
                assert names(giver, said(passage))
            elif how == "own":
                assert said(passage) == "It has always been mine,"
            else:
                assert event.place
                assert found == spot
                assert event.place.at in said(passage).lower()
                assert event.spot in said(passage).lower()
        elif event.kind == "whose":
            assert event.thing
            assert names(event.thing.owner, said(passage))
        elif event.kind == "report":
            assert (event.fact, people[2:], thing, spot) in past
            assert all(names(person, text) for person in people[2:])
            assert not event.place or f"{event.place.at}, {event.spot}" in text
        if event.kind in ("give", "put", "take"):
            past.append((event.kind, people, thing, spot))
            knows[thing] = {each for each, place in where.items() if place == where[people[0]]}
        if thing and event.kind != "whose":
            assert re.search(rf"\b({thing}|it)\b", text, re.IGNORECASE), text


@settings(max_examples=15, deadline=None)
@given(SEEDS, WORDS)
def test_facts_are_told_before_they_are_used(seed: int, words: int) -> None:
    known: set[tuple[str, str]] = set()
    for passage in flat(told(seed, words)):
        event, text = passage.event, passage.text.lower()
        if event.kind == "person":
            known.add((event.people[0].name, "trade"))
            assert event.people[0].trade.name in text
        if event.kind == "told":
            assert (event.people[0].name, event.fact) not in known
            known.add((event.people[0].name, event.fact))
            assert FACTS[event.fact](event.people[0]).lower() in text
        if event.kind in ("use", "ask"):
            about = event.people[-1]
            assert (about.name, event.fact) in known
            if event.kind == "ask":
                answer = about.name if "who is" in text else FACTS[event.fact](about)
                assert answer.lower() in text


@settings(max_examples=15, deadline=None)
@given(SEEDS, WORDS)
def test_a_pronoun_can_mean_one_person_only(seed: int, words: int) -> None:
    """Reads names, trades and pronouns; fails if a pronoun can mean nobody or two people."""
    tale = told(seed, words)
    everybody = {person for passage in flat(tale) for person in passage.event.people}
    for paragraph in tale:
        before: set[Person] = set()
        for passage in paragraph:
            named = {person for person in everybody if names(person, passage.text)}
            meant: set[Person] = set()
            for pronoun in re.finditer(r"\b(she|her|he|him|his)\b", passage.text, re.IGNORECASE):
                woman = pronoun[0].lower() in ("she", "her")
                begun = passage.text[: pronoun.start()]
                first = {person for person in named if names(person, begun)}
                # A person named in the same sentence takes precedence over the last sentence.
                can = {p for p in first if p.woman == woman} or {
                    p for p in before | named if p.woman == woman
                }
                assert len(can) == 1, passage.text
                meant |= can
            assert meant <= set(passage.event.people), passage.text
            before = named | meant


def test_facts_come_back_from_afar() -> None:
    """Fails if facts are mostly used soon after they are told: half are used 300 words later."""
    distances = []
    for tale in derive(20, 1_500, 0):
        words, when = 0, {}
        for passage in flat(tale):
            event = passage.event
            if event.kind in ("told", "person"):
                when[event.people[0], event.fact or "trade"] = words
            if event.kind in ("use", "ask"):
                distances.append(words - when[event.people[-1], event.fact])
            words += len(passage.text.split())
    assert len(distances) > 20 * 20
    assert sorted(distances)[len(distances) // 2] > 300


@settings(max_examples=15, deadline=None)
@given(SEEDS, WORDS)
def test_tales_are_well_written(seed: int, words: int) -> None:
    (text,) = tales(1, words, seed)
    for paragraph in text.split("\n"):
        assert re.fullmatch(r'["A-Z].*[.]"?', paragraph), paragraph
        assert not re.search(r"[{}]|  | [,.?]|,[^ \"]|[.?][^ \"]|,,", paragraph), paragraph
        assert not re.search(r"[.?] [a-z]", paragraph), paragraph
        assert paragraph.count('"') % 2 == 0
        assert not re.search(r"\ba (?=[aeiou])|\ban (?![aeiou])", paragraph.lower()), paragraph
    assert text.isascii()


@pytest.mark.parametrize("words", [SHORTEST, 600, 1_500, 4_000])
def test_tales_are_about_as_long_as_asked(words: int) -> None:
    lengths = [len(text.split()) for text in tales(10, words, 3)]
    assert abs(sum(lengths) / 10 - words) < 0.05 * words + 30
    assert all(abs(length - words) < 0.1 * words + 80 for length in lengths)


@pytest.mark.parametrize("split", SPLITS)
def test_a_cast_belongs_to_one_split(split: Split) -> None:
    """Fails if a cast is in another split than the one that its names and trades determine."""
    for tale in derive(40, 300, 0, split):
        people = {person for passage in flat(tale) for person in passage.event.people}
        cast = ", ".join(sorted(f"{each.name} the {each.trade.name}" for each in people))
        assert split_of(cast) == split


def test_training_knows_every_word() -> None:
    """There are hundreds of word forms, none of them only in test."""
    counts = Counter(form for text in tales(120, 1_500, 0) for form in forms(text))
    assert len(counts) > 800
    for split in ("validation", "test"):
        for text in tales(10, 1_500, 0, split):
            assert counts.keys() >= set(forms(text))


@settings(max_examples=8)
@given(SEEDS)
def test_equal_arguments_tell_equal_tales(seed: int) -> None:
    assert tales(2, 300, seed) == tales(2, 300, seed) == tales(3, 300, seed)[:2]
    assert tales(1, 300, seed) != tales(1, 300, seed + 1)


def test_the_tales_of_seed_0_are_the_same_everywhere() -> None:
    text = "\n\n".join(text for split in SPLITS for text in tales(3, 1_000, 0, split))
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "6fe3730611e63df05b6ebd3c128db5e86dd162269f18cc350a4d14e975d33005"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((1, 20, 0), f"words must be at least {SHORTEST}, got 20"),
        ((1, 300, 0, "dev"), "split must be one of train, validation, test, got 'dev'"),
    ],
)
def test_mistakes_are_named(arguments: tuple[int, ...], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        tales(*arguments)
