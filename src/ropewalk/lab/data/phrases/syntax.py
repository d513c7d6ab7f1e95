"""The abstract syntax that both languages are read off from: what is said, in no word order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from ropewalk.lab.data.phrases.lexemes import (
    Adjective,
    Adverb,
    Conjunction,
    Determiner,
    Modal,
    Pronoun,
)
from ropewalk.lab.data.phrases.nouns import Noun
from ropewalk.lab.data.phrases.verbs import Verb


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
    """A preposition with the case that it takes, its translation, and its noun phrase."""

    german: str
    case: str
    english: str
    phrase: Nominal

    @property
    def is_company(self) -> bool:
        """Tell a companion from a place."""
        return self.german in ("mit", "ohne")


@dataclass(frozen=True)
class Predicate:
    """A verb with its complements and adjuncts, a slot of None being absent.

    `oblique` is a prepositional object, a direction or a place that the verb asks for; `adjunct` is
    a place or company that it does not.
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

    A gap in "oblique" or "adjunct" has its `preposition`: German, case, English.
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
    """A main clause, its conjunction after another one, the subordinate clause that follows."""

    clause: Clause
    link: Conjunction | None = None
    closing: Subordinate | None = None


@dataclass(frozen=True)
class Sentence:
    """Main clauses, perhaps opened by a subordinate one, or a question."""

    mains: tuple[Main, ...]
    opening: Subordinate | None = None
    question: bool = False
    asked: Adverb | None = None


def closes_with_relative(part: Predicate) -> bool:
    """Tell whether a complement has a relative clause, which takes in what follows in English."""
    objects = [part.accusative, part.dative]
    objects += [phrase.phrase for phrase in (part.oblique, part.adjunct) if phrase is not None]
    return any(isinstance(o, NounPhrase) and o.relative is not None for o in objects)


def is_plural(subject: Nominal) -> bool:
    """Tell whether the finite verb after this subject is plural."""
    return isinstance(subject, Coordination) or subject.plural


def written(tokens: list[str], mark: str) -> str:
    """Write the sentence: commas attached and never doubled, a capital first, a mark last."""
    text = " ".join(tokens).replace(" ,", ",").replace(",,", ",").rstrip(",")
    return text[0].upper() + text[1:] + mark


def kind_of(subject: Nominal | None) -> str:
    """Give the class of a noun or of the first of two; pronouns are persons."""
    head = subject.first if isinstance(subject, Coordination) else subject
    return head.noun.kind if isinstance(head, NounPhrase) else "P"
