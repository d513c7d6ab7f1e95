"""`ropewalk export`."""

from __future__ import annotations

import os
from typing import Annotated

from ropewalk.cli.messages import errors, one_line, print_rows
from ropewalk.cli.options import argument, option, path_of


def export(
    model: Annotated[str, argument("MODEL", "model.safetensors, or its folder.")],
    target: Annotated[
        str | None,
        argument(
            "OUT", "New folder; it must not exist yet.  [default: ctranslate2, next to the model]"
        ),
    ] = None,
    *,
    to: Annotated[str, option("ENGINE", "The engine that will serve it: ctranslate2.")],
) -> None:
    """Write a translation model for an engine that serves it.

    OUT contains model.bin, the vocabulary, config.json, tokenizer.json and a README. It appears
    complete or not at all, and MODEL is only read. With beam 1 in float32, the engine translates as
    ropewalk does. An encoding that the engine cannot compute is refused.
    """
    with errors() as at_interruption:
        from ropewalk.lab.export.export import SERVE
        from ropewalk.lab.export.export import export as export_model

        place, new = path_of("MODEL", model), path_of("OUT", target)
        with at_interruption.after_writing(new):
            exported = export_model(place, new, to=to)
        where = one_line(os.fspath(exported.folder))
        print(f"{exported.encoding}: {exported.bytes:,} bytes\nwritten to {where}\n")
        print_rows([("To translate lines (its README.md makes tokenizer and translator):",)])
        print(f"\n{SERVE}", end="")
