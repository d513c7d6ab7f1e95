"""Multi30k, task 1 raw, German and English (Elliott et al. 2016), downloaded by name.

Training, validation and the 2016 test set come from the Hugging Face hub. That data set lacks the
2017 test set, which comes from the corpus's own repository, https://github.com/multi30k/dataset.
Each file is pinned by its SHA-256, so a changed history of either repository is noticed.
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
MOST_WEB_BYTES = 2**20  # limit for one gzipped side, about thirty times the actual size


def read_multi30k(source: str, target: str, notes: list[str]) -> dict[str, tuple[Pair, ...]]:
    """Return the pairs of every split; append to `notes` what is left out.

    Raises:
        CorpusError: if a language is not German or English, a file cannot be downloaded, or its
            SHA-256 is not the pinned one.
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
            f"{filename} of {origin} is not the file that this version expects (SHA-256 "
            f"{found[:12]}..., expected {expected[:12]}...); delete {path} if a download was "
            "interrupted, or use a folder that contains the corpus"
        )
