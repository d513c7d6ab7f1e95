"""``ropewalk translate``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.cli.common import Imports, errors, path_of

if TYPE_CHECKING:
    from ropewalk.lab.decoding.translator import Translator


def translate(
    model: Annotated[str, typer.Argument(help="A model.safetensors, or the folder it is in.")],
    file: Annotated[
        str | None, typer.Argument(help="Text, one sentence a line; standard input if not given.")
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="Beam width; 1 is greedy; the config's if not given.")
    ] = None,
    length_penalty: Annotated[float | None, typer.Option(min=0.0)] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    imports: Imports = None,
) -> None:
    """Translate a file, standard input, or, at a terminal, line by line as you type."""
    with errors("interrupted"):
        from ropewalk.encodings import import_encodings
        from ropewalk.lab.decoding.translator import Translator, read_sentences

        place, text_file = path_of("MODEL", model), path_of("FILE", file)
        assert place is not None
        for source in imports or []:
            path_of("--import", source)
            import_encodings(source)
        translator = Translator.load(place, beam, length_penalty, device)
        if file is None and sys.stdin.isatty():
            _converse(translator)
            return
        for text in translator(read_sentences(text_file)):
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
