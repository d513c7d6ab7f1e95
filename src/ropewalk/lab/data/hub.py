"""Data sets of the Hugging Face hub by name, sentence pairs or text: `hf:NAME[:CONFIG]@REVISION`.

The revision is a commit, so that the same name means the same text for ever. `datasets` downloads
the files once and converts them to Arrow files in its own cache, which it maps and does not read
into memory. Rows are therefore read twice, and resumed, without a second download; its streaming
mode would download them for each pass. NAME may be a folder of JSON, CSV or Parquet files, which
needs no revision.

For sentence pairs, a row has the field `translation` with a text for each language, as the WMT data
sets have, or one field for each language. For running text, a row has the field `text` and is one
document.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from ropewalk.checks import needing, shown
from ropewalk.lab.data.stream import LARGE_BYTES, LARGE_PAIRS
from ropewalk.lab.data.textfiles import (
    MOST_CHARACTERS,
    VALIDATION_NAMES,
    CorpusError,
    Pair,
    check_characters,
    checked_pairs,
    in_one_line,
)

BATCH = 1_000  # rows that are read in one call
REACH_SECONDS = 5.0  # time within which the hub must answer
FORM = "hf:NAME:CONFIG@REVISION, such as hf:wmt/wmt14:de-en@ and the 40 digits of a commit"


@dataclass(frozen=True)
class HubName:
    """What `hf:NAME[:CONFIG]@REVISION` names."""

    name: str
    config: str | None
    revision: str | None

    @property
    def is_local(self) -> bool:
        """Whether the name is a folder on this machine."""
        return os.path.isdir(os.path.expanduser(self.name))


def parse_name(data: str) -> HubName:
    """Return the parts of a name. Raises CorpusError if it has another form."""
    found = re.fullmatch(r"hf:([^:@]+)(?::([^:@]+))?(?:@(.+))?", data)
    if found is None:
        raise CorpusError(f"data must have the form {FORM}, got {shown(data, 200)}")
    name = HubName(*found.groups())
    if name.revision is not None and not re.fullmatch(r"[0-9a-f]{40}", name.revision):
        raise CorpusError(
            f"the revision of {data} must be a commit of 40 hexadecimal digits, because a branch "
            f"or tag may move, got {shown(name.revision)}"
        )
    return name


def read_hub(data: str) -> Mapping[str, Any]:
    """Return the splits of a data set by name, mapped from the disk; download them if needed.

    Raises:
        CorpusError: if `datasets` is not installed, the revision is missing, or the data set does
            not exist or cannot be downloaded.
        OSError: if the disk is full.
    """
    name = parse_name(data)
    with needing(data, CorpusError):
        import datasets
    if not name.is_local and name.revision is None:
        raise CorpusError(f"{data} has no revision; use {data}@{_newest(name.name)}")
    datasets.logging.set_verbosity_error()
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    path = os.path.expanduser(name.name) if name.is_local else name.name
    try:
        found: Mapping[str, Any] = datasets.load_dataset(path, name.config, revision=name.revision)
    except Exception as error:  # which errors the library raises depends on its version
        for cause in (error, error.__cause__):
            if isinstance(cause, OSError) and cause.errno == errno.ENOSPC:
                raise cause from None
        lines = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
        raise CorpusError(f"{data} could not be loaded: {shown(lines[0], 300)[1:-1]}") from error
    return found


def validation_split(rows: Mapping[str, Any], data: str) -> str | None:
    """Return the name of a data set's validation split, if any; there must be one for training."""
    if "train" not in rows:
        raise CorpusError(f"{data} has no train split; it has {', '.join(rows) or 'none'}")
    return next((name for name in VALIDATION_NAMES if name in rows), None)


def _newest(name: str) -> str:
    """Return the newest commit of a data set, or the word REVISION if it cannot be read."""
    try:
        from huggingface_hub import HfApi, constants

        if not getproxies():  # behind a proxy, only the client can connect
            # The client would retry for minutes if the hub cannot be reached.
            address = urlsplit(constants.ENDPOINT)
            port = address.port or (80 if address.scheme == "http" else 443)
            socket.create_connection((address.hostname or "", port), REACH_SECONDS).close()
        return HfApi().dataset_info(name, timeout=10).sha or "REVISION"
    except Exception:  # a hint only
        return "REVISION"


def rows_are_large(rows: Any) -> bool:
    """Return whether a split is too large for memory."""
    return bool(rows.num_rows > LARGE_PAIRS or rows.data.nbytes >= LARGE_BYTES)


def pairs_of(
    rows: Any, data: str, split: str, source: str, target: str, notes: list[str]
) -> Iterator[Pair]:
    """Yield the pairs of a split; append to `notes` what was left out.

    Raises CorpusError, naming the data set and the row, if a row lacks a text.
    """
    names = f"{data} [{split}, {source}]", f"{data} [{split}, {target}]"
    return checked_pairs(_rows(rows, data, split, source, target), *names, split, notes)


def _rows(rows: Any, data: str, split: str, source: str, target: str) -> Iterator[Pair]:
    number, where = 0, Path(f"{data} [{split}]")
    for batch in rows.iter(batch_size=BATCH):
        if "translation" in batch:
            columns = [
                [(row or {}).get(x) for row in batch["translation"]] for x in (source, target)
            ]
        else:
            lacking = [None] * len(next(iter(batch.values())))
            columns = [batch.get(side, lacking) for side in (source, target)]
        for pair in zip(*columns, strict=True):
            number += 1
            for side, text in zip((source, target), pair, strict=True):
                if not isinstance(text, str):
                    raise CorpusError(
                        f"{where}, row {number} has no text for {side!r}; its fields are "
                        f"{', '.join(rows.column_names)}"
                    )
                if len(text) > MOST_CHARACTERS:
                    raise CorpusError(
                        f"{where}, row {number} is longer than {MOST_CHARACTERS} characters, the "
                        f"limit for one sentence"
                    )
                check_characters(text, where, number)
            yield in_one_line(pair[0]), in_one_line(pair[1])


def documents_of(rows: Any, data: str, split: str, notes: list[str]) -> Iterator[str]:
    """Yield the field `text` of each row of a split; append to `notes` how many are blank.

    Raises CorpusError, naming the data set and the row, if a row lacks a text.
    """
    number, blank, where = 0, 0, Path(f"{data} [{split}]")
    if "text" not in rows.column_names:
        raise CorpusError(
            f"{where} has no field 'text'; its fields are {', '.join(rows.column_names)}"
        )
    for batch in rows.select_columns("text").iter(batch_size=BATCH):
        for text in batch["text"]:
            number += 1
            if not isinstance(text, str):
                raise CorpusError(f"{where}, row {number} has no text in its field 'text'")
            check_characters(text, where, number)
            document = text.replace("\r\n", "\n").strip()
            blank += not document
            if document:
                yield document
    if blank:
        notes.append(f"{split}: {blank} blank rows left out")
