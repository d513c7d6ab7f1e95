"""Parallel corpora: where sentence pairs come from and how they are split.

One string names a corpus: `phrases` (built in), `multi30k` (downloaded once, then read from the
cache), a folder with `train.de`, `train.en.gz`, ... or with `train.jsonl`, `train.tsv` or
`train.csv`, two files as `SOURCE_FILE,TARGET_FILE`, one CSV or TSV file, or
`hf:NAME:CONFIG@REVISION` (a data set of the Hugging Face hub). Text is UTF-8, one sentence per
line. Only white space at the ends of a line is removed.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ropewalk.checks import shown
from ropewalk.lab.data.hub import pairs_of, read_hub, rows_are_large, validation_split
from ropewalk.lab.data.multi30k import read_multi30k
from ropewalk.lab.data.phrases import SIZES, read_phrases
from ropewalk.lab.data.stream import PairStream, hold_out, is_large
from ropewalk.lab.data.textfiles import (
    BOTH_SIDES,
    VALIDATION_NAMES,
    CorpusError,
    Pair,
    hash_of,
    nearest,
    read_pairs,
    read_sides,
)

Splits = dict[str, tuple[Pair, ...]]
Rows = Callable[[list[str]], Iterator[Pair]]  # opens pairs; notes go to its argument

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
    """

    name: str
    source: str
    target: str
    splits: Mapping[str, tuple[Pair, ...]]
    notes: tuple[str, ...] = ()
    stream: PairStream | None = None

    @property
    def test_splits(self) -> tuple[str, ...]:
        """The names of the test splits, in order."""
        return tuple(name for name in self.splits if name not in ("train", "validation"))


def _items(pair: Pair) -> dict[str, object]:
    """Return what is counted of a pair, by name."""
    return {"source": pair[0], "target": pair[1], "pairs": pair}


class Overlap:
    """Counts the sentences of held-out splits that also occur, letter for letter, in training."""

    def __init__(self, held_out: Mapping[str, Sequence[Pair]]) -> None:
        self._held_out = held_out
        pairs = (pair for split in held_out.values() for pair in split)
        self._wanted = {item for pair in pairs for item in _items(pair).items()}
        self._seen: set[tuple[str, object]] = set()

    def add(self, training: Iterable[Pair]) -> None:
        """Take in training pairs; all need not be in memory at once."""
        items = (item for pair in training for item in _items(pair).items())
        self._seen |= self._wanted.intersection(items)

    def counts(self) -> dict[str, dict[str, int]]:
        """Return the counts "source", "target" and "pairs" (both sides of one pair) by split.

        A sentence that occurs twice in a held-out split counts twice.
        """
        return {
            name: {
                kind: sum((kind, _items(pair)[kind]) in self._seen for pair in pairs)
                for kind in ("source", "target", "pairs")
            }
            for name, pairs in self._held_out.items()
        }


def overlap(corpus: Corpus) -> dict[str, dict[str, int]]:
    """Return the counts of `Overlap` for every split of a corpus in memory, except "train"."""
    held_out = {name: pairs for name, pairs in corpus.splits.items() if name != "train"}
    counted = Overlap(held_out)
    counted.add(corpus.splits["train"])
    return counted.counts()


def _without_splits(
    name: str, rows: Rows, path: Path, source: str, target: str, *, large: bool
) -> Corpus:
    """Hold out validation and test from pairs without splits; `path` is named in errors.

    A source sentence is in one split only, wherever it is in the file. A held-out split has
    each source sentence once, with the first of its translations.
    """
    notes: list[str] = []
    if large:
        ends = hold_out(rows(notes), HELD_OUT_SHARE, HELD_OUT_MOST)
        held_out = ends["validation"] | ends["test"]
        stream = PairStream(name, lambda: (pair for pair in rows([]) if pair[0] not in held_out))
        of_ends = {split: tuple(pairs.items()) for split, pairs in ends.items()}
        return Corpus(name, source, target, of_ends, tuple(notes), stream)
    pairs = tuple(rows(notes))
    sources = sorted({pair[0] for pair in pairs}, key=hash_of)
    if len(sources) < 3:
        raise CorpusError(
            f"{path} has {len(sources)} different sentences: train, validation and test "
            "need at least one each"
        )
    size = min(HELD_OUT_MOST, max(1, int(len(sources) * HELD_OUT_SHARE)))
    # Opposite ends of the order, so that no sentence moves between them as a corpus grows.
    test, validation = set(sources[:size]), set(sources[-size:])
    splits: Splits = {
        "train": tuple(p for p in pairs if p[0] not in test and p[0] not in validation)
    }
    first = dict(reversed(pairs))
    for name, own in (("validation", validation), ("test", test)):
        splits[name] = tuple({one: first[one] for one, _ in pairs if one in own}.items())
    left_out = len(pairs) - sum(map(len, splits.values()))
    if left_out:
        notes.append(f"{left_out} further translations of held-out source sentences left out")
    return Corpus(name, source, target, splits, tuple(notes))


