"""The built-in corpus: German and English sentences, generated from one abstract syntax.

`generate` returns four splits. No German or English sentence occurs twice, within a split or
across splits, so a source sentence has one translation. Every sentence of "test" contains at least
one reserved combination of a lexeme with a frame (`reserved.RESERVED`), and no other split has any:
training has the word and the construction, but not the two together. Sentences of "long" have more
words on both sides than those of the other splits. Every word form of validation, test and long is
in training at least `OFTEN` times.

nouns, verbs, lexemes           the words
syntax                          abstract sentences
reserved                        combinations that training never has
pools, constituents, grammar    draw abstract sentences
german, english                 write them in a language
many, worker                    any number of training pairs, drawn by several processes
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from ropewalk.lab.data.phrases.english import english
from ropewalk.lab.data.phrases.german import german
from ropewalk.lab.data.phrases.grammar import Grammar
from ropewalk.lab.data.phrases.reserved import RESERVED, combinations
from ropewalk.lab.data.phrases.syntax import Sentence

__all__ = ["LONGEST", "OFTEN", "SHORTEST", "SIZES", "derive", "drawn", "forms", "generate"]

Pair = tuple[str, str]

SIZES = {"train": 14_000, "validation": 500, "test": 500, "long": 200}
SHORTEST, LONGEST = 5, 16
"""Words on each side in every split except "long", which has more, up to twice as many."""

OFTEN = 20
"""Least number of times that training has each word form of the other splits."""

_NO_MARKS = str.maketrans("", "", ",.?")


def generate(seed: int = 0) -> dict[str, list[Pair]]:
    """Return the splits "train", "validation", "test" and "long" as (German, English) sentences.

    Equal seeds give equal sentences in every version of Python.
    """
    return {name: [pair for pair, _ in items] for name, items in derive(seed).items()}


def derive(seed: int = 0) -> dict[str, list[tuple[Pair, Sentence]]]:
    """Return the splits of `generate`, each pair with the abstract sentence behind it."""
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
    return {
        "train": train,
        "validation": _draw(known.sentence, SIZES["validation"], usual, seen, learnt),
        "test": _draw(novel, SIZES["test"], usual, seen, learnt),
        "long": _draw(known.long, SIZES["long"], longer, seen, learnt),
    }


def forms(text: str) -> list[str]:
    """Return the word forms of a sentence, in lower case and without punctuation."""
    return text.translate(_NO_MARKS).lower().split()


def _frequent(texts: Iterable[str]) -> set[str]:
    counts = Counter(form for text in texts for form in forms(text))
    return {form for form, count in counts.items() if count >= OFTEN}


def _draw(
    draw: Callable[[], Sentence],
    size: int,
    lengths: range,
    seen: set[str],
    learnt: tuple[set[str], set[str]] | None = None,
) -> list[tuple[Pair, Sentence]]:
    """Return the first `size` items of `drawn`."""
    return list(islice(drawn(draw, lengths, seen, learnt), size))


def drawn(
    draw: Callable[[], Sentence],
    lengths: range,
    seen: set[str],
    learnt: tuple[set[str], set[str]] | None = None,
) -> Iterator[tuple[Pair, Sentence]]:
    """Yield new sentences with `lengths` in words and only word forms in `learnt`, without end.

    Both sides of each are added to `seen`, and none that is already there is yielded.
    """

    def is_wanted(text: str, side: int) -> bool:
        if text.count(" ") + 1 not in lengths or text in seen:
            return False
        return learnt is None or learnt[side].issuperset(forms(text))

    while True:
        sentence = draw()
        source = german(sentence)
        if not is_wanted(source, 0):
            continue
        target = english(sentence)
        if is_wanted(target, 1):
            seen.update((source, target))
            yield (source, target), sentence
