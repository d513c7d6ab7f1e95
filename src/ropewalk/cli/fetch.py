"""`ropewalk fetch`."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from ropewalk.cli.common import errors, path_of


def fetch(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="debian-texts, or one of its parts (kjv, debian-handbook, python-docs); "
            "wikitext-2; enwik8.",
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Output folder.  [default: data/NAME]"),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Local .deb or .zip file, or a folder of them, to read instead of downloading.",
        ),
    ] = None,
) -> None:
    """Download real text for --data NAME, checked by SHA-256."""
    with errors():
        from ropewalk.lab.data.real.catalogue import FETCHED
        from ropewalk.lab.data.real.folder import fetch, real_text

        folder = path_of("--out", out) or FETCHED / real_text(name).name
        was_there = folder.exists()
        sizes = fetch(
            name, folder, path_of("--from", source), lambda what: print(what, file=sys.stderr)
        )
        held = ", ".join(f"{split} {size / 1e6:.2f} MB" for split, size in sizes.items())
        print(f"{folder} {'already exists and is complete' if was_there else 'written'}: {held}")
        print(
            f"ropewalk compare --task causal-lm --data {shlex.quote(str(folder)) if out else name}"
        )
