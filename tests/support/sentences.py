"""Sentences to encode and to score."""

import random

# With umlauts, quotation marks, an apostrophe, brackets, a hyphen and a number.
TEXT = [
    "Der Müller fährt heute nicht nach Österreich.",
    "The miller isn't going to Austria today.",
    "„Weiß sie, daß es schön ist?“, fragte er.",
    '"Does she know that it is beautiful?", he asked.',
    "Zwei Männer (beide ohne Mütze) stehen auf der Straße; einer übt.",
    "A well-known man's dog, 3 years old, can't be found!",
]
WORDS = ["the", "a", "dog", "man", "Runs", "runs", "red", "in", "field", ".", ",", "it's", "3.5"]


def text(count: int, seed: int = 0) -> list[str]:
    """Sentences of 3 to 20 words, drawn at random."""
    source = random.Random(seed)
    return [" ".join(source.choices(WORDS, k=source.randint(3, 20))) for _ in range(count)]


def spoilt(references: list[str], rate: float, seed: int) -> list[str]:
    """The references with some words replaced by others."""
    source = random.Random(seed)
    return [
        " ".join(source.choice(WORDS) if source.random() < rate else word for word in line.split())
        for line in references
    ]
