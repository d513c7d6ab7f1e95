"""Writes the corpus phrases: the file that the package ships, or a folder with more pairs.

    python studies/write_phrases.py                        the file, in src/ropewalk/lab/data
    python studies/write_phrases.py --examples N --out DIR  files for --data DIR

The first 14,000 training pairs of a folder and its other splits are those of the package.
"""

from __future__ import annotations

import argparse
import bz2
from pathlib import Path

from phrases import generate

from ropewalk.files import write_bytes
from ropewalk.lab.data.phrases import FILE, SIZES


def main() -> None:
    """Write the file, or the folder that --out names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=SIZES["train"], help="training pairs")
    parser.add_argument("--out", type=Path, help="folder to write instead of the package's file")
    options = parser.parse_args()
    if options.out is None and options.examples != SIZES["train"]:
        parser.error(f"the package's file has {SIZES['train']} training pairs; add --out FOLDER")
    if options.out is None:
        write_bytes(FILE, packed())
    else:
        write_folder(options.out, options.examples)


def packed() -> bytes:
    """Return the content of the package's file."""
    pairs = (pair for split in generate().values() for pair in split)
    return bz2.compress("".join(f"{source}\t{target}\n" for source, target in pairs).encode())


def write_folder(folder: Path, examples: int) -> None:
    """Write train.de, train.en, validation.de, …, with `examples` training pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, pairs in generate(examples=examples).items():
        for side, language in enumerate(("de", "en")):
            lines = "".join(f"{pair[side]}\n" for pair in pairs)
            write_bytes(folder / f"{split}.{language}", lines.encode())


if __name__ == "__main__":
    main()
