"""Generates the corpus phrases: German and English sentences from one abstract syntax.

`generate` returns the four splits that `ropewalk.lab.data.phrases` describes; the package ships
them as a file. Every sentence of "test" contains at least one reserved combination of a lexeme with
a frame (`reserved.RESERVED`), and no other split has any: training has the word and the
construction, but not the two together.

nouns, verbs, lexemes           the words
syntax                          abstract sentences
reserved                        combinations that training never has
pools, constituents, grammar    draw abstract sentences
german, english                 write them in a language
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from phrases.english import english
from phrases.german import german
from phrases.grammar import Grammar
from phrases.reserved import RESERVED, combinations
from phrases.syntax import Sentence
from ropewalk.lab.data.phrases import LONGEST, SHORTEST, SIZES
from ropewalk.lab.data.textfiles import Pair

OFTEN = 20
"""Least number of times that training has each word form of the other splits."""

_NO_MARKS = str.maketrans("", "", ",.?")


def generate(seed: int = 0, examples: int = SIZES["train"]) -> dict[str, list[Pair]]:
    """Return the splits "train", "validation", "test" and "long" as (German, English) sentences.

    Equal seeds give equal sentences in every version of Python. Every number of `examples`, the
    training pairs, has the same first ones, and the same pairs in the other splits.
    """
    derived = derive(seed, max(0, examples - SIZES["train"]))
    splits = {name: [pair for pair, _ in items] for name, items in derived.items()}
    return splits | {"train": splits["train"][:examples]}


def derive(seed: int = 0, further: int = 0) -> dict[str, list[tuple[Pair, Sentence]]]:
    """Return the splits of `generate`, each pair with the abstract sentence behind it.

    further: training pairs beyond the usual number; they are drawn after the other splits.
    """
    usual = range(SHORTEST, LONGEST + 1)
    longer = range(LONGEST + 1, 2 * LONGEST + 1)
    known, every = Grammar(seed), Grammar(seed + 1, every=True)
    seen: set[str] = set()

    def novel() -> Sentence:
        while True:
            sentence = every.sentence()
            if not RESERVED.isdisjoint(combinations(sentence)):
                return sentence

    train = _draw(known.sentence, SIZES["train"], usual, seen)
    learnt = _frequent(pair[0] for pair, _ in train), _frequent(pair[1] for pair, _ in train)
    splits = {
        "train": train,
        "validation": _draw(known.sentence, SIZES["validation"], usual, seen, learnt),
        "test": _draw(novel, SIZES["test"], usual, seen, learnt),
        "long": _draw(known.long, SIZES["long"], longer, seen, learnt),
    }
    train += _draw(known.sentence, further, usual, seen)
    return splits


def forms(text: str) -> list[str]:
    """Return the word forms of a sentence, in lower case and without punctuation."""
    return text.translate(_NO_MARKS).lower().split()


def _frequent(texts: Iterable[str]) -> set[str]:
    counts = Counter(form for text in texts for form in forms(text))
    return {form for form, times in counts.items() if times >= OFTEN}


def _draw(
    draw: Callable[[], Sentence],
    size: int,
    lengths: range,
    seen: set[str],
    learnt: tuple[set[str], set[str]] | None = None,
) -> list[tuple[Pair, Sentence]]:
    """Draw `size` new sentences with `lengths` in words and only word forms in `learnt`.

    Both sides of each are added to `seen`, and none that is already there is drawn.
    """

    def is_wanted(text: str, side: int) -> bool:
        if text.count(" ") + 1 not in lengths or text in seen:
            return False
        return learnt is None or learnt[side].issuperset(forms(text))

    drawn: list[tuple[Pair, Sentence]] = []
    while len(drawn) < size:
        sentence = draw()
        source = german(sentence)
        if not is_wanted(source, 0):
            continue
        target = english(sentence)
        if is_wanted(target, 1):
            seen.update((source, target))
            drawn.append(((source, target), sentence))
    return drawn
