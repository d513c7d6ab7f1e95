"""German: case and agreement inside noun phrases, and word order.

A clause has a left bracket (the finite verb, or the conjunction in a subordinate clause), a middle
and a right bracket (prefix, participle or infinitive, then, in a subordinate clause, the finite
verb).
"""

from __future__ import annotations

from phrases.lexemes import Determiner, Pronoun
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

NOMINATIVE, ACCUSATIVE, DATIVE, GENITIVE = range(4)
CASES = {"accusative": ACCUSATIVE, "dative": DATIVE, "acc": ACCUSATIVE, "dat": DATIVE}

# By gender ("p" is the plural of all genders), in the order of the four cases.
_DEFINITE = {
    "m": ("der", "den", "dem", "des"),
    "f": ("die", "die", "der", "der"),
    "n": ("das", "das", "dem", "des"),
    "p": ("die", "die", "den", "der"),
}
_DIESER = {
    "m": ("er", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "es"),
    "p": ("e", "e", "en", "er"),
}
_EIN = {
    "m": ("", "en", "em", "es"),
    "f": ("e", "e", "er", "er"),
    "n": ("", "", "em", "es"),
    "p": ("e", "e", "en", "er"),
}
_WEAK = {
    "m": ("e", "en", "en", "en"),
    "f": ("e", "e", "en", "en"),
    "n": ("e", "e", "en", "en"),
    "p": ("en", "en", "en", "en"),
}
_MIXED = {
    "m": ("er", "en", "en", "en"),
    "f": ("e", "e", "en", "en"),
    "n": ("es", "es", "en", "en"),
    "p": ("en", "en", "en", "en"),
}
_STRONG = {
    "m": ("er", "en", "em", "en"),
    "f": ("e", "e", "er", "er"),
    "n": ("es", "es", "em", "en"),
    "p": ("e", "e", "en", "er"),
}
_ADJECTIVE = {
    "definite": _WEAK,
    "strong": _WEAK,
    "mixed": _MIXED,
    "many": _STRONG,
    "fixed": _STRONG,
}
_RELATIVE = {**_DEFINITE, "p": ("die", "die", "denen", "deren")}
_CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
}


def determiner(word: Determiner, key: str, case: int) -> str:
    """Return the form of a determiner for a gender ("p" for the plural) and a case."""
    if word.kind == "definite":
        return _DEFINITE[key][case]
    if word.kind == "fixed":
        return word.stem
    return word.stem + (_EIN if word.kind == "mixed" else _DIESER)[key][case]


def nominal(phrase: Nominal, case: int) -> list[str]:
    """Return the words of a noun phrase, of two, or of a pronoun in the given case."""
    if isinstance(phrase, Pronoun):
        return [phrase.german[case]]
    if isinstance(phrase, Coordination):
        return [*nominal(phrase.first, case), "und", *nominal(phrase.second, case)]
    key = "p" if phrase.plural else phrase.noun.gender
    words = [determiner(phrase.determiner, key, case)] if phrase.determiner.stem else []
    ending = _ADJECTIVE[phrase.determiner.kind][key][case]
    for i, adjective in enumerate(phrase.adjectives):
        words += [",", adjective.stem + ending] if i else [adjective.stem + ending]
    words.append(_noun(phrase, case))
    if phrase.possessor is not None:
        words += nominal(phrase.possessor, GENITIVE)
    if phrase.relative is not None:
        words += [",", *_relative(phrase.relative, key), ","]
    return words


def _noun(phrase: NounPhrase, case: int) -> str:
    noun = phrase.noun
    if phrase.plural:
        return noun.dative_plural if case == DATIVE else noun.plural
    return (noun.german, noun.oblique, noun.oblique, noun.genitive)[case]


def _prepositional(part: Prepositional) -> list[str]:
    words = [part.german, *nominal(part.phrase, CASES[part.case])]
    plain = isinstance(part.phrase, NounPhrase) and part.phrase.relative is None
    short = _CONTRACTIONS.get((words[0], words[1])) if plain else None
    return [short, *words[2:]] if short else words


def _relative(relative: Relative, key: str) -> list[str]:
    plural = key == "p" if relative.gap == "subject" else None
    rest = clause(relative.clause, "final", plural)
    if relative.preposition is not None:
        word, case, _ = relative.preposition
        return [word, _RELATIVE[key][CASES[case]], *rest]
    case_ = NOMINATIVE if relative.gap == "subject" else CASES[relative.gap]
    return [_RELATIVE[key][case_], *rest]


