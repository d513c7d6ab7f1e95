"""Multi30k, task 1 raw, German and English (Elliott et al. 2016), downloaded by name.

Training, validation and the 2016 test set come from the Hugging Face hub. That data set lacks the
2017 test set, which comes from the corpus's own repository, https://github.com/multi30k/dataset.
Each file is pinned by its SHA-256, so a changed history of either repository is noticed. Files are
downloaded once, to ropewalk/multi30k in $XDG_CACHE_HOME, or in ~/.cache.
"""

from __future__ import annotations

import hashlib
import os
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from ropewalk.files import write_bytes
from ropewalk.lab.data.textfiles import CorpusError, Pair, read_pairs

HUB_FOLDER = "https://huggingface.co/datasets/bentrevett/multi30k/resolve/main"
HUB_FILES = {"train": "train.jsonl", "validation": "val.jsonl", "test_2016_flickr": "test.jsonl"}
WEB_FOLDER = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
WEB_SPLIT = "test_2017_flickr"
SHA256 = {
    "train.jsonl": "de8a1bb324fcf14c44b17b2baee60304c9aba9e5f5889da8a955ffffebc71abb",
    "val.jsonl": "f23e04140ebb001299365cd1d041da54c6cdd970b6eba64b7124242580f05e52",
    "test.jsonl": "0b997c04e05614fdca57c7997bb42822db69b4177d6dc96d80a5a6af8a758588",
    "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
}
MOST_BYTES = 2**24  # limit for one file; the largest has a third of it
REACH_SECONDS = 5.0  # time within which a server must answer


def read_multi30k(source: str, target: str, notes: list[str]) -> dict[str, tuple[Pair, ...]]:
    """Return the pairs of every split; append to `notes` what is left out.

    Raises:
        CorpusError: if a language is not German or English, a file cannot be downloaded, or its
            SHA-256 is not the pinned one.
    """
    files = {split: {"jsonl": _download(HUB_FOLDER, name)} for split, name in HUB_FILES.items()}
    files[WEB_SPLIT] = {
        side: _download(WEB_FOLDER, f"{WEB_SPLIT}.{side}.gz") for side in ("de", "en")
    }
    return {
        split: tuple(read_pairs(paths, split, source, target, notes))
        for split, paths in files.items()
    }


def _download(folder: str, filename: str) -> Path:
    """Return the path of a file; download it unless it is cached.

    Raises CorpusError if it cannot be downloaded or saved, or has another SHA-256.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path, sha256 = cache / "ropewalk" / "multi30k" / filename, SHA256[filename]
    try:
        if not path.exists():
            with urlopen(f"{folder}/{filename}", timeout=REACH_SECONDS) as answer:
                content = answer.read(MOST_BYTES + 1)
            if len(content) > MOST_BYTES:
                raise OSError(f"it has more than {MOST_BYTES:,} bytes")
            if hashlib.sha256(content).hexdigest() != sha256:
                raise OSError("the SHA-256 of the download is not the expected one")
            write_bytes(path, content)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, HTTPException) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CorpusError(
            f"{folder}/{filename} could not be downloaded to {path} ({reason}); put the file "
            "there, or use a folder that contains train.de, train.en, val.de, val.en, ..."
        ) from error
    if digest != sha256:
        raise CorpusError(
            f"{filename} of {folder} is not the file that this version expects (SHA-256 "
            f"{digest[:12]}..., expected {sha256[:12]}...); delete {path} if a download was "
            "interrupted, or use a folder that contains the corpus"
        )
    return path
