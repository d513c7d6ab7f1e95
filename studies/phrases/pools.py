"""The pools that the grammar draws from: words that fit a slot, repeated by their weight.

`every` adds the words whose combination with the frame is reserved.
"""

from __future__ import annotations

from functools import cache

from phrases import lexemes as w
from phrases.nouns import NOUNS, Noun
from phrases.reserved import RESERVED
from phrases.syntax import Nominal, NounPhrase
from phrases.verbs import VERBS, Verb

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
TENSES = (  # repeated by their weight
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
"""Verbs whose meaning would change with company."""
TOGETHER = frozenset(
    [
        "besuchen",
        "begleiten",
        "fangen",
        "jagen",
        "retten",
        "folgen",
        "helfen",
        "warten",
        "arbeiten",
        "singen",
    ]
)
"""Verbs with a complement that also allow company."""
UNWILLED = frozenset(
    [
        "schlafen",
        "weinen",
        "lachen",
        "lächeln",
        "zittern",
        "aufwachen",
        "verschwinden",
        "eilen",
        "sehen",
        "finden",
        "lieben",
        "hören",
        "vergessen",
        "brauchen",
        "treffen",
        "verstehen",
        "verlieren",
        "bewundern",
        "vertrauen",
        "verzeihen",
        "danken",
        "warten",
        "denken",
        "träumen",
    ]
)
"""Verbs that do not go with manners, or with one of them only."""
AGES = {
    "Kind": ("alt",),
    "Mädchen": ("alt",),
    "Junge": ("alt", "jung"),
    "Großmutter": ("jung",),
}
"""Adjectives of age that are not used for a person."""
FAR = frozenset(("fahren", "reisen", "fliegen"))
"""Verbs that are not used for going into or through a building."""


def may_take_place(verb: Verb) -> bool:
    """Return whether the verb may have a place: not if its only object may be a person."""
    return verb.valency in ("none", "both") or (
        verb.valency in ("acc", "prep", "dat") and "P" not in verb.objects
    )


def may_have_company(verb: Verb) -> bool:
    """Return whether the verb may have company ("with" or "without" somebody)."""
    if verb.preposition is not None and verb.preposition[0] == "mit":
        return False
    return verb.lemma not in ALONE and (verb.valency in ("none", "to") or verb.lemma in TOGETHER)


def manners(verb: Verb) -> tuple[w.Adverb, ...]:
    """Return the manners that fit the verb; before an object, "allein" would mean "only"."""
    if verb.lemma in UNWILLED or verb.valency in ("at", "both"):
        return ()
    return (*w.MANNERS, w.ALONE) if verb.valency in ("none", "to") else w.MANNERS


def directions(verb: Verb) -> tuple[tuple[str, str, str, str], ...]:
    """Return the directions that fit the verb: preposition, case, English, classes of the goal."""
    return tuple(d for d in w.DIRECTIONS if verb.lemma not in FAR or d[0] in ("zu", "über"))


def alike(kind: str, kinds: str) -> str:
    """Return the classes in `kinds` that can be joined with `kind`, as in "the man and the dog"."""
    group = next(group for group in ("PA", "TRCF", "MVOLG") if kind in group)
    return "".join(other for other in kinds if other in group)


@cache
def nouns(kinds: str, frame: str, every: bool) -> tuple[Noun, ...]:
    """Return the nouns of these classes that may be in this frame."""
    return tuple(
        noun
        for noun in NOUNS
        if noun.kind in kinds and (every or (noun.german, frame) not in RESERVED)
    )


@cache
def adjectives(kind: str, noun: Noun | None = None) -> tuple[w.Adjective, ...]:
    """Return the adjectives that may describe a noun of this class, or this noun."""
    unsaid = () if noun is None else AGES.get(noun.german, ())
    return tuple(a for a in w.ADJECTIVES if kind in a.kinds and a.german not in unsaid)


@cache
def verbs(valency: str, frame: str, every: bool) -> tuple[Verb, ...]:
    """Return the verbs of this valency that may be in this frame."""
    return tuple(
        verb
        for verb in VERBS
        if verb.valency == valency and (every or (verb.lemma, frame) not in RESERVED)
    )


@cache
def relative_verbs(gap: str, kind: str, frame: str, every: bool) -> tuple[Verb, ...]:
    """Return the verbs for a relative clause in which a noun of class `kind` fills `gap`."""
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
    """Return whether nominative and accusative differ, so that the phrase shows its role."""
    if isinstance(phrase, NounPhrase):
        return phrase.noun.gender == "m" and not phrase.plural
    return phrase in (w.HE, w.WE)


def unwed(determiner: w.Determiner, noun: Noun) -> w.Determiner:
    """Return the determiner, or "the" for "my man" and "our woman", which mean a spouse."""
    owned = determiner.stem in ("mein", "unser") and noun.german in ("Mann", "Frau")
    return w.THE if owned else determiner
