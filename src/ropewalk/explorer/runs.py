"""Folders of `ropewalk compare`, read for the room Attention: what is wrong with one, in words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropewalk.files import shown_path

if TYPE_CHECKING:
    from ropewalk.files import Facts


def read_run(text: str) -> tuple[Path, Facts, Facts]:
    """Return a run's folder, its results and its stored maps.

    Raises ValueError if `text` names no finished run, ImportError if the lab is not installed.
    """
    try:
        from ropewalk.lab.results import read_results, read_summary
    except ImportError as error:
        raise ImportError(
            f"opening a run needs {error.name}, which is not installed: pip install 'ropewalk[lab]'"
        ) from None
    run = _folder(text)
    if not (run / "results.json").exists():
        raise ValueError(
            f"run must be a finished ropewalk compare, got {shown_path(run)} without results.json"
        )
    with naming(run / "results.json"):
        results = read_results(run)
        _check_results(results)
    if not (run / "attention.json").exists():
        raise ValueError(_without_maps(run))
    with naming(run / "attention.json"):
        stored = read_summary(run / "attention.json", "encodings", "sentences", "rule")
        _check_stored(stored)
    return run, results, stored


def maps_of(held: Facts, place: int, file: Path) -> dict[str, Any]:
    """Return the stored maps of one sentence by site. Raises ValueError if they are not maps."""
    with naming(file):
        sites: dict[str, Any] = held["sentences"][place]
        for site in sites.values():
            _lists(site["rows"], site["columns"], site["weights"], *site["weights"])
        return sites


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Raise ValueError that names the file if its content has another form than a run's."""
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ValueError(
            f"{shown_path(file)} is not that of a run: it lacks facts that ropewalk compare "
            f"writes. Open the folder of another run"
        ) from None


def _folder(text: str) -> Path:
    if not text.strip() or "\0" in text:
        raise ValueError("run must name the folder that ropewalk compare wrote")
    run = Path(os.path.expanduser(text.strip()))
    if not os.path.isdir(run):
        raise ValueError(
            f"run must be the folder of a ropewalk compare, got {shown_path(run)}: no such folder"
        )
    return run


def _without_maps(run: Path) -> str:
    """Return why a folder has results but no maps: a run's own folder has `config.json`."""
    name = shown_path(run)
    if (run / "config.json").exists():
        return (
            f"{name} has results but no attention.json: the run was stopped before it wrote that. "
            f"Run its command again: what is trained already is not trained again"
        )
    return (
        f"{name} has results but no attention.json: published results have no models. Run the "
        f"command in its README.md, and open the folder that it writes"
    )


def _check_results(results: Facts) -> None:
    """Raise KeyError, IndexError, TypeError or AttributeError if the page's facts are missing."""
    config = results["config"]
    config.get("task")
    if type(config["seeds"][0]) is not int:
        raise TypeError("seeds must be whole numbers")
    _lists(results["encodings"])
    for row in results["encodings"]:
        _texts(row["slug"], row["name"])
        row.get("settings", {}).items()


def _check_stored(stored: Facts) -> None:
    _lists(stored["sentences"])
    _texts(stored["rule"], *(each["source"] for each in stored["sentences"]))
    for held in stored["encodings"].values():
        _lists(held["sentences"])


def _texts(*values: object) -> None:
    if not all(isinstance(each, str) for each in values):
        raise TypeError("must be texts")


def _lists(*values: object) -> None:
    if not all(isinstance(each, list) for each in values):
        raise TypeError("must be lists")
