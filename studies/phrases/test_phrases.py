"""The generator of phrases: its splits, and the German and English of its sentences.

These tests would fail if the file of the package could not be made again, if training saw a
reserved combination or never saw a word, if one of the sentences could be read as indecent, or if a
case ending, a word order or an agreement were wrong (compared with sentences written by hand).
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest
import write_phrases
from hypothesis import given, settings
from hypothesis import strategies as st

import phrases
from phrases import derive
from phrases import lexemes as w
from phrases.english import english
from phrases.german import ACCUSATIVE, DATIVE, NOMINATIVE, german
from phrases.german import nominal as german_nominal
from phrases.grammar import Grammar
from phrases.nouns import NOUNS
from phrases.reserved import RESERVED, combinations
from phrases.syntax import (
    Clause,
    Content,
    Coordination,
    Main,
    Nominal,
    NounPhrase,
    Predicate,
    Prepositional,
    Relative,
    Sentence,
    Subordinate,
)
from phrases.verbs import COPULA, VERBS
from ropewalk.lab.data.corpus import load_corpus
from ropewalk.lab.data.phrases import FILE, SIZES, read_phrases

Derived = dict[str, list[tuple[tuple[str, str], Sentence]]]
SEEDS = st.integers(0, 2**32 - 1)
FURTHER = 200


@pytest.fixture(scope="module", params=[pytest.param(0, marks=pytest.mark.slow)])
def longer(request) -> Derived:
    """Pairs with their abstract sentences, further ones too; every test that reads them is slow."""
    return derive(request.param, FURTHER)


@pytest.fixture(scope="module")
def derived(longer: Derived) -> Derived:
    """The pairs of the package with their abstract sentences."""
    return longer | {"train": longer["train"][: SIZES["train"]]}


# The splits


def test_the_file_of_the_package_is_written_again(derived: Derived, monkeypatch) -> None:
    made = {split: [pair for pair, _ in items] for split, items in derived.items()}
    monkeypatch.setattr(write_phrases, "generate", lambda: made)
    assert write_phrases.packed() == FILE.read_bytes()


def test_a_folder_has_the_same_pairs_and_more(longer: Derived, tmp_path, monkeypatch) -> None:
    made = {(0, FURTHER): longer}
    monkeypatch.setattr(phrases, "derive", lambda *words: made[words])
    examples = SIZES["train"] + FURTHER
    write_phrases.write_folder(tmp_path, examples)
    splits = load_corpus(str(tmp_path)).splits
    of_package = read_phrases()
    assert splits["train"][: SIZES["train"]] == of_package["train"]
    assert {name: splits[name] for name in of_package if name != "train"} == {
        name: pairs for name, pairs in of_package.items() if name != "train"
    }
    pairs = [pair for split in splits.values() for pair in split]
    assert len(splits["train"]) == examples
    for side in (0, 1):
        assert len({pair[side] for pair in pairs}) == len(pairs)


def test_only_test_has_reserved_combinations(derived: Derived) -> None:
    for name in ("train", "validation", "long"):
        assert not any(RESERVED & set(combinations(s)) for _, s in derived[name])
    held = [RESERVED & set(combinations(sentence)) for _, sentence in derived["test"]]
    assert all(held)
    assert len(set().union(*held)) > 0.5 * len(RESERVED)


def test_training_has_the_lexeme_and_the_frame_of_each_reserved_combination(
    derived: Derived,
) -> None:
    lexemes: dict[str, Counter[str]] = defaultdict(Counter)
    frames: dict[str, Counter[str]] = defaultdict(Counter)
    for _, sentence in derived["train"]:
        for lexeme, frame in combinations(sentence):
            lexemes[lexeme][frame] += 1
            frames[frame][lexeme] += 1
    for lexeme, frame in RESERVED:
        assert sum(lexemes[lexeme].values()) >= 10, lexeme
        assert len(lexemes[lexeme]) >= 2, lexeme
        assert len(frames[frame]) >= 20, frame
        assert sum(frames[frame].values()) >= 200, frame


def test_training_has_every_lexeme(derived: Derived) -> None:
    lexemes = Counter(c[0] for _, s in derived["train"] for c in combinations(s))
    assert set(lexemes) == {n.german for n in NOUNS} | {v.lemma for v in (*VERBS, COPULA)}
    assert min(lexemes.values()) >= 10


# Properties of every sentence


@settings(deadline=None)
@given(SEEDS)
def test_sentences_are_well_written(seed: int) -> None:
    grammar = Grammar(seed, every=True)
    for sentence in (grammar.sentence(), grammar.long()):
        for text in (german(sentence), english(sentence)):
            assert text[0].isupper()
            assert text[-1] == ("?" if sentence.question else ".")
            assert not re.search(r"  | [,.?]|,[^ ]|,,|,[.?]", text)
        said = english(sentence).lower()
        assert not re.search(r"\ba (?=[aeiou]|honest)", said)
        assert not re.search(r"\ban (?![aeiou]|honest)", said)


@settings(deadline=None)
@given(SEEDS)
def test_an_object_in_front_is_told_by_its_case(seed: int) -> None:
    sentence = Grammar(seed, every=True).sentence()
    for main in sentence.mains:
        if main.clause.front == "accusative":
            subject, object_ = main.clause.subject, main.clause.predicates[0].accusative
            assert subject is not None
            assert object_ is not None
            assert any(
                german_nominal(phrase, NOMINATIVE) != german_nominal(phrase, ACCUSATIVE)
                for phrase in (subject, object_)
            )


def test_the_translation_of_a_lexeme_is_its_own() -> None:
    for english_words in (
        [noun.english for noun in NOUNS],
        [adjective.english for adjective in w.ADJECTIVES],
        list({(verb.lemma, verb.english, verb.particle) for verb in VERBS}),
    ):
        assert len(set(english_words)) == len(english_words)
    assert len({noun.german for noun in NOUNS}) == len(NOUNS)
    assert len({adjective.german for adjective in w.ADJECTIVES}) == len(w.ADJECTIVES)


# Sentences written by hand

D = {d.stem: d for d, _ in w.DETERMINERS} | {"kein": w.NO, "der": w.THE}
PERSONS = {"er": w.HE, "sie": w.SHE, "wir": w.WE, "sie+": w.THEY, "-": None}


def _phrase(text: str) -> NounPhrase:
    """The noun phrase of such words as "der alt Hund" or "zwei klein Kind+" (+ for the plural)."""
    determiner, *adjectives, noun = text.split()
    return NounPhrase(
        D["" if determiner == "-" else determiner],
        next(n for n in NOUNS if n.german == noun.rstrip("+")),
        noun.endswith("+"),
        tuple(next(a for a in w.ADJECTIVES if a.german == word) for word in adjectives),
    )


def _nominal(text: str) -> Nominal | None:
    return PERSONS[text] if text in PERSONS else _phrase(text)


def _predicate(text: str, **more: Any) -> Predicate:
    """The predicate of such words as "geben | ein Hut | der Frau": verb, accusative, dative."""
    lemma, *words = text.split(" | ")
    objects: list[Any] = [_nominal(word) for word in words]
    return Predicate(next(v for v in VERBS if v.lemma == lemma), *objects, **more)


def _clause(
    subject: str | Nominal,
    *predicates: str | Predicate,
    tense: str = "present",
    modal: str | None = None,
    time: str | None = None,
    **more: Any,
) -> Clause:
    return Clause(
        _nominal(subject) if isinstance(subject, str) else subject,
        tuple(_predicate(each) if isinstance(each, str) else each for each in predicates),
        "modal" if modal else tense,
        next((m for m in w.MODALS if m.german[0] == modal), None),
        next((t for t in w.TIMES if t.german == time), None),
        **more,
    )


def _with(phrase: str, gap: str, clause: Clause, *preposition: tuple[str, str, str]) -> NounPhrase:
    return replace(_phrase(phrase), relative=Relative(gap, clause, *preposition))


def _at(german: str, case: str, english: str, phrase: str) -> Prepositional:
    return Prepositional(german, case, english, _phrase(phrase))


def _main(clause: Clause) -> Sentence:
    return Sentence((Main(clause),))


def _says(subject: str | Nominal, *predicates: str | Predicate, **how: Any) -> Sentence:
    return _main(_clause(subject, *predicates, **how))


def _because(clause: Clause) -> Subordinate:
    return Subordinate(next(c for c in w.SUBORDINATORS if c.german == "weil"), clause)


SEES = _clause("der alt Mann", "sehen | der klein Hund")
GIVES = "geben | ein schön Blume | der jung Frau"
SLEEPS = _clause("der Kind", "schlafen")
READS = _predicate("lesen | ein Buch", adjunct=_at("in", "dative", "in", "der schön Zimmer"))
WALKS = _predicate(
    "gehen",
    oblique=_at("in", "accusative", "into", "der Garten"),
    adjunct=_at("mit", "dative", "with", "der Hund"),
)
WAITS = _predicate(
    "warten",
    oblique=_at("auf", "accusative", "for", "der Kind"),
    adjunct=_at("in", "dative", "in", "der Garten"),
)
CHASED = _with("der Hund", "accusative", _clause("der Kind", "jagen", tense="perfect"))
AWAITED = _with("der Arzt", "oblique", _clause("unser Tante", "warten"), ("auf", "acc", "for"))
PUTS = _predicate("stellen | der Lampe", oblique=_at("auf", "accusative", "on", "der alt Tisch"))
HAT = replace(_phrase("der alt Hut"), possessor=_phrase("der arm Mann"))

SENTENCES = {
    "time first, inversion": (
        _says("der alt Mann", GIVES, time="heute", front="time"),
        "Heute gibt der alte Mann der jungen Frau eine schöne Blume.",
        "Today the old man gives a beautiful flower to the young woman.",
    ),
    "time in the middle": (
        _says("der Mann", GIVES, time="heute"),
        "Der Mann gibt heute der jungen Frau eine schöne Blume.",
        "The man gives a beautiful flower to the young woman today.",
    ),
    "place first": (
        _says("der Frau", READS, front="adjunct"),
        "Im schönen Zimmer liest die Frau ein Buch.",
        "In the beautiful room the woman reads a book.",
    ),
    "accusative first": (
        _main(replace(SEES, front="accusative")),
        "Den kleinen Hund sieht der alte Mann.",
        "The old man sees the small dog.",
    ),
    "dative first": (
        _says("der Frau", "helfen | - | der Kind+", front="dative"),
        "Den Kindern hilft die Frau.",
        "The woman helps the children.",
    ),
    "separable verb, joined": (
        Sentence((Main(SLEEPS, closing=_because(_clause("der Frau", "abholen | der Koffer"))),)),
        "Das Kind schläft, weil die Frau den Koffer abholt.",
        "The child sleeps because the woman picks up the suitcase.",
    ),
    "subordinate clause first": (
        Sentence((Main(SLEEPS),), _because(SEES)),
        "Weil der alte Mann den kleinen Hund sieht, schläft das Kind.",
        "Because the old man sees the small dog, the child sleeps.",
    ),
    "perfect with haben": (
        _says("der Kind+", "essen | zwei rot Apfel+", tense="perfect"),
        "Die Kinder haben zwei rote Äpfel gegessen.",
        "The children ate two red apples.",
    ),
    "perfect with sein": (
        _says("der Hund", "weglaufen", tense="perfect"),
        "Der Hund ist weggelaufen.",
        "The dog ran away.",
    ),
    "perfect, verb-final": (
        Sentence((Main(SLEEPS, closing=_because(replace(SEES, tense="perfect"))),)),
        "Das Kind schläft, weil der alte Mann den kleinen Hund gesehen hat.",
        "The child sleeps because the old man saw the small dog.",
    ),
    "pluperfect": (
        _main(replace(SEES, tense="pluperfect")),
        "Der alte Mann hatte den kleinen Hund gesehen.",
        "The old man had seen the small dog.",
    ),
    "future": (
        _says("wir", "sehen | er", tense="future", time="morgen"),
        "Wir werden ihn morgen sehen.",
        "We will see him tomorrow.",
    ),
    "modal": (
        _says("mein klug Tochter", "lesen | dies Brief", modal="kann"),
        "Meine kluge Tochter kann diesen Brief lesen.",
        "My clever daughter can read this letter.",
    ),
    "modal, two predicates": (
        _says("sie", "lesen | der Brief", "anrufen | der Arzt", modal="will"),
        "Sie will den Brief lesen und den Arzt anrufen.",
        "She wants to read the letter and phone the doctor.",
    ),
    "two predicates": (
        _says("der Arzt", "abholen | der Koffer", "anrufen | ein Freund"),
        "Der Arzt holt den Koffer ab und ruft einen Freund an.",
        "The doctor picks up the suitcase and phones a friend.",
    ),
    "frequency": (
        _says("der Arzt", "lesen | - lang Buch+", frequency=w.FREQUENCIES[0]),
        "Der Arzt liest oft lange Bücher.",
        "The doctor often reads long books.",
    ),
    "negation": (
        _main(replace(SEES, negated=True)),
        "Der alte Mann sieht den kleinen Hund nicht.",
        "The old man does not see the small dog.",
    ),
    "kein": (
        _says("der Frau+", "kaufen | kein neu Hut"),
        "Die Frauen kaufen keinen neuen Hut.",
        "The women buy no new hat.",
    ),
    "question": (
        Sentence((Main(replace(SEES, tense="perfect")),), question=True),
        "Hat der alte Mann den kleinen Hund gesehen?",
        "Did the old man see the small dog?",
    ),
    "question word": (
        Sentence((Main(SEES),), question=True, asked=w.QUESTIONS[0]),
        "Warum sieht der alte Mann den kleinen Hund?",
        "Why does the old man see the small dog?",
    ),
    "pronoun before the subject": (
        _says("der Frau", "sehen | er", front="time", time="heute"),
        "Heute sieht ihn die Frau.",
        "Today the woman sees him.",
    ),
    "coordinated subject": (
        _says(Coordination(_phrase("ein ehrlich Mann"), _phrase("ein klug Frau")), "arbeiten"),
        "Ein ehrlicher Mann und eine kluge Frau arbeiten.",
        "An honest man and a clever woman work.",
    ),
    "linked clauses": (
        Sentence((Main(SEES), Main(SLEEPS, w.BUT))),
        "Der alte Mann sieht den kleinen Hund, aber das Kind schläft.",
        "The old man sees the small dog, but the child sleeps.",
    ),
    "object clause": (
        _says("der Frau", _predicate("sagen", content=Content(w.THAT, SEES))),
        "Die Frau sagt, dass der alte Mann den kleinen Hund sieht.",
        "The woman says that the old man sees the small dog.",
    ),
    "relative subject": (
        _says(_with("der Frau", "subject", _clause("-", "anrufen | der Arzt")), "schlafen"),
        "Die Frau, die den Arzt anruft, schläft.",
        "The woman who phones the doctor sleeps.",
    ),
    "relative object": (
        _says("sie+", _predicate("sehen", accusative=CHASED), tense="perfect"),
        "Sie haben den Hund, den das Kind gejagt hat, gesehen.",
        "They saw the dog that the child chased.",
    ),
    "relative dative": (
        _says(_with("der Kind+", "dative", _clause("der Frau", "geben | ein Rucksack")), "lachen"),
        "Die Kinder, denen die Frau einen Rucksack gibt, lachen.",
        "The children to whom the woman gives a backpack laugh.",
    ),
    "relative with preposition": (
        _says(AWAITED, "lachen"),
        "Der Arzt, auf den unsere Tante wartet, lacht.",
        "The doctor for whom our aunt waits laughs.",
    ),
    "possessor": (
        _says("er", _predicate("nehmen", accusative=HAT)),
        "Er nimmt den alten Hut des armen Mannes.",
        "He takes the poor man's old hat.",
    ),
    "weak nouns": (
        _says("jed Junge", "danken | - | dies Student"),
        "Jeder Junge dankt diesem Studenten.",
        "Every boy thanks this student.",
    ),
    "whither": (
        _says("er", PUTS),
        "Er stellt die Lampe auf den alten Tisch.",
        "He puts the lamp on the old table.",
    ),
    "two pronouns, accusative first": (
        _says("der Frau", "beschreiben | er | sie"),
        "Die Frau beschreibt ihn ihr.",
        "The woman describes him to her.",
    ),
    "company goes with the verb": (
        _says("der Bauer", WALKS),
        "Der Bauer geht mit dem Hund in den Garten.",
        "The farmer goes with the dog into the garden.",
    ),
    "place after the aim": (
        _says("der Bauer", WAITS),
        "Der Bauer wartet im Garten auf das Kind.",
        "The farmer waits for the child in the garden.",
    ),
    "copula": (
        _main(
            Clause(
                _phrase("der Katze+"),
                (Predicate(COPULA, quality=(w.ADJECTIVES[0], w.ADJECTIVES[6])),),
                "perfect",
            )
        ),
        "Die Katzen waren alt und müde.",
        "The cats were old and tired.",
    ),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_sentences_by_hand(name: str) -> None:
    sentence, source, target = SENTENCES[name]
    assert (german(sentence), english(sentence)) == (source, target)


@pytest.mark.parametrize(
    ("phrase", "nominative", "accusative", "dative"),
    [
        ("der alt Hund", "der alte Hund", "den alten Hund", "dem alten Hund"),
        ("der alt Katze", "die alte Katze", "die alte Katze", "der alten Katze"),
        ("der alt Pferd", "das alte Pferd", "das alte Pferd", "dem alten Pferd"),
        ("der alt Hund+", "die alten Hunde", "die alten Hunde", "den alten Hunden"),
        ("ein alt Hund", "ein alter Hund", "einen alten Hund", "einem alten Hund"),
        ("ein alt Katze", "eine alte Katze", "eine alte Katze", "einer alten Katze"),
        ("ein alt Pferd", "ein altes Pferd", "ein altes Pferd", "einem alten Pferd"),
        ("unser alt Hund+", "unsere alten Hunde", "unsere alten Hunde", "unseren alten Hunden"),
        ("dies alt Pferd", "dieses alte Pferd", "dieses alte Pferd", "diesem alten Pferd"),
        ("- alt Hund+", "alte Hunde", "alte Hunde", "alten Hunden"),
        ("drei alt Katze+", "drei alte Katzen", "drei alte Katzen", "drei alten Katzen"),
        ("viel alt Pferd+", "viele alte Pferde", "viele alte Pferde", "vielen alten Pferden"),
        ("all alt Pferd+", "alle alten Pferde", "alle alten Pferde", "allen alten Pferden"),
        ("ein dunkel Keller", "ein dunkler Keller", "einen dunklen Keller", "einem dunklen Keller"),
        ("der hoch Berg", "der hohe Berg", "den hohen Berg", "dem hohen Berg"),
        ("ein jung Löwe", "ein junger Löwe", "einen jungen Löwen", "einem jungen Löwen"),
    ],
)
def test_endings(phrase: str, nominative: str, accusative: str, dative: str) -> None:
    cases = [" ".join(german_nominal(_phrase(phrase), case)) for case in range(3)]
    assert cases == [nominative, accusative, dative]
    assert (NOMINATIVE, ACCUSATIVE, DATIVE) == (0, 1, 2)
