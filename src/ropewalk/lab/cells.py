"""Folders of a run's cells (one encoding with one seed each), and their translations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ropewalk.files import MOST_DATA_BYTES, read_text, write_bytes
from ropewalk.lab.config import DECODING_FIELDS, Config, Settings, described, slug


@dataclass(frozen=True)
class Cell:
    """One encoding with one seed and, in a sweep, its own settings."""

    encoding: str
    seed: int
    settings: Settings = ()

    def folder(self, run: Path) -> Path:
        """Return the folder of this cell in a run folder."""
        trained = tuple(each for each in self.settings if each[0] not in DECODING_FIELDS)
        return run / "cells" / slug(self.encoding) / slug(described(trained)) / f"seed-{self.seed}"

    def __str__(self) -> str:
        own = [described(self.settings)] if self.settings else []
        return ", ".join([self.encoding, *own, f"seed {self.seed}"])


def read_hypotheses(folder: Path, split: str) -> list[str]:
    """Return a cell's translations of a split."""
    return read_text(folder / f"{split}.hypotheses.txt", MOST_DATA_BYTES).split("\n")[:-1]


def write_hypotheses(folder: Path, split: str, texts: list[str]) -> None:
    """Write a cell's translations of a split, one per line."""
    text = "".join(" ".join(t.splitlines()) + "\n" for t in texts)
    write_bytes(folder / f"{split}.hypotheses.txt", text.encode())


def cells_of(config: Config) -> list[Cell]:
    """Return the cells of a comparison, seed by seed, so that each seed is complete early."""
    return [Cell(encoding, seed) for seed in config.seeds for encoding in config.encodings]
