"""The built-in corpus: German and English sentence pairs, in phrases.tsv.bz2 beside this file.

`studies/phrases` generated them from one abstract syntax, and `studies/write_phrases.py` writes the
file again. No German or English sentence occurs twice, within a split or across splits, so a source
sentence has one translation. Every sentence of "test" has a word in a construction (a noun's role,
a verb's tense, the order of the clause) that training has only apart. Sentences of "long" have more
words on both sides than those of the other splits. Every word form of validation, test and long is
in training at least 20 times.
"""

from __future__ import annotations

import bz2
from functools import cache
from itertools import islice
from pathlib import Path

from ropewalk.lab.data.textfiles import Pair

FILE = Path(__file__).with_name("phrases.tsv.bz2")

#: The pairs of each split, in the order of the file.
SIZES = {"train": 14_000, "validation": 500, "test": 500, "long": 200}
SHORTEST, LONGEST = 5, 16
"""Words on each side in every split except "long", which has more, up to twice as many."""


@cache
def read_phrases() -> dict[str, tuple[Pair, ...]]:
    """Return the splits "train", "validation", "test" and "long" as (German, English) sentences."""
    lines = bz2.decompress(FILE.read_bytes()).decode().removesuffix("\n").split("\n")
    pairs = ((german, english) for german, english in (line.split("\t") for line in lines))
    return {name: tuple(islice(pairs, size)) for name, size in SIZES.items()}
