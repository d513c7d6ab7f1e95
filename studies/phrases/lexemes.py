"""The other lexemes: adjectives, adverbs, determiners, pronouns, modal verbs, conjunctions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Adjective:
    """An adjective; `stem` takes the endings, `kinds` are the noun classes that it may describe.

    A noun has only one adjective of each `topic`, such as age.
    """

    german: str
    stem: str
    english: str
    topic: str
    kinds: str


@dataclass(frozen=True, eq=False)
class Adverb:
    """A word or fixed phrase without inflection; `tenses` are the tenses it can be used with."""

    german: str
    english: str
    tenses: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Determiner:
    """A determiner; `kind` decides how it and the adjectives after it inflect.

    "definite", "strong" (endings of dieser; weak adjectives), "mixed" (endings of ein), "many"
    (endings of dieser; strong adjectives), "fixed" (no endings; strong adjectives). An English form
    is None if that number does not occur.
    """

    stem: str
    kind: str
    singular: str | None
    plural: str | None


@dataclass(frozen=True, eq=False)
class Pronoun:
    """A personal pronoun of the first or third person: nominative, accusative, dative."""

    german: tuple[str, str, str]
    subject: str
    object: str
    plural: bool


@dataclass(frozen=True, eq=False)
class Modal:
    """A modal verb: third person singular, plural, and the English auxiliary or verb phrase."""

    german: tuple[str, str]
    auxiliary: str
    english: tuple[str, str, str]
    """Third person, plural and base form of the words before the infinitive."""


@dataclass(frozen=True, eq=False)
class Conjunction:
    """A conjunction; `tenses` pairs a tense of the main clause with tenses of its own clause."""

    german: str
    english: str
    tenses: tuple[tuple[str, tuple[str, ...]], ...] = ()


ADJECTIVES = tuple(
    Adjective(german.split("/")[0], german.split("/")[-1], english, topic, kinds)
    for german, english, topic, kinds in (
        row.split()
        for row in """
