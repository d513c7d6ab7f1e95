"""The results of a finished run, as ``compare`` and the choice of decoding settings wrote them."""

from __future__ import annotations

from pathlib import Path

from ropewalk.files import MOST_JSON_BYTES, Facts, read_checked_json
from ropewalk.lab.former_names import current_encoding, current_results
from ropewalk.lab.published import whole_results


def read_summary(path: Path, *needed: str, most_bytes: int = MOST_JSON_BYTES) -> Facts:
    """Read one of the files that a finished run has beside its cells.

    In a published folder they have no checksum: version control keeps them, and people merge them.
    """
    published = not (path.parent / "config.json").exists()
    return read_checked_json(path, *needed, most_bytes=most_bytes, unchecked=published)


def read_results(folder: Path) -> Facts:
    """Read the whole results of a run or a published folder, of an earlier version too.

    What a published folder keeps apart is put together with its ``results.json``.
    """
    return whole_results(folder, current_results(read_summary(folder / "results.json")))


def read_tuning(folder: Path) -> Facts | None:
    """Read ``tuning.json``, which a run has where its decoding settings were chosen."""
    path = folder / "tuning.json"
    if not path.exists():
        return None
    held = read_summary(path, "cells")
    return held | {"cells": {current_encoding(cell): bleu for cell, bleu in held["cells"].items()}}
