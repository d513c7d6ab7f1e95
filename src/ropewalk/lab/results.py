"""The results of a finished run, as `compare` and `tune` wrote them."""

from __future__ import annotations

from pathlib import Path

from ropewalk.files import MOST_JSON_BYTES, Facts, read_checked_json
from ropewalk.lab.former_names import current_results
from ropewalk.lab.published import whole_results


def read_summary(path: Path, *needed: str, most_bytes: int = MOST_JSON_BYTES) -> Facts:
    """Return a JSON file of a finished run.

    In a published folder these files have no checksum: they are under version control and are
    merged by people.
    """
    published = not (path.parent / "config.json").exists()
    return read_checked_json(path, *needed, most_bytes=most_bytes, unchecked=published)


def read_results(folder: Path) -> Facts:
    """Return the full results of a run or a published folder, also of an earlier version.

    The separate files of a published folder are merged into its `results.json`.
    """
    return whole_results(folder, current_results(read_summary(folder / "results.json")))
