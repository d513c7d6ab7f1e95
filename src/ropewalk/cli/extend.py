"""`ropewalk extend`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.checks import did_you_mean, shown
from ropewalk.cli.common import errors, one_line, path_of
from ropewalk.cli.listing import print_rows
from ropewalk.cli.options import TypePairing

if TYPE_CHECKING:
    from ropewalk.tools.extend import Extension


def extend(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG", help="config.json, model folder, or name on the Hugging Face hub."
        ),
    ],
    to: Annotated[str, typer.Option(metavar="N", help="The new context, in tokens.")],
    method: Annotated[
        str,
        typer.Option(
            metavar="METHOD", help="all, linear, ntk, dynamic, yarn, llama3 or longrope."
        ),
    ] = "all",
    engine: Annotated[
        str,
        typer.Option(
            metavar="ENGINE",
            help="transformers, vllm, sglang, llama.cpp, gguf, tensorrt-llm, onnxruntime-genai or "
            "all.",
        ),
    ] = "transformers",
    original: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="Context in training, if config.json does not state it.",
            show_default=False,
        ),
    ] = None,
    pairing: TypePairing = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    plot: Annotated[
        str | None, typer.Option(metavar="PATH", help=".png or .svg file for the wavelengths.")
    ] = None,
) -> None:  # fmt: skip
    """Compare scaling rules for a longer context, for an engine.

    For each rule: how far wavelengths move, which pairs reach angles that training never reached,
    and the mean score by distance. Then a recommendation with its limits, and the block of
    config.json or the command line for an engine. No weights are read.
    """
    with errors():
        from ropewalk.bench.plan import check_target
        from ropewalk.tools.extend import extend as run
        from ropewalk.tools.extend.as_text import summary_blocks
        from ropewalk.tools.extend.engines import ENGINES
        from ropewalk.tools.extend.plot import save_rules

        if engine not in (*ENGINES, "all"):
            known = [*ENGINES, "all"]
            raise ValueError(
                f"--engine must be one of {', '.join(known)}, got {shown(engine)}"
                + did_you_mean(engine, known)
            )
        picture = path_of("--plot", plot)
        check_target("--plot", picture, [".png", ".svg"])
        length = _tokens("--to", to)
        trained = None if original is None else _tokens("--original", original)
        found = run(config, length, method, original=trained, pairing=pairing)
        if picture is not None:
            save_rules(picture, found)
        if as_json:
            print(json.dumps(found.to_dict(), ensure_ascii=False, indent=1))
            return
        for place, (title, rows) in enumerate(summary_blocks(found)):
            print(("\n" if place else "") + one_line(title))
            if rows:
                print_rows(("", *row) for row in rows)
        print_fragments(found, engine)


def _tokens(option: str, text: str) -> int:
    """Return a number of tokens from the command line."""
    if not (text.isascii() and text.isdigit()) or len(text) > 12:
        raise ValueError(f"{option} must be a number of tokens such as 131072, got {shown(text)}")
    return int(text)


def print_fragments(found: Extension, engine: str) -> None:
    """Print the fragments of one engine or of all; the text to paste is not wrapped."""
    from ropewalk.tools.extend.as_text import fragment_rows, fragment_title

    if not found.fragments and any(each.usable for each in found.results):
        print("\nnothing to paste; --method METHOD prints a rule anyway")
    for fragment in found.fragments:
        if engine in (fragment.engine, "all"):
            print("\n" + one_line(fragment_title(fragment, found.method)))
            print_rows(("", *row) for row in fragment_rows(fragment))
            if fragment.text is not None:
                print("\n" + fragment.text)
