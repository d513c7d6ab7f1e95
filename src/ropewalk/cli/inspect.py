"""`ropewalk inspect`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated

import typer

from ropewalk.cli.messages import errors, one_line, print_rows
from ropewalk.cli.options import TypePairing, path_of


def inspect(
    config: Annotated[
        str,
        typer.Argument(
            metavar="CONFIG",
            help="config.json, model folder, GGUF file, or name on the Hugging Face hub.",
        ),
    ],
    other: Annotated[
        str | None,
        typer.Argument(metavar="CONFIG2", help="Second model: show what differs."),
    ] = None,
    pairing: TypePairing = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document, with every pair's wavelength.")
    ] = False,
    plot: Annotated[
        str | None, typer.Option(metavar="PATH", help=".png or .svg file for the wavelengths.")
    ] = None,
) -> None:
    """Show the rotary embedding of a model, or how two models differ.

    For each kind of layer: pairing, rotated share of each head, theta and its source, scaling rule,
    amplitude (a factor on cos and sin), which pairs make a full turn within the context, and the
    error of float32 angles. Warns about config fields that are missing, contradictory, unused, or
    ignored by an inference engine such as vLLM.
    """
    with errors():
        from ropewalk.bench.bench_options import check_target
        from ropewalk.tools.inspect import compare_ropes, inspect, to_plain
        from ropewalk.tools.inspect.inspect_report import (
            comparison_blocks,
            report_blocks,
            save_wavelengths,
        )

        picture = path_of("--plot", plot)
        check_target("--plot", picture, [".png", ".svg"])
        first = inspect(config, pairing=pairing)
        second = None if other is None else inspect(other, pairing=pairing)
        found = None if second is None else compare_ropes(first, second)
        if picture is not None:
            save_wavelengths(picture, [first] if second is None else [first, second])
        if as_json:
            print(json.dumps(to_plain(found or first), ensure_ascii=False, indent=1))
        else:
            _print(report_blocks(first) if found is None else comparison_blocks(found))


def _print(blocks: Iterable[tuple[str, list[tuple[str, str]]]]) -> None:
    for place, (title, rows) in enumerate(blocks):
        print(("\n" if place else "") + one_line(title))
        if rows:
            print_rows(("", name, value) for name, value in rows)