alt old age PATRCMVOLG
neu new age TRCMVOL
jung young age PA
klein small size PATRCFMVOLG
groß big size PATCFMVOLG
schön beautiful beautiful ATRCVLG
müde/müd tired tired PA
hungrig hungry hungry PA
glücklich happy mood PA
traurig sad mood PAR
stark strong strong PA
mutig brave effort PA
klug clever clever PA
faul lazy effort A
freundlich friendly manners PA
höflich polite manners P
reich rich wealth P
arm poor wealth P
berühmt famous famous PRLG
ehrlich honest honest P
stolz proud proud P
geduldig patient patient P
wild wild wild A
dick fat fat A
schnell fast fast AV
schwarz black colour ATCMV
weiß white colour ATCMVO
rot red colour TCFVO
grün green colour TCFVO
blau blue colour TCVO
gelb yellow colour TCVO
braun brown colour ACM
schwer heavy weight TM
leicht light weight TM
teuer/teur expensive price TRCV
billig cheap price TRCV
kaputt broken broken TMVO
sauber clean dirt TCV
schmutzig dirty dirt TCV
warm warm heat CFL
kalt cold heat FL
süß sweet sweet F
frisch fresh fresh F
lang long length RG
kurz short length R
lustig funny mood PR
langweilig boring mood R
dunkel/dunkl dark dark L
ruhig quiet sound LG
leer empty empty LG
hoch/hoh high high G
""".strip().splitlines()
    )
)

PRESENT, PAST, COMING = (
    ("present", "modal"),
    ("perfect", "pluperfect"),
    ("future", "modal"),
)
DAILY = Adverb("jeden Tag", "every day", ("present",))
TIMES = (
    Adverb("heute", "today", ("present", "perfect", "future", "modal")),
    Adverb("jetzt", "now", PRESENT),
    DAILY,
    Adverb("gestern", "yesterday", ("perfect",)),
    Adverb("letzte Woche", "last week", ("perfect",)),
    Adverb("im Winter", "in winter", ("present", "perfect", "future")),
    Adverb("im Sommer", "in summer", ("present", "perfect", "future")),
    Adverb("morgen", "tomorrow", COMING),
    Adverb("bald", "soon", COMING),
    Adverb("nächste Woche", "next week", COMING),
    Adverb("am Abend", "in the evening", ("present", "perfect", "future", "modal")),
    Adverb("am Morgen", "in the morning", ("present", "perfect", "future", "modal")),
    Adverb("am Sonntag", "on Sunday", ("perfect", "future", "modal")),
    Adverb("am Montag", "on Monday", ("perfect", "future", "modal")),
)
FREQUENCIES = (
    Adverb("oft", "often"),
    Adverb("immer", "always"),
    Adverb("meistens", "usually"),
    Adverb("manchmal", "sometimes"),
    Adverb("selten", "rarely"),
)
MANNERS = (
    Adverb("langsam", "slowly"),
    Adverb("rasch", "quickly"),
    Adverb("fröhlich", "cheerfully"),
    Adverb("vorsichtig", "carefully"),
    # None ends in -e: it would look like an adjective of a plural without determiner.
)
ALONE = Adverb("allein", "alone")
WHY, WHEN, WHERE = Adverb("warum", "why"), Adverb("wann", "when"), Adverb("wo", "where")
QUESTIONS = (WHY, WHEN, WHERE)

THE = Determiner("d", "definite", "the", "the")
A = Determiner("ein", "mixed", "a", None)
NO = Determiner("kein", "mixed", "no", "no")
DETERMINERS = (
    (THE, 12),
    (A, 8),
    (Determiner("dies", "strong", "this", "these"), 3),
    (Determiner("jed", "strong", "every", None), 1),
    (Determiner("mein", "mixed", "my", "my"), 2),
    (Determiner("unser", "mixed", "our", "our"), 2),
    (Determiner("", "fixed", None, ""), 3),
    (Determiner("zwei", "fixed", None, "two"), 1),
    (Determiner("drei", "fixed", None, "three"), 1),
    (Determiner("viel", "many", None, "many"), 1),
    (Determiner("all", "strong", None, "all"), 1),
)

HE = Pronoun(("er", "ihn", "ihm"), "he", "him", False)
WE = Pronoun(("wir", "uns", "uns"), "we", "us", True)
# In the accusative, sie is both her and them, so the translation would be ambiguous.
SHE = Pronoun(("sie", "", "ihr"), "she", "her", False)
THEY = Pronoun(("sie", "", "ihnen"), "they", "them", True)
PRONOUNS = (HE, SHE, WE, THEY)

MODALS = (
    Modal(("kann", "können"), "can", ("", "", "")),
    Modal(("muss", "müssen"), "must", ("", "", "")),
    Modal(("soll", "sollen"), "should", ("", "", "")),
    Modal(("darf", "dürfen"), "may", ("", "", "")),
    Modal(("will", "wollen"), "", ("wants to", "want to", "want to")),
    Modal(("möchte", "möchten"), "would", ("like to", "like to", "like to")),
)

AND, BUT = Conjunction("und", "and"), Conjunction("aber", "but")
_PAST = ("perfect", ("perfect",))
_COMING = ("future", ("present",))
_MODAL = ("modal", ("present",))
_ANY = (
    ("present", ("present", "modal", "future")),
    ("perfect", ("perfect", "pluperfect")),
    ("future", ("present", "future")),
    ("modal", ("present", "future")),
)
SUBORDINATORS = (
    Conjunction("weil", "because", _ANY),
    Conjunction("obwohl", "although", _ANY),
    Conjunction("während", "while", (("present", ("present",)), _PAST, _COMING)),
    Conjunction("bevor", "before", (("present", ("present",)), _PAST, _COMING, _MODAL)),
    Conjunction("nachdem", "after", (("perfect", ("pluperfect",)),)),
    Conjunction("sobald", "as soon as", (("present", ("present",)), _PAST, _COMING, _MODAL)),
    Conjunction("wenn", "when", (("present", ("present",)), _COMING, _MODAL)),
    Conjunction("falls", "if", (("present", ("present",)), _COMING, _MODAL)),
)
THAT, IF = Conjunction("dass", "that"), Conjunction("ob", "if")

# Two-way prepositions: dative for where something is, accusative for where it goes.
ON, IN = ("auf", "on", "on"), ("in", "in", "into")
SPOTS = {
    "M": (
        ON,
        ON,
        ("unter", "under", "under"),
        ("neben", "beside", "beside"),
        ("hinter", "behind", "behind"),
    ),
    "V": (("neben", "beside", "beside"), ("hinter", "behind", "behind")),
    "O": (("vor", "in front of", "in front of"), ("neben", "beside", "beside")),
    "L": (IN, IN, IN, ("hinter", "behind", "behind"), ("vor", "in front of", "in front of")),
    "G": (ON,),
}
DIRECTIONS = (
    ("zu", "dative", "to", "LP"),
    ("in", "accusative", "into", "L"),
    ("durch", "accusative", "through", "L"),
    ("aus", "dative", "out of", "L"),
    ("über", "accusative", "across", "G"),
)
COMPANY = (("mit", "dative", "with"), ("ohne", "accusative", "without"))
