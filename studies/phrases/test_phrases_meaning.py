"""The generator of phrases: its sentences are unambiguous, equal in both languages, and decent.

These tests would fail if a clause lacked what its verb requires, if English words belonged to
another clause than the German ones, or if a pronoun meant the same person twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from phrases import lexemes as w
from phrases.grammar import Grammar
from phrases.nouns import NOUNS
from phrases.pools import ALONE
from phrases.syntax import Clause, Nominal, NounPhrase, Predicate, Sentence
from phrases.verbs import COPULA, VERBS, Verb


@pytest.fixture(scope="module", params=[pytest.param(20, marks=pytest.mark.slow)])
def sentences(request) -> list[Sentence]:
    """Many sentences; every test that reads them, or their clauses, is slow."""
    grammar = Grammar(request.param, every=True)
    drawn = [grammar.sentence() for _ in range(8_000)]
    return drawn + [grammar.long() for _ in range(500)]


@pytest.fixture(scope="module")
def clauses(sentences: list[Sentence]) -> list[Clause]:
    return [part for part in _parts(sentences) if isinstance(part, Clause)]


@pytest.fixture(scope="module")
def predicates(clauses: list[Clause]) -> list[Predicate]:
    return [predicate for clause in clauses for predicate in clause.predicates]


def _parts(part: object) -> Iterator[object]:
    """Yield every part of a sentence at any depth."""
    if isinstance(part, tuple | list):
        for inner in part:
            yield from _parts(inner)
    elif dataclasses.is_dataclass(part) and not isinstance(part, Verb):
        yield part
        for inner in vars(part).values():
            yield from _parts(inner)


def _objects(part: Predicate) -> Iterator[Nominal]:
    for phrase in (part.accusative, part.dative):
        if phrase is not None:
            yield phrase
    for place in (part.oblique, part.adjunct):
        if place is not None:
            yield place.phrase


def _is_qualified(part: Predicate) -> bool:
    return any(isinstance(o, NounPhrase) and o.relative is not None for o in _objects(part))


def _denies(part: Predicate) -> bool:
    return isinstance(part.accusative, NounPhrase) and part.accusative.determiner is w.NO


def _company(part: Predicate) -> Nominal | None:
    beside = part.adjunct
    return beside.phrase if beside is not None and beside.german in ("mit", "ohne") else None


FRAU = NounPhrase(w.THE, next(noun for noun in NOUNS if noun.german == "Frau"))


def test_what_is_said_to_be_is_so_somehow_for_no_time_and_by_no_topic_twice(
    clauses: list[Clause],
) -> None:
    for clause in clauses:
        own = clause.subject.adjectives if isinstance(clause.subject, NounPhrase) else ()
        for part in clause.predicates:
            if part.verb is COPULA:
                assert part.quality
                assert not clause.time
                topics = [a.topic for a in (*own, *part.quality)]
                assert len(topics) == len(set(topics)), topics


def test_what_is_not_done_has_no_manner_no_modal_verb_and_no_frequency(
    clauses: list[Clause],
) -> None:
    denials = [(clause, p) for clause in clauses for p in clause.predicates if _denies(p)]
    assert len(denials) > 50
    for clause, part in denials:
        assert part.manner is None
        assert clause.tense != "modal"
        assert clause.frequency is None


@pytest.mark.slow
@pytest.mark.parametrize("subject", [*w.PRONOUNS, None, FRAU])
def test_no_pronoun_is_used_twice_in_a_clause(subject: Nominal | None) -> None:
    grammar, both = Grammar(0, every=True), 0
    verb = next(verb for verb in VERBS if verb.lemma == "beschreiben")
    for _ in range(3_000):
        part = grammar.predicate(verb, subject, "present", 0.0, 0.0)
        pronouns = [p for p in (subject, *_objects(part)) if isinstance(p, w.Pronoun)]
        assert len(pronouns) == len(set(pronouns))
        both += isinstance(part.accusative, w.Pronoun) and isinstance(part.dative, w.Pronoun)
    assert both > 10


def test_no_time_comes_after_a_relative_clause(clauses: list[Clause]) -> None:
    timed = [c for c in clauses if c.time is not None and any(map(_is_qualified, c.predicates))]
    assert len(timed) > 20
    assert all(clause.front == "time" for clause in timed)


def test_no_second_predicate_comes_after_a_relative_clause(clauses: list[Clause]) -> None:
    double = [clause for clause in clauses if len(clause.predicates) == 2]
    assert len(double) > 100
    assert not any(_is_qualified(clause.predicates[0]) for clause in double)


def test_nobody_does_with_company_what_is_done_with_somebody(predicates: list[Predicate]) -> None:
    accompanied = [part for part in predicates if _company(part) is not None]
    assert len(accompanied) > 50
    for part in accompanied:
        assert part.oblique is None or part.oblique.german != "mit"
        assert part.verb.valency not in ("both", "put", "at")
        assert part.verb.lemma not in ("sehen", "suchen", "lieben", "kaufen", "vergessen")


def test_questions_leave_one_answer_open(sentences: list[Sentence]) -> None:
    asked = {"warum": 0, "wann": 0, "wo": 0}
    for sentence in sentences:
        if sentence.asked is None:
            continue
        asked[sentence.asked.german] += 1
        part = sentence.mains[0].clause.predicates[0]
        if sentence.asked.german == "wo":
            assert part.verb.valency not in ("to", "at", "put")
            assert part.adjunct is None or _company(part) is not None
        if sentence.asked.german != "warum":
            assert part.content is None
            assert part.verb is not COPULA
    assert min(asked.values()) > 10


def test_no_sentence_says_more_than_it_should(predicates: list[Predicate]) -> None:
    """Nobody sleeps with anybody, obeys a man, dreams of a girl or meets her in the cellar."""
    assert len(predicates) > 5_000
    for part in predicates:
        if (company := _company(part)) is not None:
            assert part.verb.lemma not in ALONE
            assert isinstance(company, NounPhrase)
            assert company.noun.kind == "A"
        elif part.adjunct is not None:
            assert part.verb.valency in ("none", "both") or "P" not in part.verb.objects
    kinds = {verb.lemma: verb for verb in VERBS}
    assert kinds["gehorchen"].subjects == "A"
    for lemma in ("lieben", "beobachten", "folgen", "umarmen", "suchen", "fotografieren"):
        assert "P" not in kinds[lemma].objects
    assert "P" not in kinds["träumen"].objects


def test_no_word_has_another_meaning_that_embarrasses() -> None:
    words = {noun.german for noun in NOUNS} | {verb.lemma for verb in VERBS}
    assert words.isdisjoint({"Ball", "Ei", "Affe", "Bett", "kämpfen", "auslachen"})
