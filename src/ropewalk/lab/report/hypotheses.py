"""The answers of a run, published only if the project generates its data.

`hypotheses/SLUG/seed-SEED.SPLIT.txt` in the folder's archive has a line for each item: the
translations of the built-in phrases, in the file whose SHA-256 is in the scores; or the words of a
generated task's answer, `=` if it is right. No sentence of any other corpus is published.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ropewalk.files import MOST_DATA_BYTES, Facts, read_bytes, read_checked_json
from ropewalk.lab.cells import Cell
from ropewalk.lab.data.sequences import SEQUENCE_TASKS
from ropewalk.lab.published import ANSWERS

BUILT_IN = "phrases"


def free_hypotheses(run: Path, results: Facts) -> dict[str, bytes]:
    """Return the answers of a run that may be published: name in the archive -> content."""
    found = {}
    for row in results["encodings"]:
        for cell in row["cells"]:
            folder = Cell.of_row(row, cell["seed"]).folder(run)
            for split in results["splits"]:
                content = _content(folder, results, split)
                _check_scored(content, cell["scores"][split], folder / split)
                if content is not None:
                    found[f"{ANSWERS}/{row['slug']}/seed-{cell['seed']}.{split}.txt"] = content
    return found


def _check_scored(content: bytes | None, scores: Facts, place: Path) -> None:
    wanted = scores.get("hypotheses_sha256")
    if content is None or wanted is None or hashlib.sha256(content).hexdigest() == wanted:
        return
    raise ValueError(
        f"run must contain the translations that were scored, but {place} has changed since; run "
        f"the command of the run again"
    )


def _content(folder: Path, results: Facts, split: str) -> bytes | None:
    task = results.get("task", "translation")
    if task == "translation":
        path = folder / f"{split}.hypotheses.txt"
        # A user's own folder of this name has sentences of theirs.
        built_in = results["corpus"]["name"] == results["config"].get("data") == BUILT_IN
        return read_bytes(path, MOST_DATA_BYTES) if built_in and path.exists() else None
    path = folder / f"{split}.json"
    if task not in SEQUENCE_TASKS or not path.exists():
        return None
    held = read_checked_json(path, most_bytes=MOST_DATA_BYTES)
    if "predictions" not in held:
        return None
    words = SEQUENCE_TASKS[task].words
    pairs = zip(held["predictions"], held["statistics"]["exact"], strict=True)
    lines = ["=" if right else " ".join(words[i] for i in ids) for ids, right in pairs]
    return "".join(f"{line}\n" for line in lines).encode()
