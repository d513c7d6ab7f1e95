"""The results of a finished run, as ``compare`` and the choice of decoding settings wrote them."""

from __future__ import annotations

from pathlib import Path

from ropewalk.files import Facts, read_json
from ropewalk.lab.former_names import current_encoding, current_results


def read_results(folder: Path) -> Facts:
    """Read ``results.json`` of a run or a published folder, of an earlier version too."""
    return current_results(read_json(folder / "results.json"))


def read_tuning(folder: Path) -> Facts | None:
    """Read ``tuning.json``, which a run has where its decoding settings were chosen."""
    path = folder / "tuning.json"
    if not path.exists():
        return None
    held: Facts = read_json(path)
    return held | {"cells": {current_encoding(cell): bleu for cell, bleu in held["cells"].items()}}
