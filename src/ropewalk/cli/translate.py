"""`ropewalk translate`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from ropewalk.cli.messages import errors
from ropewalk.cli.options import Device, Imports, argument, import_all, option, path_of

if TYPE_CHECKING:
    from ropewalk.lab.decoding.translator import Translator


def translate(
    model: Annotated[str, argument("MODEL", "model.safetensors, or its folder.")],
    file: Annotated[
        str | None, argument("FILE", "Text, one sentence per line.  [default: standard input]")
    ] = None,
    beam: Annotated[
        int | None, option("N", "Beam width; 1 is greedy.  [default: the model's]", min=1)
    ] = None,
    length_penalty: Annotated[
        float | None,
        option(
            "X",
            "Exponent of the length that beam scores are divided by.  [default: the model's]",
            min=0,
        ),
    ] = None,
    device: Device = "auto",
    imports: Imports = None,
) -> None:
    """Translate a file, standard input, or lines as you type."""
    with errors("interrupted"):
        from ropewalk.lab.decoding.translator import Translator, read_sentences

        place, text_file = path_of("MODEL", model), path_of("FILE", file)
        import_all(imports)
        translator = Translator.load(place, beam, length_penalty, device)
        if file is None and sys.stdin.isatty():
            _converse(translator)
            return
        for text in translator(read_sentences(text_file)):
            print(text)


def _converse(translator: Translator) -> None:
    print("Enter one sentence per line; an empty line or Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            return
        if not line:
            return
        print(translator([line])[0])
