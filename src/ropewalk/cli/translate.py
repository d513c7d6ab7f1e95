"""``ropewalk translate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli.common import Imports, errors
from ropewalk.cli.usage import number, whole_number

if TYPE_CHECKING:
    from ropewalk.lab.decoding.translator import Translator


def translate(
    model: Annotated[Path, typer.Argument(help="A model.safetensors, or the folder it is in.")],
    file: Annotated[
        Path | None, typer.Argument(help="Text, one sentence a line; standard input if not given.")
    ] = None,
    beam: Annotated[
        str | None,
        typer.Option(metavar="N", help="Beam width; 1 is greedy; the config's if not given."),
    ] = None,
    length_penalty: Annotated[
        str | None,
        typer.Option(metavar="X", help="Power of the length that scores are divided by."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    imports: Imports = None,
) -> None:
    """Translate a file, standard input, or, at a terminal, line by line as you type."""
    with errors("interrupted"):
        from ropewalk.encodings import import_encodings
        from ropewalk.lab.config import MOST_BEAM, MOST_LENGTH_PENALTY
        from ropewalk.lab.decoding.translator import Translator, read_sentences

        for source in imports or []:
            import_encodings(source)
        width = whole_number("--beam", beam, MOST_BEAM)
        penalty = number("--length-penalty", length_penalty, MOST_LENGTH_PENALTY)
        translator = Translator.load(model, width, penalty, device)
        if file is None and sys.stdin.isatty():
            _converse(translator)
            return
        for text in translator(read_sentences(file)):
            print(text)


def _converse(translator: Translator) -> None:
    print("One sentence a line; an empty line or Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            return
        if not line:
            return
        print(translator([line])[0])