def _verbs(part: Predicate, sentence: Clause, plural: bool) -> tuple[str, list[str]]:
    """Return the finite verb and the words of the right bracket."""
    verb, tense = part.verb, sentence.tense
    if tense == "modal":
        assert sentence.modal is not None
        return sentence.modal.german[plural], [verb.lemma]
    if tense == "future":
        return ("werden" if plural else "wird"), [verb.lemma]
    if verb.valency == "quality":
        past = "waren" if plural else "war"
        return (past if tense == "perfect" else "sind" if plural else "ist"), []
    if tense == "present":
        return (verb.german if plural else verb.third), [verb.prefix] if verb.prefix else []
    forms = {
        ("haben", "perfect"): ("hat", "haben"),
        ("haben", "pluperfect"): ("hatte", "hatten"),
        ("sein", "perfect"): ("ist", "sind"),
        ("sein", "pluperfect"): ("war", "waren"),
    }
    return forms[verb.auxiliary, tense][plural], [verb.participle]


def _slots(part: Predicate) -> dict[str, list[str]]:
    """Return the complements and adjuncts that may come before the finite verb."""
    slots = {}
    if part.dative is not None:
        slots["dative"] = nominal(part.dative, DATIVE)
    if part.accusative is not None:
        slots["accusative"] = nominal(part.accusative, ACCUSATIVE)
    if part.oblique is not None:
        slots["oblique"] = _prepositional(part.oblique)
    if part.adjunct is not None:
        slots["adjunct"] = _prepositional(part.adjunct)
    return slots


def _pronouns(part: Predicate, slots: dict[str, list[str]]) -> list[str]:
    """Remove the objects that are pronouns from the slots and return them, accusative first."""
    words = []
    for slot, phrase in (("accusative", part.accusative), ("dative", part.dative)):
        if isinstance(phrase, Pronoun):
            words += slots.pop(slot)
    return words


def _middle(
    part: Predicate, slots: dict[str, list[str]], adverbs: list[str], negated: bool
) -> list[str]:
    """Return adverbs, manner, dative, accusative, negation, place or company, oblique, quality."""
    words = adverbs[:]
    if part.manner is not None:
        words.append(part.manner.german)
    words += slots.get("dative", []) + slots.get("accusative", [])
    if negated:
        words.append("nicht")
    words += slots.get("adjunct", []) + slots.get("oblique", [])
    for i, adjective in enumerate(part.quality):
        words += ["und", adjective.german] if i else [adjective.german]
    return words


def clause(sentence: Clause, order: str, plural: bool | None = None) -> list[str]:
    """Return the words of a clause with its finite verb "first", "second" or "final".

    `plural` is the number of the subject if the clause has no subject.
    """
    if sentence.subject is not None:
        plural = is_plural(sentence.subject)
    assert plural is not None
    subject = [] if sentence.subject is None else nominal(sentence.subject, NOMINATIVE)
    adverbs = [word.german for word in (sentence.time, sentence.frequency) if word is not None]
    front: list[str] = []
    words: list[str] = []
    shared = sentence.tense != "present"  # one finite verb for both predicates
    for i, part in enumerate(sentence.predicates):
        finite, right = _verbs(part, sentence, plural)
        slots = _slots(part)
        if i:
            words += ["und"] if order == "final" or shared else ["und", finite]
            words += _pronouns(part, slots) + _middle(part, slots, [], False)
        else:
            if order == "second":
                front, subject = _front(sentence, subject, slots, adverbs)
            pronouns = _pronouns(part, slots)
            words += [] if order == "final" else [finite]
            # After the finite verb, pronouns come before a subject noun.
            late = order != "final" and not isinstance(sentence.subject, Pronoun)
            words += pronouns + subject if late else subject + pronouns
            words += _middle(part, slots, adverbs, sentence.negated)
        last = i == len(sentence.predicates) - 1
        if order != "final":
            words += right
        elif part.verb.prefix and sentence.tense == "present":
            words.append(part.verb.prefix + finite)
        else:
            words += [*right, finite] if last or not shared else right
        if part.content is not None:
            content = part.content
            words += [",", content.conjunction.german, *clause(content.clause, "final"), ","]
    return front + words


def _front(
    sentence: Clause, subject: list[str], slots: dict[str, list[str]], adverbs: list[str]
) -> tuple[list[str], list[str]]:
    """Return the words before the finite verb, and the subject that remains for the middle."""
    if sentence.front == "subject":
        return subject, []
    if sentence.front == "time":
        return [adverbs.pop(0)], subject
    return slots.pop(sentence.front), subject


def german(sentence: Sentence) -> str:
    """Return the sentence in German."""
    words: list[str] = []
    opening = sentence.opening
    if opening is not None:
        words += [opening.conjunction.german, *clause(opening.clause, "final"), ","]
    if sentence.asked is not None:
        words.append(sentence.asked.german)
    for i, main in enumerate(sentence.mains):
        if main.link is not None:
            words += [",", main.link.german]
        first = sentence.question or (i == 0 and opening is not None)
        words += clause(main.clause, "first" if first else "second")
        if main.closing is not None:
            words += [
                ",",
                main.closing.conjunction.german,
                *clause(main.closing.clause, "final"),
                ",",
            ]
    return written(words, "?" if sentence.question else ".")