WAYS = (
    "use 'phrases', 'multi30k', a folder that contains train.de, train.en, val.de, val.en, ..., "
    "two files as SOURCE_FILE,TARGET_FILE, one .csv or .tsv file with two columns, or "
    "hf:NAME:CONFIG@REVISION"
)


def load_corpus(
    data: str,
    *,
    source: str = "de",
    target: str = "en",
    examples: int | None = None,
    stream: bool = False,
) -> Corpus:
    """Read the corpus that `data` names; the module docstring lists the possible values.

    `examples` is the number of training pairs that are taken of "phrases". With `stream`, the
    training pairs of a large corpus are left to `Corpus.stream`.

    `source` and `target` are language codes: the endings of a folder's files, or the fields of its
    `.jsonl` files. "phrases" always means the built-in pairs and "multi30k" the download;
    write "./multi30k" for a folder of that name.

    Raises:
        CorpusError: if the name, a file or a line is wrong.
    """
    if source == target:
        raise CorpusError(f"source and target must be two languages, got {source!r} for both")
    if data == "phrases":
        return _from_phrases(source, target, examples)
    if data == "multi30k":
        notes: list[str] = []
        splits = read_multi30k(source, target, notes)
        return Corpus("multi30k", source, target, splits, tuple(notes))
    if data.startswith("hf:"):
        return _from_hub(data, source, target, stream)
    if "\0" in data:
        raise CorpusError(f"data must name files, got {shown(data)} with a NUL character")
    path = Path(os.path.expanduser(data))
    if os.path.isdir(path):
        return _from_folder(path, source, target, stream)
    if "," in data and not os.path.exists(path):
        sides = [part.strip() for part in data.split(",")]
        if len(sides) != 2 or not all(sides):
            raise CorpusError(f"data must be two files, SOURCE_FILE,TARGET_FILE, got {data!r}")
        one, other = (Path(os.path.expanduser(side)) for side in sides)
        return _from_files(one, other, source, target, stream)
    ending = path.name.removesuffix(".gz").rpartition(".")[2]
    if os.path.isfile(path) and ending in ("csv", "tsv"):
        table = {ending: path}
        pairs = partial(read_pairs, table, "corpus", source, target)
        large = stream and is_large(table)
        return _without_splits(path.name, pairs, path, source, target, large=large)
    if os.path.isfile(path):
        raise CorpusError(f"{data} is one file, but a corpus needs both sides: {WAYS}")
    raise CorpusError(
        f"there is no corpus {shown(data, 200)}{nearest(path, ('phrases', 'multi30k'))}; {WAYS}"
    )


def _from_phrases(source: str, target: str, examples: int | None) -> Corpus:
    if {source, target} != {"de", "en"}:
        raise CorpusError(
            f"source and target must be 'de' and 'en' for phrases, got {source!r} and {target!r}"
        )
    known = SIZES["train"]
    if examples is not None and examples > known:
        raise CorpusError(
            f"examples must be at most {known}, the training pairs of phrases, got {examples}; for "
            "more, give your own pairs with --data, or write generated ones to a folder: python "
            "studies/write_phrases.py --examples N --out FOLDER, in a clone of ropewalk"
        )
    splits = {
        name: tuple(
            (english, german) if source == "en" else (german, english) for german, english in pairs
        )
        for name, pairs in read_phrases().items()
    }
    return Corpus("phrases", source, target, splits | {"train": splits["train"][:examples]})


