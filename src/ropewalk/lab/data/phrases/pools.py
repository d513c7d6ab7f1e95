"""What the grammar draws from: words that fit a place, each as often as it should come up.

`every` adds the words whose combination with the frame is reserved.
"""

from __future__ import annotations

from functools import cache

from ropewalk.lab.data.phrases import lexemes as w
from ropewalk.lab.data.phrases.nouns import NOUNS, Noun
from ropewalk.lab.data.phrases.reserved import RESERVED
from ropewalk.lab.data.phrases.syntax import Nominal, NounPhrase
from ropewalk.lab.data.phrases.verbs import VERBS, Verb

SINGULAR = tuple(d for d, n in w.DETERMINERS if d.singular is not None for _ in range(n))
PLURAL = tuple(d for d, n in w.DETERMINERS if d.plural is not None for _ in range(n))
DEFINITE = tuple(d for d in SINGULAR if d.plural is not None and d.kind != "fixed")
PLAIN = (*DEFINITE, *(d for d in SINGULAR if d is w.A))
VALENCIES = (
    *("acc",) * 24,
    *("both",) * 9,
    *("prep",) * 6,
    *("dat", "quality") * 5,
    *("none", "to", "at", "that") * 4,
    *("put",) * 3,
    "if",
)
SIMPLE = tuple(v for v in VALENCIES if v not in ("quality", "that", "if"))
TENSES = (  # as often as they are drawn
    ("present",) * 6 + ("perfect",) * 5 + ("modal",) * 4 + ("future",) * 3 + ("pluperfect",) * 2
)
RELATIVE_TENSES = {
    "present": ("present", "present", "perfect", "modal"),
    "modal": ("present", "present", "perfect", "modal"),
    "future": ("present",),
    "perfect": ("perfect",),
    "pluperfect": ("pluperfect",),
}
TIMES = {tense: [time for time in w.TIMES if tense in time.tenses] for tense in TENSES}
GAPS = ("subject", "subject", "subject", "accusative", "accusative", "dative", "oblique")


ALONE = frozenset(("schlafen", "einschlafen", "aufwachen", "aufstehen", "liegen"))
"""Verbs with which company would say something else."""


def may_take_place(verb: Verb) -> bool:
    """Tell whether a place may stand beside the verb: not where something is done to a person."""
    return verb.valency in ("none", "both") or (
        verb.valency in ("acc", "prep", "dat") and "P" not in verb.objects
    )


@cache
def nouns(kinds: str, frame: str, every: bool) -> tuple[Noun, ...]:
    """Give the nouns of these classes that may take the frame."""
    return tuple(
        noun
        for noun in NOUNS
        if noun.kind in kinds and (every or (noun.german, frame) not in RESERVED)
    )


@cache
def adjectives(kind: str) -> tuple[w.Adjective, ...]:
    """Give the adjectives that may describe a noun of this class."""
    return tuple(adjective for adjective in w.ADJECTIVES if kind in adjective.kinds)


@cache
def verbs(valency: str, frame: str, every: bool) -> tuple[Verb, ...]:
    """Give the verbs of this valency that may take the frame."""
    return tuple(
        verb
        for verb in VERBS
        if verb.valency == valency and (every or (verb.lemma, frame) not in RESERVED)
    )


@cache
def relative_verbs(gap: str, kind: str, frame: str, every: bool) -> tuple[Verb, ...]:
    """Give the verbs of which a noun of this kind can be the subject, the object and so on."""
    return tuple(
        verb
        for valency in dict.fromkeys(SIMPLE)
        for verb in verbs(valency, frame, every)
        if (gap == "subject" and kind in verb.subjects)
        or (gap == "accusative" and valency in ("acc", "both") and kind in verb.objects)
        or (gap == "dative" and kind in {"dat": verb.objects, "both": "P"}.get(valency, ""))
        or (gap == "oblique" and valency == "prep" and kind in verb.objects)
        or (
            gap == "adjunct"
            and valency in ("acc", "none")
            and "P" in verb.subjects
            and may_take_place(verb)
        )
    )


def marked(phrase: Nominal) -> bool:
    """Tell whether nominative and accusative differ, so that the phrase shows its own role."""
    if isinstance(phrase, NounPhrase):
        return phrase.noun.gender == "m" and not phrase.plural
    return phrase in (w.HE, w.WE)
