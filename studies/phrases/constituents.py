"""The constituents of a clause, drawn at random so that they make sense together.

Ambiguous translations are avoided. No possessor is in a clause with a dative, because a feminine
genitive looks like one. If a relative pronoun is its verb's object, a case ending distinguishes it
from the subject.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from phrases import lexemes as w
from phrases import pools
from phrases.nouns import Noun
from phrases.syntax import (
    Clause,
    Coordination,
    Nominal,
    NounPhrase,
    Predicate,
    Prepositional,
    Relative,
    kind_of,
)
from phrases.verbs import COPULA, Verb

T = TypeVar("T")


class Constituents:
    """Draws sentences with `random.Random(seed).random`, which is the same in every Python.

    With `every`, reserved combinations are drawn too.
    """

    def __init__(self, seed: int, *, every: bool = False) -> None:
        self.random = random.Random(seed).random
        self.every = every
        self.used: list[Noun] = []
        self.order = "second"

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[int(self.random() * len(options))]

    def word(self, options: Sequence[T]) -> T:
        """Pick a lexeme, the first ones more often, as some words are frequent in any language."""
        draw = self.random()
        # Products and roots are rounded the same on every machine; powers are not.
        return options[int(draw * draw * math.sqrt(draw) * len(options))]

    def subject(self, verb: Verb, tense: str, *, definite: bool, relative: float) -> Nominal:
        if self.chance(0.1) and "P" in verb.subjects:
            return self.pick(w.PRONOUNS)
        free = verb.valency not in ("dat", "both")
        kinds = self.pick(verb.subjects) if verb is COPULA else verb.subjects
        first = self.phrase(
            kinds, "subject", definite=definite, relative=relative, tense=tense, possessor=free
        )
        if first.relative is None and verb is not COPULA and self.chance(0.08):
            return self._coordination(first, kinds, "subject", definite)
        return first

    def _coordination(self, first: NounPhrase, kinds: str, role: str, definite: bool) -> Nominal:
        """Return `first` and a similar phrase, or `first` alone if both have the same noun."""
        kinds = pools.alike(first.noun.kind, kinds)
        second = self.phrase(kinds, role, definite=definite, even=True)
        return first if second.noun is first.noun else Coordination(first, second)

    def modal(self, tense: str, kind: str) -> w.Modal | None:
        """Draw the modal verb of a clause in this tense; things get can, must or should only."""
        if tense != "modal":
            return None
        return self.pick(w.MODALS if kind in "PA" else w.MODALS[:3])

    def predicate(
        self,
        verb: Verb,
        subject: Nominal | None,
        tense: str,
        extra: float,
        relative: float,
        *,
        definite: bool = False,
        gap: str = "subject",
    ) -> Predicate:
        """Return the verb with its complements except `gap`, and an adjunct with chance `extra`."""
        part = Predicate(verb)
        valency = verb.valency
        if valency == "quality":
            return replace(part, quality=self._quality(subject))
        adjunct, manner = self._extras(verb, subject, extra)
        if adjunct is not None or manner is not None:
            relative = 0.0
        last = valency not in ("both", "put")
        accusative: Nominal | None = None
        dative: Nominal | None = None
        if valency in ("acc", "both", "put") and gap != "accusative":
            accusative = self._object(
                verb.objects, "accusative", subject, tense, definite, relative, last
            )
        if valency in ("dat", "both") and gap != "dative":
            kinds = verb.objects if valency == "dat" else "P"
            dative = self._object(
                kinds, "dative", subject, tense, definite, relative, True, beside=accusative
            )
        oblique = None
        if valency in ("prep", "to", "at", "put") and gap != "oblique":
            oblique = self._oblique(verb, subject, tense, relative, definite)
        if isinstance(accusative, NounPhrase) and accusative.determiner is w.NO:
            manner = None  # "carefully reads no book" makes no sense
        return Predicate(verb, accusative, dative, oblique, adjunct, manner)

    def _quality(self, subject: Nominal | None) -> tuple[w.Adjective, ...]:
        head = subject if isinstance(subject, NounPhrase) else None
        options = pools.adjectives(head.noun.kind, head.noun) if head else pools.adjectives("P")
        taken = [] if head is None else [adjective.topic for adjective in head.adjectives]
        chosen: list[w.Adjective] = []
        for option in (self.word(options), self.word(options), self.word(options)):
            if option.topic not in taken and len(chosen) < 2:
                chosen.append(option)
                taken.append(option.topic)
        if not chosen:
            chosen.append(next(option for option in options if option.topic not in taken))
        return tuple(chosen)

    def _extras(
        self, verb: Verb, subject: Nominal | None, chance: float
    ) -> tuple[Prepositional | None, w.Adverb | None]:
        """Return a place or company, or None, and a manner, or None."""
        adjunct = manner = None
        if self.chance(chance):
            if self.chance(0.3):
                if pools.may_have_company(verb):
                    word, case, english = self.pick(w.COMPANY)
                    company = self.phrase("A", "oblique", plain=True)
                    adjunct = Prepositional(word, case, english, company)
            elif pools.may_take_place(verb):
                adjunct = self._place("dative", self.pick("LLLG"))
        manners = pools.manners(verb)
        if adjunct is None and manners and self.chance(chance * 0.5):
            manner = self.pick(manners)
        return adjunct, manner

    def _place(self, case: str, kind: str, relative: str | None = None) -> Prepositional:
        german, where, whither = self.pick(w.SPOTS[kind])
        place = self.phrase(
            kind, "oblique", plain=True, relative=0.0 if relative is None else 0.2, tense=relative
        )
        return Prepositional(german, case, where if case == "dative" else whither, place)

    def _oblique(
        self, verb: Verb, subject: Nominal | None, tense: str, relative: float, definite: bool
    ) -> Prepositional:
        # Furniture is next to or behind things, not on or under other furniture.
        if verb.valency == "at":
            kind = self.pick("LLVO" if kind_of(subject) == "M" else "MMLLGVO")
            return self._place("dative", kind, tense if relative else None)
        if verb.valency == "put":
            return self._place("accusative", self.pick("VO" if "M" in verb.objects else "MMVO"))
        if verb.valency == "to":
            german, case, english, kinds = self.pick(pools.directions(verb))
            place = self.phrase(kinds, "oblique", plain=True, relative=relative * 0.5, tense=tense)
            return Prepositional(german, case, english, place)
        assert verb.preposition is not None
        german, case, english = verb.preposition
        phrase = self._object(verb.objects, "oblique", None, tense, definite, relative, True)
        return Prepositional(german, case, english, phrase)

    def _object(
        self,
        kinds: str,
        role: str,
        subject: Nominal | None,
        tense: str,
        definite: bool,
        relative: float,
        last: bool,
        beside: Nominal | None = None,
    ) -> Nominal:
        """Draw an object; `beside` is the clause's other object, if any.

        Only the `last` object of a clause may have a relative clause, which would separate them.
        No pronoun is used twice: "we help us" is wrong, and "he helps him" is ambiguous.
        """
        if role in ("accusative", "dative") and kinds[0] == "P" and self.chance(0.1):
            pronouns = (w.HE, w.WE) if role == "accusative" else w.PRONOUNS
            return self.pick([p for p in pronouns if p is not subject and p is not beside])
        # What "must see no park" negates depends on the modal verb.
        deniable = role == "accusative" and not definite and tense != "modal"
        none = deniable and self.chance(0.04)
        first = self.phrase(
            kinds,
            role,
            definite=definite,
            relative=relative * 0.6 if last else 0.0,
            tense=tense,
            possessor=role != "dative" and last,
            determiner=w.NO if none else None,
        )
        if first.relative is None and self.chance(0.08) and not none:
            return self._coordination(first, kinds, role, definite)
        return first

    def phrase(
        self,
        kinds: str,
        role: str,
        *,
        definite: bool = False,
        plain: bool = False,
        relative: float = 0.0,
        tense: str | None = None,
        possessor: bool = False,
        determiner: w.Determiner | None = None,
        even: bool = False,
    ) -> NounPhrase:
        """Draw a noun of one of the kinds with a determiner, often adjectives, perhaps more.

        With `even`, all nouns are equally likely.
        """
        noun = self._noun(kinds, role, even)
        plural = self.chance(0.1 if plain else 0.3)
        owner = None
        if possessor and noun.kind not in "PGO" and self.chance(0.12):
            owner = self._possessor()
            determiner = w.THE
        elif determiner is None:
            determiner = self.pick(
                (pools.DEFINITE if plural else pools.PLAIN)
                if plain
                else pools.DEFINITE
                if definite
                else pools.PLURAL
                if plural
                else pools.SINGULAR
            )
        determiner = pools.unwed(determiner, noun)
        clause = None
        if owner is None and tense is not None and self.chance(relative):
            clause = self._relative(noun, plural, tense)
        return NounPhrase(determiner, noun, plural, self._adjectives(noun), owner, clause)

    def _noun(self, kinds: str, role: str, even: bool = False) -> Noun:
        """Draw a noun, up to three times until the sentence does not have it yet."""
        options = pools.nouns(kinds, f"{role} {self.order}", self.every)
        draw = self.pick if even else self.word
        noun = draw(options)
        for _ in range(2):
            if noun in self.used:
                noun = draw(options)
        self.used.append(noun)
        return noun

    def _possessor(self) -> NounPhrase:
        noun = self._noun("P", "possessor")
        determiner = pools.unwed(self.pick(pools.PLAIN), noun)
        return NounPhrase(determiner, noun, adjectives=self._adjectives(noun)[:1])

    def _adjectives(self, noun: Noun) -> tuple[w.Adjective, ...]:
        options, draw = pools.adjectives(noun.kind, noun), self.random()
        if draw < 0.25:
            return ()
        first = self.word(options)
        second = self.word(options)
        return (first, second) if draw > 0.8 and second.topic != first.topic else (first,)

    def _relative(self, head: Noun, plural: bool, matrix: str) -> Relative | None:
        """Return a relative clause without another inside it, or None if no verb fits."""
        tense = self.pick(pools.RELATIVE_TENSES[matrix])
        gap = self.pick(pools.GAPS) if head.kind != "L" else self.pick(("adjunct", "accusative"))
        options = pools.relative_verbs(gap, head.kind, f"final {tense}", self.every)
        if not options:
            return None
        outer, self.order = self.order, "final"
        verb = self.word(options)
        subject: Nominal | None = None
        if gap != "subject":
            subject = self.subject(verb, tense, definite=False, relative=0.0)
            marked = pools.marked(subject) or (head.gender == "m" and not plural)
            if gap == "accusative" and not marked:
                subject = self.pick((w.HE, w.WE))
        part = self.predicate(verb, subject, tense, 0.15, 0.0, gap=gap)
        preposition = None
        if gap == "oblique" and verb.preposition is not None:
            preposition = verb.preposition
        if gap == "adjunct":
            part = replace(part, adjunct=None)
            preposition = ("in", "dative", "in")
        self.order = outer
        doer = head.kind if gap == "subject" else kind_of(subject)
        return Relative(gap, Clause(subject, (part,), tense, self.modal(tense, doer)), preposition)
