"""A parallel corpus by split, and how pairs without splits are split."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ropewalk.lab.data.lines import CorpusError
from ropewalk.lab.data.stream import FileStream, PairStream, hold_out
from ropewalk.lab.data.textfiles import Pair

Splits = dict[str, tuple[Pair, ...]]

VALIDATION_NAMES = ("validation", "valid", "val", "dev")

# Share of a corpus without splits that is held out for validation, and again for test.
HELD_OUT_SHARE = 0.05
HELD_OUT_MOST = 1_000


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs by split.

    `splits` maps a name to (source, target) pairs. It always has "train" and "validation". Every
    other split is a test split; the first of these gives the headline score. `notes` reports what
    reading left out. If the training pairs are too many for memory, `stream` reads them and
    `splits` has no "train".

    Raises:
        CorpusError: if "train" or "validation" is missing, or a split is empty.
    """

    name: str
    source: str
    target: str
    splits: Mapping[str, tuple[Pair, ...]]
    notes: tuple[str, ...] = ()
    stream: PairStream | None = None

    def __post_init__(self) -> None:
        for required in ("train", "validation"):
            if required not in self.splits and (required != "train" or self.stream is None):
                raise CorpusError(f"corpus {self.name!r} has no {required} split")
        for split, pairs in self.splits.items():
            if not pairs:
                raise CorpusError(f"corpus {self.name!r}: its {split} split is empty")

    @property
    def test_splits(self) -> tuple[str, ...]:
        """The names of the test splits, in order."""
        return tuple(name for name in self.splits if name not in ("train", "validation"))


def overlap(corpus: Corpus) -> dict[str, dict[str, int]]:
    """Count the sentences of each held-out split that also occur, letter for letter, in training.

    Returns the counts "source", "target" and "pairs" (both sides of one training pair) for every
    split except "train". A sentence that occurs twice in a split counts twice.
    """
    training = corpus.splits["train"]
    sources = {source for source, _ in training}
    targets = {target for _, target in training}
    together = set(training)
    return {
        name: {
            "source": sum(source in sources for source, _ in pairs),
            "target": sum(target in targets for _, target in pairs),
            "pairs": sum(pair in together for pair in pairs),
        }
        for name, pairs in corpus.splits.items()
        if name != "train"
    }


def split_pairs(
    name: str, pairs: tuple[Pair, ...], path: Path, source: str, target: str, notes: list[str]
) -> Corpus:
    """Hold out validation and test from pairs without splits; `path` is named in errors.

    A source sentence is in one split only, wherever it is in the file. A held-out split has
    each source sentence once, with the first of its translations.
    """
    sources = sorted({pair[0] for pair in pairs}, key=_hash)
    held_out = min(HELD_OUT_MOST, max(1, int(len(sources) * HELD_OUT_SHARE)))
    if len(sources) < 3:
        raise CorpusError(
            f"{path} has {len(sources)} different sentences: train, validation and test "
            "need at least one each"
        )
    # Opposite ends of the order, so that no sentence moves between them as a corpus grows.
    test, validation = set(sources[:held_out]), set(sources[-held_out:])
    splits: Splits = {
        "train": tuple(p for p in pairs if p[0] not in test and p[0] not in validation),
        "validation": _first_translations(pairs, validation),
        "test": _first_translations(pairs, test),
    }
    left_out = len(pairs) - sum(map(len, splits.values()))
    if left_out:
        notes.append(f"{left_out} further translations of held-out source sentences left out")
    return Corpus(name, source, target, splits, tuple(notes))


def stream_held_out(
    name: str, rows: Callable[[list[str]], Iterator[Pair]], source: str, target: str
) -> Corpus:
    """Hold out from a stream what `split_pairs` would; `rows` appends notes to its argument."""
    notes: list[str] = []
    test, validation = hold_out(rows(notes), HELD_OUT_SHARE, HELD_OUT_MOST)
    held_out = {*test, *validation}
    stream = FileStream(name, lambda: (pair for pair in rows([]) if pair[0] not in held_out))
    splits = {"validation": tuple(validation.items()), "test": tuple(test.items())}
    return Corpus(name, source, target, splits, tuple(notes), stream)


def _hash(sentence: str) -> bytes:
    return hashlib.sha256(sentence.encode()).digest()


def _first_translations(pairs: Sequence[Pair], sources: set[str]) -> tuple[Pair, ...]:
    first: dict[str, str] = {}
    for source, target in pairs:
        if source in sources:
            first.setdefault(source, target)
    return tuple(first.items())
