"""``ropewalk fetch``."""

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
            help="debian-texts, or of its parts kjv, debian-handbook, python-docs; wikitext-2; "
            "enwik8."
        ),
    ],
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where it is written; data/NAME if not given."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="The .deb or .zip file to read, or a folder of them; without it they are fetched.",
        ),
    ] = None,
) -> None:
    """Fetch real text, known by its SHA-256, as a folder that --data takes by the same NAME."""
    with errors("interrupted; nothing was written"):
        from ropewalk.lab.data.real.catalogue import FETCHED
        from ropewalk.lab.data.real.folder import fetch, real_text

        folder = path_of("--out", out) or FETCHED / real_text(name).name
        was_there = folder.exists()
        sizes = fetch(
            name, folder, path_of("--from", source), lambda what: print(what, file=sys.stderr)
        )
        held = ", ".join(f"{split} {size / 1e6:.2f} MB" for split, size in sizes.items())
        print(f"{folder} {'was there and is whole' if was_there else 'is written'}: {held}")
        print(
            f"ropewalk compare --task causal-lm --data {shlex.quote(str(folder)) if out else name}"
        )
