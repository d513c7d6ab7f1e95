"""The grammar: draws abstract sentences, clause by clause.

An object comes before its subject only if a case ending distinguishes the two, so that the
translation is determined. In English, no time and no second predicate comes after a relative
clause, because they would seem to belong to it.
"""

from __future__ import annotations

from dataclasses import replace

from phrases import lexemes as w
from phrases import pools
from phrases.constituents import Constituents
from phrases.syntax import (
    Clause,
    Content,
    Main,
    Nominal,
    NounPhrase,
    Predicate,
    Sentence,
    Subordinate,
    closes_with_relative,
    kind_of,
)
from phrases.verbs import COPULA, Verb


class Grammar(Constituents):
    """Draws complete sentences."""

    def sentence(self) -> Sentence:
        """Draw a question, one or two main clauses, or a main and a subordinate clause."""
        self.used.clear()
        shape, tense = self.random(), self.pick(pools.TENSES)
        if shape < 0.05:
            return self._question()
        if shape < 0.55:
            return Sentence((Main(self.clause("second", tense, rich=True)),))
        if shape < 0.70:
            first = self.clause("second", tense, closed=False)
            return Sentence((Main(first), self._linked()))
        conjunction, main, sub = self._subordination()
        if shape < 0.85:
            first = self.clause("second", main, closed=False)
            closing = Subordinate(conjunction, self.clause("final", sub, timed=first.time is None))
            return Sentence((Main(first, closing=closing),))
        opening = Subordinate(conjunction, self.clause("final", sub))
        last = self.clause("opening", main, timed=opening.clause.time is None)
        return Sentence((Main(last),), opening)

    def long(self) -> Sentence:
        """Draw two main clauses, at least one of them with a subordinate clause."""
        self.used.clear()
        conjunction, tense, sub = self._subordination()
        opening, order = None, "second"
        if self.chance(0.6):
            opening, order = Subordinate(conjunction, self.clause("final", sub)), "opening"
        timed = opening is None or opening.clause.time is None
        first = Main(self.clause(order, tense, closed=False, timed=timed))
        conjunction, tense, sub = self._subordination()
        link, closing = self.pick((w.AND, w.AND, w.BUT)), None
        second = self.clause("second", tense, closed=False)
        if opening is None or self.chance(0.5):
            closing = Subordinate(conjunction, self.clause("final", sub, timed=False))
        return Sentence((first, Main(second, link, closing)), opening)

    def _linked(self) -> Main:
        link = self.pick((w.AND, w.AND, w.BUT))
        return Main(self.clause("second", self.pick(pools.TENSES)), link)

    def _subordination(self) -> tuple[w.Conjunction, str, str]:
        conjunction = self.pick(w.SUBORDINATORS)
        main, subs = self.pick(conjunction.tenses)
        return conjunction, main, self.pick(subs)

    def _question(self) -> Sentence:
        tense = self.pick(("present", "perfect", "modal", "future"))
        asked = self.pick(w.QUESTIONS) if self.chance(0.6) else None
        clause = self.clause("question", tense, rich=True, timed=asked is not w.WHEN)
        part = clause.predicates[0]
        placed = part.verb.valency in ("to", "at", "put")
        if part.adjunct is not None and not part.adjunct.is_company:
            placed = True
        # "When does he say that she is there?" may ask for the time of either verb.
        only_why = part.content is not None or part.verb is COPULA
        if (asked is w.WHERE and placed) or (asked is not None and only_why):
            asked = w.WHY
        return Sentence((Main(clause),), question=True, asked=asked)

    def clause(
        self,
        order: str,
        tense: str,
        *,
        rich: bool = False,
        closed: bool = True,
        timed: bool = True,
    ) -> Clause:
        """Draw a clause in the order "second", "opening", "question" or "final".

        `rich` makes relative clauses and two predicates more likely. A `closed` main clause may
        have a clause as its object, because no other clause follows it. `timed` allows an adverb
        of time.
        """
        outer, self.order = self.order, "final" if order == "final" else "second"
        verb = self._verb(order, tense, closed)
        clause = self._around(verb, order, tense, rich, timed)
        self.order = outer
        return clause

    def _verb(self, order: str, tense: str, closed: bool) -> Verb:
        valency = self.pick(pools.VALENCIES)
        if valency == "quality" and tense not in ("modal", "pluperfect"):
            return COPULA
        content = closed and order != "final"
        if valency == "quality" or (valency in ("that", "if") and not content):
            valency = self.pick(pools.SIMPLE)
        return self.word(pools.verbs(valency, f"{self.order} {tense}", self.every))

    def _around(self, verb: Verb, order: str, tense: str, rich: bool, timed: bool) -> Clause:
        plain = order != "question" and verb.valency not in ("that", "if", "quality")
        negated = order != "final" and tense not in ("modal", "pluperfect") and self.chance(0.1)
        relative = 0.3 if rich else 0.1
        subject = self.subject(verb, tense, definite=negated, relative=relative * 0.5)
        time = frequency = None
        if timed and verb is not COPULA and pools.TIMES[tense] and self.chance(0.25):
            time = self.pick(pools.TIMES[tense])
            if negated and time is w.DAILY:
                time = None  # ambiguous: "not every day", or "every day not"
        # "He rarely did it yesterday" makes no sense.
        if time is None and plain and not negated and tense != "modal" and self.chance(0.1):
            frequency = self.pick(w.FREQUENCIES)
        extra = 0.35 if time is None and plain and not negated else 0.0
        late = time is None or order == "second"  # otherwise the time cannot open the clause
        part = self.predicate(
            verb, subject, tense, extra, relative if late else 0.0, definite=negated
        )
        if isinstance(part.accusative, NounPhrase) and part.accusative.determiner is w.NO:
            frequency = None  # "often reads no book" makes no sense
        if verb.valency in ("that", "if"):
            part = replace(part, content=self._content(verb, tense))
        parts: tuple[Predicate, ...] = (part,)
        doubled = plain and not negated and frequency is None and verb.subjects in ("P", "PA")
        doubled = doubled and part.adjunct is None and not closes_with_relative(part)
        if doubled and self.chance(0.25 if rich else 0.06):
            parts = (part, self._second(verb, subject, tense))
        front = self._front(part, subject, time) if order == "second" else "subject"
        if len(parts) == 2 and front != "time":
            time, front = None, "subject"
        modal = self.modal(tense, kind_of(subject))
        return Clause(subject, parts, tense, modal, time, frequency, negated, front)

    def _second(self, verb: Verb, subject: Nominal, tense: str) -> Predicate:
        """Draw another predicate for the same subject, with the same auxiliary."""
        frame = f"{self.order} {tense}"
        # Verbs with an object have the auxiliary haben.
        valency = "acc" if verb.auxiliary == "haben" else "none"
        options = [
            other
            for other in pools.verbs(valency, frame, self.every)
            if other is not verb
            and other.auxiliary == verb.auxiliary
            and other.subjects.startswith(verb.subjects)
        ]
        return self.predicate(self.word(options), subject, tense, 0.0, 0.0)

    def _content(self, verb: Verb, tense: str) -> Content:
        past = tense in ("perfect", "pluperfect")
        inner = self.pick(("perfect",) if past else ("present", "perfect", "future", "modal"))
        clause = self.clause("final", inner, timed=False)
        return Content(w.THAT if verb.valency == "that" else w.IF, clause)

    def _front(self, part: Predicate, subject: Nominal, time: w.Adverb | None) -> str:
        """Draw the slot before the finite verb: the subject about half the time."""
        if time is not None and closes_with_relative(part):
            return "time"
        slots = ["time", "time"] if time is not None else []
        if part.adjunct is not None and not part.adjunct.is_company:
            slots += ["adjunct", "adjunct"]
        if part.oblique is not None and part.verb.valency in ("prep", "at"):
            whole = part.oblique.phrase
            if not isinstance(whole, NounPhrase) or whole.relative is None:
                slots.append("oblique")
        if isinstance(part.dative, NounPhrase):
            slots.append("dative")
        if isinstance(part.accusative, NounPhrase) and (
            pools.marked(subject) or pools.marked(part.accusative)
        ):
            slots.append("accusative")
        return self.pick(slots) if slots and self.chance(0.55) else "subject"
