"""Parallel corpora: where sentence pairs come from and how they are split.

One string names a corpus: `phrases` (built in), `multi30k` (downloaded once, then read from the
cache), a folder with `train.de`, `train.en.gz`, ... or with `train.jsonl`, `train.tsv` or
`train.csv`, two files as `SOURCE_FILE,TARGET_FILE`, one CSV or TSV file, or
`hf:NAME:CONFIG@REVISION` (a data set of the Hugging Face hub). Text is UTF-8, one sentence per
line. Only white space at the ends of a line is removed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ropewalk.checks import shown
from ropewalk.lab.data.lines import CorpusError, nearest
from ropewalk.lab.data.multi30k import read_multi30k
from ropewalk.lab.data.phrases import SIZES, read_phrases
from ropewalk.lab.data.splits import (
    VALIDATION_NAMES,
    Corpus,
    Splits,
    overlap,
    split_pairs,
    stream_held_out,
)
from ropewalk.lab.data.stream import FileStream, is_large
from ropewalk.lab.data.textfiles import Pair, read_jsonl, read_sides, read_table, stream_pairs

__all__ = ["Corpus", "CorpusError", "Pair", "load_corpus", "overlap"]


WAYS = (
    "use 'phrases', 'multi30k', a folder that contains train.de, train.en, val.de, val.en, ..., "
    "two files as SOURCE_FILE,TARGET_FILE, one .csv or .tsv file with two columns, or "
    "hf:NAME:CONFIG@REVISION"
)
#: Endings of files that contain both sides.
BOTH_SIDES = {"jsonl": read_jsonl, "csv": read_table, "tsv": read_table}


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
        from ropewalk.lab.data.hub_pairs import load_hub  # lazy: needs an extra

        return load_hub(data, source, target, stream)
    if "\0" in data:
        raise CorpusError(f"data must name files, got {shown(data)} with a NUL character")
    path = Path(data).expanduser()
    if path.is_dir():
        return _from_folder(path, source, target, stream)
    if "," in data and not path.exists():
        sides = [part.strip() for part in data.split(",")]
        if len(sides) != 2 or not all(sides):
            raise CorpusError(f"data must be two files, SOURCE_FILE,TARGET_FILE, got {data!r}")
        one, other = (Path(side).expanduser() for side in sides)
        return _from_files(one, other, source, target, stream)
    if path.is_file() and path.name.removesuffix(".gz").endswith((".csv", ".tsv")):
        notes = []
        paths = {path.name.removesuffix(".gz").rpartition(".")[2]: path}
        if stream and is_large(paths):
            return _streamed(path.name, paths, source, target)
        pairs = read_table(path, "corpus", source, target, notes)
        return split_pairs(path.name, pairs, path, source, target, notes)
    if path.is_file():
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
    streamed: FileStream | None = None
    for name in sorted(found, key=_split_order):
        split = "validation" if name in VALIDATION_NAMES else name
        sides = {ending: paths[0] for ending, paths in found[name].items()}
        if stream and name == "train" and is_large(sides):
            streamed = FileStream.of_split(sides, source, target)
            continue
        both = next((ending for ending in BOTH_SIDES if ending in sides), None)
        if both is not None:
            splits[split] = BOTH_SIDES[both](sides[both], split, source, target, notes)
        else:
            splits[split] = read_sides(sides[source], sides[target], split, notes)
    return Corpus(folder.resolve().name, source, target, splits, tuple(notes), streamed)


def _split_order(name: str) -> tuple[int, str]:
    if name == "train" or name in VALIDATION_NAMES:
        return (0 if name == "train" else 1, name)
    return (2 if name.startswith("test") else 3, name)


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
        both = sides.keys() & BOTH_SIDES.keys()
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
    notes: list[str] = []
    name = f"{source_path.name},{target_path.name}"
    paths = {source: source_path, target: target_path}
    if stream and len(paths) == 2 and all(map(Path.is_file, paths.values())) and is_large(paths):
        return _streamed(name, paths, source, target)
    pairs = read_sides(source_path, target_path, "corpus", notes)
    return split_pairs(name, pairs, source_path, source, target, notes)


def _streamed(name: str, paths: Mapping[str, Path], source: str, target: str) -> Corpus:
    """Return a large corpus without splits."""

    def rows(notes: list[str]) -> Iterator[Pair]:
        return stream_pairs(paths, "corpus", source, target, notes)

    return stream_held_out(name, rows, source, target)


def _language(path: Path, otherwise: str) -> str:
    ending = path.name.removesuffix(".gz").rpartition(".")[2]
    return ending if re.fullmatch(r"[a-z]{2,3}", ending) and ending != "txt" else otherwise
