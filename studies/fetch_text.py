"""Writes a folder of real text, pinned by SHA-256, for the tasks that read text.

    python studies/fetch_text.py debian-texts
    ropewalk compare --task causal-lm --data debian-texts

Names: debian-texts, or one of its parts (kjv, debian-handbook, python-docs); manuals; wikitext-2;
enwik8.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from real_text.folder import fetch


def main() -> None:
    """Write the folder, or verify it if it exists."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="output folder; default: NAME")
    parser.add_argument(
        "--from",
        dest="given",
        type=Path,
        metavar="PATH",
        help="local .deb or .zip file, or a folder of them, to read instead of downloading",
    )
    options = parser.parse_args()
    folder = options.out or Path(options.name)
    was_there = folder.exists()
    try:
        sizes = fetch(
            options.name, folder, options.given, lambda step: print(step, file=sys.stderr)
        )
    except ValueError as error:
        sys.exit(f"fetch_text: {error}")
    splits = ", ".join(f"{split} {size / 1e6:.2f} MB" for split, size in sizes.items())
    print(f"{folder} {'already exists and is complete' if was_there else 'written'}: {splits}")


if __name__ == "__main__":
    main()
