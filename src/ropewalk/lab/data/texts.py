r"""Running text: documents to model, where they come from and how they are split.

One string names the texts: `tales` (the built-in generator), one or several text files
(`FILE,FILE`), a folder, or `hf:NAME:CONFIG@REVISION` (a data set of the Hugging Face hub). A folder
contains `train.txt`, `validation.txt`, `test.txt`, ..., or folders `train`, `validation`, `test`,
... of `.txt` files, or any `.txt` files. Files are UTF-8, plain or gzipped. A document is a file,
or the field `text` of a row. Line ends become "\n", and white space at its ends is removed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ropewalk.checks import shown
from ropewalk.lab.data.hub import documents_of, read_hub, validation_split
from ropewalk.lab.data.rng import Split
from ropewalk.lab.data.textfiles import VALIDATION_NAMES, CorpusError, hash_of, nearest, read_text

Splits = dict[str, tuple[str, ...]]

#: The number of built-in tales in each split, and about how many words each has.
TALES: dict[Split, int] = {"train": 400, "validation": 20, "test": 40}
TALE_WORDS = 1_500

HELD_OUT_SHARE = 0.05  # for validation, and again for test, if texts come without splits
WHOLE_FROM = 20  # from this number of files on, complete files are held out, not the end of each
ENDINGS = (".txt", ".txt.gz")

WAYS = (
    "use 'tales', a folder that contains train.txt and validation.txt or any .txt files, files as "
    "FILE,FILE, or hf:NAME:CONFIG@REVISION"
)


@dataclass(frozen=True)
class Texts:
    """Documents by split.

    It always has "train" and "validation". Every other split is a test split; the first of these
    gives the headline score. `notes` reports what reading left out.

    Raises:
        CorpusError: if a split is empty.
    """

    name: str
    splits: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for split, documents in self.splits.items():
            if not documents:
                raise CorpusError(f"texts {self.name!r}: their {split} split is empty")

    @property
    def test_splits(self) -> tuple[str, ...]:
        """The names of the test splits, in order."""
        return tuple(name for name in self.splits if name not in ("train", "validation"))


def load_texts(data: str) -> Texts:
    """Read the texts that `data` names, and split them unless they come in splits.

    The module docstring lists the possible values. "tales" is always the built-in generator; write
    "./tales" for a file or folder of that name.

    With fewer than 20 files, the last twentieth of each goes to test and the twentieth before it
    to validation, cut at line ends if there are any. From 20 files on, a twentieth of the files
    goes to validation and another to test, chosen by a hash of their text. A text that occurs
    twice is in one split only.

    Raises:
        CorpusError: if the name is wrong, a file is missing, empty, too short to split or not
            UTF-8, or a folder has no text files or only one of the train and validation splits.
    """
    if data == "tales":
        from ropewalk.lab.data.tales import tales  # lazy: other texts need no lexicon

        splits: Splits = {
            split: tuple(tales(count, TALE_WORDS, seed=0, split=split))
            for split, count in TALES.items()
        }
        return Texts("tales", splits)
    if data.startswith("hf:"):
        return _from_hub(data)
    path = Path(os.path.expanduser(data))
    if os.path.isdir(path):
        return _from_folder(path)
    files = [path]
    if "," in data and not os.path.exists(path):
        parts = [part.strip() for part in data.split(",")]
        if not all(parts):
            raise CorpusError(f"data must be files as FILE,FILE, got {data!r}")
        files = [Path(os.path.expanduser(part)) for part in parts]
    elif not os.path.exists(path):
        raise CorpusError(f"there are no texts {shown(data)}{nearest(path, ('tales',))}; {WAYS}")
    return Texts(",".join(file.name for file in files), _split_files(files))


def _from_hub(data: str) -> Texts:
    """Read a data set of the hub; without a validation split, hold out from its training split."""
    rows = read_hub(data)
    notes: list[str] = []
    if (validation := validation_split(rows, data)) is None:
        documents = documents_of(rows["train"], data, "train", notes)
        named = {f"{data}, document {i}": text for i, text in enumerate(documents, 1)}
        if not named:
            raise CorpusError(f"{data} has no text in its train split")
        return Texts(data, _split(named), tuple(notes))
    names = {"train": "train", "validation": validation}
    names |= {name: name for name in rows if name.startswith("test")}
    splits = {
        split: tuple(documents_of(rows[name], data, name, notes)) for split, name in names.items()
    }
    return Texts(data, splits, tuple(notes))


def _from_folder(folder: Path) -> Texts:
    parts: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if (path.name.endswith(ENDINGS) and path.is_file()) or _is_split(path):
            split = path.name.removesuffix(".gz").removesuffix(".txt")
            if split in parts:
                raise CorpusError(f"{folder} has {split} twice: {parts[split].name}, {path.name}")
            parts[split] = path
    if not parts:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        raise CorpusError(f"{folder} has no .txt or .txt.gz file; it contains {there}")
    name, files = folder.resolve().name, [path for path in parts.values() if path.is_file()]
    validation = [split for split in VALIDATION_NAMES if split in parts]
    if "train" not in parts and not validation and files:
        return Texts(name, _split_files(files))
    if "train" not in parts or len(validation) != 1:
        raise CorpusError(
            f"{folder} must have train and one of {', '.join(VALIDATION_NAMES)} (.txt, .txt.gz or "
            f"a folder of such files); it has {', '.join(path.name for path in parts.values())}"
        )
    own = {"train": "train", "validation": validation[0]}
    own |= {split: split for split in parts if split.startswith("test")}
    left_out = [path.name for split, path in parts.items() if split not in own.values()]
    notes = (f"no split by their names, left out: {', '.join(left_out)}",) if left_out else ()
    splits = {}
    for split, place in own.items():
        path = parts[place]
        splits[split] = tuple(map(_document, _texts_in(path) if path.is_dir() else [path]))
    return Texts(name, splits, notes)


def _is_split(path: Path) -> bool:
    """Return whether this is a folder of texts that is named like a split."""
    known = path.name == "train" or path.name in VALIDATION_NAMES or path.name.startswith("test")
    return known and path.is_dir() and bool(_texts_in(path))


def _texts_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(ENDINGS))


def _split_files(files: Sequence[Path]) -> Splits:
    return _split({str(path): _document(path) for path in files})


def _split(documents: Mapping[str, str]) -> Splits:
    """Hold out validation and test from documents, whose keys name them in errors."""
    if len(documents) < WHOLE_FROM:
        parts = [_cut(name, text) for name, text in documents.items()]
        train, validation, test = zip(*parts, strict=True)
        return {"train": train, "validation": validation, "test": test}
    ordered = sorted(dict.fromkeys(documents.values()), key=hash_of)
    held_out = max(1, int(len(ordered) * HELD_OUT_SHARE))
    if len(ordered) < 3:
        raise CorpusError(
            f"{len(documents)} documents have {len(ordered)} different texts: train, validation "
            "and test need at least one each"
        )
    # Opposite ends of the order, so that no text moves between them as files are added.
    return {
        "train": tuple(ordered[held_out:-held_out]),
        "validation": tuple(ordered[-held_out:]),
        "test": tuple(ordered[:held_out]),
    }


def _document(path: Path) -> str:
    text = read_text(path).replace("\r\n", "\n").strip()
    if not text:
        raise CorpusError(f"{path} is empty")
    return text


def _cut(name: str, text: str) -> tuple[str, str, str]:
    """Cut a text in three at line ends, or else at spaces: 18, 1 and 1 twentieths of it."""
    places = [round(len(text) * (1 - share * HELD_OUT_SHARE)) for share in (2, 1)]
    for end in ("\n", " "):
        first, second = (text.find(end, place) for place in places)
        parts = text[:first].strip(), text[first:second].strip(), text[second:].strip()
        if first != -1 and second != -1 and all(parts):
            return parts
    raise CorpusError(
        f"{name} is too short to hold out its last tenth: it has {len(text)} characters; give a "
        "longer text, or a folder that contains train.txt and validation.txt"
    )
