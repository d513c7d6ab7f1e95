"""`ropewalk inspect`."""

from __future__ import annotations

from typing import Annotated

from ropewalk.cli import options
from ropewalk.cli.messages import errors, print_blocks, print_json
from ropewalk.cli.options import argument, flag, option


def inspect(
    config: Annotated[
        str,
        argument(
            "CONFIG",
            "config.json, model folder, GGUF file, or name on the Hugging Face hub; - reads a "
            "config.json from standard input.",
        ),
    ],
    other: Annotated[str | None, argument("CONFIG2", "Second model: show what differs.")] = None,
    pairing: options.TypePairing = None,
    height: options.Size = None,
    width: options.Size = None,
    frames: options.Size = None,
    as_json: Annotated[
        bool, flag("--json", "Print one JSON document, with every pair's wavelength.")
    ] = False,
    plot: Annotated[str | None, option("PATH", ".png or .svg file for the wavelengths.")] = None,
) -> None:
    """Show the rotary embedding of a model, or how two models differ.

    For each kind of layer: pairing, rotated share of each head, theta and its source, scaling rule,
    amplitude (a factor on cos and sin), which pairs make a full turn within the context, and the
    error of float32 angles. For images and video: wavelengths of each axis in patches, and which
    pairs turn within --height, --width and --frames. Warns about config fields that are missing,
    contradictory, unused, or ignored by an inference engine such as vLLM.
    """
    with errors(as_json=as_json, options={"pairing": "--pairing"}):
        from ropewalk.tools.inspect import compare_ropes, inspect, to_plain
        from ropewalk.tools.inspect.inspect_report import (
            comparison_blocks,
            report_blocks,
            save_wavelengths,
        )

        picture = options.target_of("--plot", plot, options.PICTURES)
        given = [options.config_of_pipe(each) for each in (config, other) if each is not None]
        sizes = {"height": height, "width": width, "frames": frames}
        reports = [inspect(each, pairing=pairing, sizes=sizes) for each in given]
        differences = None if other is None else compare_ropes(*reports)
        if picture is not None:
            save_wavelengths(picture, reports)
        if as_json:
            print_json(to_plain(differences or reports[0]))
        elif differences is None:
            print_blocks(report_blocks(reports[0]))
        else:
            print_blocks(comparison_blocks(differences))
