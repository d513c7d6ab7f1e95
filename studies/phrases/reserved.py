"""Combinations of lexeme and frame: those reserved from training, and those of a sentence.

The frame of a noun is its role (subject, accusative, dative or oblique, after a preposition) and
the order of its clause: "second" (which includes verb first) or "final". A possessor has no role.
The frame of a verb is the order of its clause and the tense. Every third noun of the larger classes
and every third verb has one reserved frame. Training may have the lexeme's other frames, and that
frame with other lexemes.
"""

from __future__ import annotations

from collections.abc import Iterator

from phrases.nouns import NOUNS, TABLES
from phrases.syntax import (
    Clause,
    Coordination,
    Nominal,
    NounPhrase,
    Prepositional,
    Sentence,
)
from phrases.verbs import VERBS

Combination = tuple[str, str]

NOUN_FRAMES = {
    "P": (
        "subject second",
        "accusative second",
        "subject final",
        "accusative final",
        "oblique second",
        "dative second",
    ),
    "A": ("subject second", "accusative second"),
    "L": ("oblique second", "oblique final"),
    "T": ("accusative second", "accusative final"),
    "R": ("accusative second", "accusative final"),
    "C": ("accusative final", "accusative second"),
    "F": ("accusative final", "accusative second"),
}
VERB_FRAMES = (
    "second modal",
    "final perfect",
    "second future",
    "second perfect",
    "final modal",
    "final present",
    "second present",
)


def _reserved_nouns() -> Iterator[Combination]:
    for kind in TABLES:
        frames = NOUN_FRAMES.get(kind, ())
        nouns = [noun for noun in NOUNS if noun.kind == kind] if frames else []
        for i, noun in enumerate(nouns[1::3]):
            frame = frames[i % len(frames)]
            # A weak noun's nominative singular is a separate form that only subjects have.
            if not (frame.startswith("subject") and noun.oblique != noun.german):
                yield noun.german, frame


def _reserved_verbs() -> Iterator[Combination]:
    # Reserving verbs of the small valencies would leave some frames without any verb.
    few = {verb.lemma for verb in VERBS if verb.valency in ("at", "put", "that", "if")}
    lemmas = [lemma for lemma in dict.fromkeys(verb.lemma for verb in VERBS) if lemma not in few]
    separable = {verb.lemma for verb in VERBS if verb.prefix}
    for i, lemma in enumerate(lemmas[1::3]):
        frame = VERB_FRAMES[i % len(VERB_FRAMES)]
        # A separable verb is one word in some frames and two in others, so the present is free.
        if not (lemma in separable and "present" in frame):
            yield lemma, frame


RESERVED: frozenset[Combination] = frozenset((*_reserved_nouns(), *_reserved_verbs()))


def combinations(sentence: Sentence) -> Iterator[Combination]:
    """Yield each (lexeme, frame) of the sentence; a lexeme is named by its German lemma."""
    if sentence.opening is not None:
        yield from _clause(sentence.opening.clause, "final")
    for main in sentence.mains:
        yield from _clause(main.clause, "second")
        if main.closing is not None:
            yield from _clause(main.closing.clause, "final")


def _clause(clause: Clause, order: str) -> Iterator[Combination]:
    yield from _nominal(clause.subject, f"subject {order}")
    for part in clause.predicates:
        yield part.verb.lemma, f"{order} {clause.tense}"
        yield from _nominal(part.accusative, f"accusative {order}")
        yield from _nominal(part.dative, f"dative {order}")
        for phrase in (part.oblique, part.adjunct):
            if isinstance(phrase, Prepositional):
                yield from _nominal(phrase.phrase, f"oblique {order}")
        if part.content is not None:
            yield from _clause(part.content.clause, "final")


def _nominal(phrase: Nominal | None, frame: str) -> Iterator[Combination]:
    if isinstance(phrase, Coordination):
        yield from _nominal(phrase.first, frame)
        yield from _nominal(phrase.second, frame)
    elif isinstance(phrase, NounPhrase):
        yield phrase.noun.german, frame
        if phrase.relative is not None:
            yield from _clause(phrase.relative.clause, "final")
