"""Deterministic choice of the documents that are held out for validation and test."""

from __future__ import annotations

import hashlib

from real_text.packages import Documents

HELD_OUT_SHARE = 0.05  # least share of the characters for validation, and by default for test
LONG = 80  # characters; a line this long or longer does not occur twice by chance


def split_documents(documents: Documents, test: float = HELD_OUT_SHARE) -> dict[str, Documents]:
    """Choose complete documents for test and validation; the rest is for training.

    In the order of the SHA-256 of their names, documents go to test until it has its share, then
    to validation until it has its share. Documents with identical text count once.

    Raises ValueError if there are too few documents for three splits.
    """
    single = {text: name for name, text in sorted(documents.items(), reverse=True)}
    ordered = sorted(single.items(), key=lambda item: hashlib.sha256(item[1].encode()).digest())
    size = sum(map(len, single))
    least = {"test": test * size, "validation": HELD_OUT_SHARE * size}
    splits: dict[str, Documents] = {"train": {}, "validation": {}, "test": {}}
    for text, name in ordered:
        short = (s for s in least if sum(map(len, splits[s].values())) < least[s])
        splits[next(short, "train")][name] = text
    if not all(splits.values()):
        raise ValueError(f"three splits need at least one document each, got {len(single)}")
    return {split: dict(sorted(held.items())) for split, held in splits.items()}


def without_repeats(splits: dict[str, Documents]) -> tuple[dict[str, Documents], int]:
    """Remove long lines from training that validation or test has, and test's from validation.

    Returns the splits, no two of which share a line of 80 characters or more, and the number of
    lines left out. Test text is never changed.
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
