"""English: agreement, auxiliaries with do-support, and word order.

The order is subject, verb, object, "to" somebody, manner, company, prepositional object, place,
time. If a time, a place or a subordinate clause opens the German sentence, it opens the English one
too; other constituents do not.
"""

from __future__ import annotations

from phrases.lexemes import Pronoun
from phrases.syntax import (
    Clause,
    Coordination,
    Nominal,
    NounPhrase,
    Predicate,
    Prepositional,
    Relative,
    Sentence,
    is_plural,
    written,
)

_AN = ("a", "e", "i", "o", "u", "honest")


def nominal(phrase: Nominal, role: str = "object") -> list[str]:
    """Return the words of a noun phrase, of two, or of a pronoun as "subject" or "object"."""
    if isinstance(phrase, Pronoun):
        return [phrase.subject if role == "subject" else phrase.object]
    if isinstance(phrase, Coordination):
        return [*nominal(phrase.first), "and", *nominal(phrase.second)]
    article = phrase.determiner.plural if phrase.plural else phrase.determiner.singular
    if phrase.possessor is not None:
        words = nominal(phrase.possessor)
        words[-1] += "'s"
    else:
        words = [article] if article else []
    for i, adjective in enumerate(phrase.adjectives):
        words += [",", adjective.english] if i else [adjective.english]
    words.append(phrase.noun.english_plural if phrase.plural else phrase.noun.english)
    if words[0] == "a" and words[1].startswith(_AN):
        words[0] = "an"
    if phrase.relative is not None:
        words += _relative(phrase.relative, phrase)
    return words


def _prepositional(part: Prepositional) -> list[str]:
    return [part.english, *nominal(part.phrase)]


def _relative(relative: Relative, head: NounPhrase) -> list[str]:
    person = head.noun.kind == "P"
    gap, part = relative.gap, relative.clause.predicates[0]
    if gap == "subject":
        return ["who" if person else "that", *clause(relative.clause, plural=head.plural)]
    rest = clause(relative.clause)
    if relative.preposition is not None:
        return [relative.preposition[2], "whom" if person else "which", *rest]
    if gap == "dative" and part.accusative is not None:
        return ["to", "whom" if person else "which", *rest]
    return ["whom" if person else "that", *rest]


def _verbs(part: Predicate, sentence: Clause, plural: bool, lone: bool) -> tuple[str, str]:
    """Return the auxiliary, or "" if there is none, and the rest of the verb.

    `lone` requires an auxiliary, which negations and questions need.
    """
    verb, tense = part.verb, sentence.tense
    if tense == "modal":
        assert sentence.modal is not None
        modal = sentence.modal
        if modal.auxiliary:
            return modal.auxiliary, f"{modal.english[2]} {verb.english}".strip()
        if lone:
            return ("do" if plural else "does"), f"{modal.english[2]} {verb.english}"
        return "", f"{modal.english[plural]} {verb.english}"
    if tense == "future":
        return "will", verb.english
    if verb.valency == "quality":
        if tense == "present":
            return ("are" if plural else "is"), ""
        return ("were" if plural else "was"), ""
    if tense == "pluperfect":
        return "had", verb.english_participle
    if tense == "perfect":
        return ("did", verb.english) if lone else ("", verb.english_past)
    if lone:
        return ("do" if plural else "does"), verb.english
    return "", verb.english if plural else verb.english_third


def _complements(part: Predicate) -> list[str]:
    words: list[str] = [part.verb.particle] if part.verb.particle else []
    for i, adjective in enumerate(part.quality):
        words += ["and", adjective.english] if i else [adjective.english]
    if part.accusative is not None:
        words += nominal(part.accusative)
    if part.dative is not None:
        words += ["to"] if part.verb.valency == "both" else []
        words += nominal(part.dative)
    if part.manner is not None:
        words.append(part.manner.english)
    return words


def clause(sentence: Clause, *, asked: bool = False, plural: bool | None = None) -> list[str]:
    """Return the words of a clause; `asked` puts the auxiliary first.

    `plural` is the number of the subject if the clause has no subject.
    """
    if sentence.subject is not None:
        plural = is_plural(sentence.subject)
    assert plural is not None
    subject = [] if sentence.subject is None else nominal(sentence.subject, "subject")
    often = [sentence.frequency.english] if sentence.frequency is not None else []
    front: list[str] = []
    words: list[str] = []
    for i, part in enumerate(sentence.predicates):
        auxiliary, verb = _verbs(part, sentence, plural, asked or sentence.negated)
        if i:
            # "wants to" and "would like to" are not repeated.
            words += ["and", part.verb.english if sentence.tense == "modal" else verb]
        else:
            helper = [auxiliary] if auxiliary else []
            negation = ["not"] if sentence.negated else []
            words += helper + subject if asked else subject + helper
            words += negation + often + ([verb] if verb else [])
        words += _complements(part)
        slots = [("oblique", part.oblique), ("adjunct", part.adjunct)]
        if part.adjunct is not None and part.adjunct.is_company:
            slots.reverse()  # otherwise it would describe the prepositional object
        for slot, phrase in slots:
            place = [] if phrase is None else _prepositional(phrase)
            opens = slot == sentence.front and i == 0
            if opens and (slot == "adjunct" or part.verb.valency == "at"):
                front = place
            else:
                words += place
    if sentence.time is not None:
        if sentence.front == "time":
            front = [sentence.time.english]
        else:
            words.append(sentence.time.english)
    content = sentence.predicates[-1].content
    if content is not None:
        words += [content.conjunction.english, *clause(content.clause)]
    return front + words


def english(sentence: Sentence) -> str:
    """Return the sentence in English."""
    words: list[str] = []
    opening = sentence.opening
    if opening is not None:
        words += [opening.conjunction.english, *clause(opening.clause), ","]
    if sentence.asked is not None:
        words.append(sentence.asked.english)
    for main in sentence.mains:
        if main.link is not None:
            words += [",", main.link.english]
        words += clause(main.clause, asked=sentence.question)
        if main.closing is not None:
            words += [main.closing.conjunction.english, *clause(main.closing.clause)]
    return written(words, "?" if sentence.question else ".")
