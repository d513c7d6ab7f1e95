"""Which documents are trained on and which are held out, by a rule that is the same anywhere."""

from __future__ import annotations

import hashlib

from ropewalk.lab.data.real.packages import Documents

HELD_OUT_SHARE = 0.05  # of the characters, for test and for validation each, at the least
LONG = 80  # characters from which on a line is one that is not there twice by chance


def split_documents(documents: Documents) -> dict[str, Documents]:
    """Choose whole documents for test and validation; the rest is trained on.

    In the order of the SHA-256 of their names, documents go to test until it has its share, then
    to validation until that has. A document that is there twice, letter for letter, counts once.

    Raises ValueError where there are too few documents for three splits.
    """
    single = {text: name for name, text in sorted(documents.items(), reverse=True)}
    ordered = sorted(single.items(), key=lambda item: hashlib.sha256(item[1].encode()).digest())
    least = HELD_OUT_SHARE * sum(map(len, single))
    splits: dict[str, Documents] = {"train": {}, "validation": {}, "test": {}}
    for text, name in ordered:
        short = (s for s in ("test", "validation") if sum(map(len, splits[s].values())) < least)
        splits[next(short, "train")][name] = text
    if not all(splits.values()):
        raise ValueError(f"three splits need a document each at the least, got {len(single)}")
    return {split: dict(sorted(held.items())) for split, held in splits.items()}


def without_repeats(splits: dict[str, Documents]) -> tuple[dict[str, Documents], int]:
    """Leave out of training the long lines that are held out too, and of validation the test's.

    Returns the splits, of which no two share a line of 80 characters or more, and how many lines
    were left out. Held-out text stays whole but for what validation shares with test.
    """
    seen: set[str] = set()
    left_out = 0
    found: dict[str, Documents] = {}
    for split in ("test", "validation", "train"):
        kept: Documents = {}
        for name, text in splits[split].items():
            lines = text.split("\n")
            rest = [line for line in lines if line.strip() not in seen]
            left_out += len(lines) - len(rest)
            kept[name] = text if len(rest) == len(lines) else "\n".join(rest)
        found[split] = {name: text for name, text in kept.items() if text.strip()}
        seen |= {
            line.strip()
            for text in kept.values()
            for line in text.split("\n")
            if len(line.strip()) >= LONG
        }
    return {split: found[split] for split in ("train", "validation", "test")}, left_out