def _from_hub(data: str, source: str, target: str, stream: bool) -> Corpus:
    """Read a data set of the hub; without a validation split, hold out from its training split."""
    rows = read_hub(data)
    validation = validation_split(rows, data)
    large = stream and rows_are_large(rows["train"])

    def pairs(name: str, notes: list[str]) -> Iterator[Pair]:
        return pairs_of(rows[name], data, name, source, target, notes)

    train = partial(pairs, "train")
    if validation is None:
        return _without_splits(data, train, Path(data), source, target, large=large)
    notes: list[str] = []
    splits: Splits = {} if large else {"train": tuple(train(notes))}
    for name in (validation, *(other for other in rows if other not in ("train", validation))):
        splits["validation" if name == validation else name] = tuple(pairs(name, notes))
    streamed = PairStream(data, lambda: train([])) if large else None
    return Corpus(data, source, target, splits, tuple(notes), streamed)


def _from_folder(folder: Path, source: str, target: str, stream: bool) -> Corpus:
    """Read NAME.SOURCE and NAME.TARGET (plain or .gz), or NAME.jsonl, for every NAME."""
    ending = re.compile(
        rf"(.+)\.({re.escape(source)}|{re.escape(target)}|{'|'.join(BOTH_SIDES)})(\.gz)?"
    )
    found: dict[str, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.iterdir()):
        match = ending.fullmatch(path.name)
        if match and path.is_file():
            found[match[1]][match[2]].append(path)
    _check_folder(folder, found, source, target)
    splits: Splits = {}
    notes: list[str] = []
    streamed: PairStream | None = None
    ranks = {"train": 0, **dict.fromkeys(VALIDATION_NAMES, 1)}
    for name in sorted(found, key=lambda n: (ranks.get(n, 3 - n.startswith("test")), n)):
        split = "validation" if name in VALIDATION_NAMES else name
        sides = {ending: paths[0] for ending, paths in found[name].items()}
        if stream and name == "train" and is_large(sides):
            files = ", ".join(map(str, sides.values()))
            streamed = PairStream(files, partial(read_pairs, sides, "train", source, target, []))
            continue
        splits[split] = tuple(read_pairs(sides, split, source, target, notes))
    return Corpus(folder.resolve().name, source, target, splits, tuple(notes), streamed)


def _check_folder(
    folder: Path, found: Mapping[str, Mapping[str, Sequence[Path]]], source: str, target: str
) -> None:
    for split, names in (("train", ("train",)), ("validation", VALIDATION_NAMES)):
        present = [name for name in names if name in found]
        if len(present) > 1:
            raise CorpusError(f"{folder} has more than one {split} split: {', '.join(present)}")
        if not present:
            there = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
            raise CorpusError(
                f"{folder} has no {split} split: expected {'|'.join(names)}.{source} and "
                f".{target} (plain or .gz), or .jsonl, .csv or .tsv; the folder contains {there}"
            )
    for name, sides in found.items():
        files = [path for paths in sides.values() for path in paths]
        both = sides.keys() & set(BOTH_SIDES)
        if len(files) > len(sides) or (both and len(files) > 1):
            listed = ", ".join(path.name for path in files)
            raise CorpusError(f"{folder}: more than one file could be the {name} split: {listed}")
        if not both and len(sides) < 2:
            missing = target if source in sides else source
            raise CorpusError(
                f"{files[0]} has no other side: expected "
                f"{files[0].name.removesuffix('.gz').rpartition('.')[0]}.{missing} "
                f"(plain or .gz) next to it"
            )


def _from_files(
    source_path: Path, target_path: Path, source: str, target: str, stream: bool
) -> Corpus:
    """Read one pair of files and hold out validation and test by a hash of the source sentence.

    The endings of the file names give the languages if they look like language codes.
    """
    source, target = _language(source_path, source), _language(target_path, target)
    paths = {source: source_path, target: target_path}
    large = stream and len(paths) == 2 and is_large(paths)
    name = f"{source_path.name},{target_path.name}"
    pairs = partial(read_sides, source_path, target_path, "corpus")
    return _without_splits(name, pairs, source_path, source, target, large=large)


def _language(path: Path, otherwise: str) -> str:
    ending = path.name.removesuffix(".gz").rpartition(".")[2]
    return ending if re.fullmatch(r"[a-z]{2,3}", ending) and ending != "txt" else otherwise
