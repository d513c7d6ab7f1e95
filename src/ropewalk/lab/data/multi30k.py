"""Multi30k, task 1 raw, German and English (Elliott et al. 2016), fetched by name.

Training, validation and the test set of 2016 come from the Hugging Face hub, the test set of 2017,
which that data set lacks, from the corpus's own repository, https://github.com/multi30k/dataset.
Each file is pinned by its SHA-256, which holds whatever happens to the history of either.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ropewalk.lab.data.hub import download, fetch
from ropewalk.lab.data.lines import CorpusError
from ropewalk.lab.data.textfiles import Pair, read_jsonl, read_sides

HUB_REPOSITORY = "bentrevett/multi30k"
HUB_FILES = {
    "train": (
        "train.jsonl",
        "de8a1bb324fcf14c44b17b2baee60304c9aba9e5f5889da8a955ffffebc71abb",
    ),
    "validation": (
        "val.jsonl",
        "f23e04140ebb001299365cd1d041da54c6cdd970b6eba64b7124242580f05e52",
    ),
    "test_2016_flickr": (
        "test.jsonl",
        "0b997c04e05614fdca57c7997bb42822db69b4177d6dc96d80a5a6af8a758588",
    ),
}

WEB_FOLDER = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
WEB_FILES = {
    "test_2017_flickr": {
        "de": (
            "test_2017_flickr.de.gz",
            "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
        ),
        "en": (
            "test_2017_flickr.en.gz",
            "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
        ),
    },
}
MOST_WEB_BYTES = 2**20  # of one packed side, some thirty times what there is


def read_multi30k(source: str, target: str, notes: list[str]) -> dict[str, tuple[Pair, ...]]:
    """Give the pairs of every split; `notes` takes what is left out.

    Raises:
        CorpusError: a language other than German and English, a file that cannot be fetched, or
            one whose SHA-256 is not the pinned one.
    """
    splits: dict[str, tuple[Pair, ...]] = {}
    for split, (filename, expected) in HUB_FILES.items():
        path = download(HUB_REPOSITORY, filename)
        _check_content(path, filename, HUB_REPOSITORY, expected)
        splits[split] = read_jsonl(path, split, source, target, notes)
    for split, sides in WEB_FILES.items():
        paths = {}
        for language, (filename, expected) in sides.items():
            url = f"{WEB_FOLDER}/{filename}"
            paths[language] = fetch(url, "multi30k", MOST_WEB_BYTES, expected)
            _check_content(paths[language], filename, WEB_FOLDER, expected)
        splits[split] = read_sides(paths[source], paths[target], split, notes)
    return splits


def _check_content(path: Path, filename: str, origin: str, expected: str) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != expected:
        raise CorpusError(
            f"{filename} of {origin} is not the file this version knows (SHA-256 "
            f"{found[:12]}..., expected {expected[:12]}...); delete {path} if a download broke "
            "off, or give a folder that holds the corpus"
        )
