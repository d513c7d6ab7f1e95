"""The abstract syntax that both languages are generated from; it has no word order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from phrases.lexemes import (
    Adjective,
    Adverb,
    Conjunction,
    Determiner,
    Modal,
    Pronoun,
)
from phrases.nouns import Noun
from phrases.verbs import Verb


@dataclass(frozen=True)
class NounPhrase:
    """A noun with its determiner, adjectives, possessor and relative clause."""

    determiner: Determiner
    noun: Noun
    plural: bool = False
    adjectives: tuple[Adjective, ...] = ()
    possessor: NounPhrase | None = None
    relative: Relative | None = None


@dataclass(frozen=True)
class Coordination:
    """Two noun phrases joined by "and"; plural as a subject."""

    first: NounPhrase
    second: NounPhrase


Nominal: TypeAlias = NounPhrase | Coordination | Pronoun


@dataclass(frozen=True)
class Prepositional:
    """A preposition with its case, its translation and its noun phrase."""

    german: str
    case: str
    english: str
    phrase: Nominal

    @property
    def is_company(self) -> bool:
        """Whether this is company, not a place."""
        return self.german in ("mit", "ohne")


@dataclass(frozen=True)
class Predicate:
    """A verb with its complements and adjuncts; an absent one is None.

    `oblique` is a prepositional object, direction or place that the verb requires; `adjunct` is
    an optional place or company.
    """

    verb: Verb
    accusative: Nominal | None = None
    dative: Nominal | None = None
    oblique: Prepositional | None = None
    adjunct: Prepositional | None = None
    manner: Adverb | None = None
    quality: tuple[Adjective, ...] = ()
    content: Content | None = None


@dataclass(frozen=True)
class Clause:
    """A subject with one predicate, or two that share it.

    `tense` is "present", "perfect", "pluperfect", "future" or "modal"; `front` is the slot that
    German puts before the finite verb of a main clause: "subject", "time", "adjunct", "accusative",
    "dative" or "oblique". Only the first predicate has the time, the frequency and the negation.
    """

    subject: Nominal | None
    predicates: tuple[Predicate, ...]
    tense: str
    modal: Modal | None = None
    time: Adverb | None = None
    frequency: Adverb | None = None
    negated: bool = False
    front: str = "subject"


@dataclass(frozen=True)
class Relative:
    """A relative clause; `gap` is the slot of the clause that its head fills.

    If the gap is "oblique" or "adjunct", `preposition` is (German, case, English).
    """

    gap: str
    clause: Clause
    preposition: tuple[str, str, str] | None = None


@dataclass(frozen=True)
class Content:
    """A clause that is the object of saying, knowing or asking."""

    conjunction: Conjunction
    clause: Clause


@dataclass(frozen=True)
class Subordinate:
    """An adverbial clause with its conjunction."""

    conjunction: Conjunction
    clause: Clause


@dataclass(frozen=True)
class Main:
    """A main clause, the conjunction that links it to the one before, and a subordinate clause."""

    clause: Clause
    link: Conjunction | None = None
    closing: Subordinate | None = None


@dataclass(frozen=True)
class Sentence:
    """Main clauses, perhaps after a subordinate clause, or a question."""

    mains: tuple[Main, ...]
    opening: Subordinate | None = None
    question: bool = False
    asked: Adverb | None = None


def closes_with_relative(part: Predicate) -> bool:
    """Return whether a complement has a relative clause, which would absorb later English words."""
    objects = [part.accusative, part.dative]
    objects += [phrase.phrase for phrase in (part.oblique, part.adjunct) if phrase is not None]
    return any(isinstance(o, NounPhrase) and o.relative is not None for o in objects)


def is_plural(subject: Nominal) -> bool:
    """Return whether the finite verb of this subject is plural."""
    return isinstance(subject, Coordination) or subject.plural


def written(tokens: list[str], mark: str) -> str:
    """Return the text: commas attached and not doubled, a capital first, `mark` last."""
    text = " ".join(tokens).replace(" ,", ",").replace(",,", ",").rstrip(",")
    return text[0].upper() + text[1:] + mark


def kind_of(subject: Nominal | None) -> str:
    """Return the class of a noun, or of the first of two; pronouns are persons."""
    head = subject.first if isinstance(subject, Coordination) else subject
    return head.noun.kind if isinstance(head, NounPhrase) else "P"
