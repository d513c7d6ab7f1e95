"""`ropewalk inspect`."""

from __future__ import annotations

import json
from typing import Annotated

from ropewalk.cli.messages import errors, print_blocks
from ropewalk.cli.options import PICTURES, TypePairing, argument, flag, option, target_of


def inspect(
    config: Annotated[
        str,
        argument(
            "CONFIG", "config.json, model folder, GGUF file, or name on the Hugging Face hub."
        ),
    ],
    other: Annotated[str | None, argument("CONFIG2", "Second model: show what differs.")] = None,
    pairing: TypePairing = None,
    as_json: Annotated[
        bool, flag("--json", "Print one JSON document, with every pair's wavelength.")
    ] = False,
    plot: Annotated[str | None, option("PATH", ".png or .svg file for the wavelengths.")] = None,
) -> None:
    """Show the rotary embedding of a model, or how two models differ.

    For each kind of layer: pairing, rotated share of each head, theta and its source, scaling rule,
    amplitude (a factor on cos and sin), which pairs make a full turn within the context, and the
    error of float32 angles. Warns about config fields that are missing, contradictory, unused, or
    ignored by an inference engine such as vLLM.
    """
    with errors():
        from ropewalk.tools.inspect import compare_ropes, inspect, to_plain
        from ropewalk.tools.inspect.inspect_report import (
            comparison_blocks,
            report_blocks,
            save_wavelengths,
        )

        picture = target_of("--plot", plot, PICTURES)
        reports = [inspect(each, pairing=pairing) for each in (config, other) if each is not None]
        differences = None if other is None else compare_ropes(*reports)
        if picture is not None:
            save_wavelengths(picture, reports)
        if as_json:
            print(json.dumps(to_plain(differences or reports[0]), ensure_ascii=False, indent=1))
        elif differences is None:
            print_blocks(report_blocks(reports[0]))
        else:
            print_blocks(comparison_blocks(differences))
