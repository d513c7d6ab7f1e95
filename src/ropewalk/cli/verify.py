"""`ropewalk verify`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.messages import errors, print_json, print_rows
from ropewalk.cli.options import AsJson, argument, config_of_pipe, flag, leave_out, option, path_of

if TYPE_CHECKING:
    from ropewalk.tools.verify import Report

SECONDS = 60.0
MOST_UNTESTED = 8  # that are named in one line
MARKS = {"right": "ok", "fault": "FAULT", "remark": "note", "not tested": "-"}


def verify(
    target: Annotated[
        str | None,
        argument(
            "[MODULE:FUNCTION]",
            "Function that rotates q, or q and k, or returns cos and sin; or a class that can "
            "be constructed without arguments. The module is found from the current folder, and "
            "its code is executed: name only what you trust.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        option(
            "FOLDER",
            "Verify a transformers model instead: the queries and keys that attention gets in "
            "each layer. The folder has config.json and safetensors.",
        ),
    ] = None,
    meta: Annotated[
        bool,
        flag(
            "--meta",
            "Build the model on the meta device and allocate it by to_empty, as serving "
            "engines do: buffers that are not in the checkpoint stay unset.",
        ),
    ] = False,
    trust_remote_code: Annotated[
        bool, flag("--trust-remote-code", "Execute the model code in FOLDER.")
    ] = False,
    like: Annotated[
        str | None,
        option(
            "CONFIG",
            "config.json, or its folder, that describes the right rotation. Without it, any "
            "consistent rotation passes; pairing, theta and amplitude are reported, not checked.",
        ),
    ] = None,
    layer: Annotated[
        int | None, option("N", "Layer of CONFIG, from 0.  [default: the first with rope]", min=0)
    ] = None,
    length: Annotated[
        int | None,
        option(
            "N",
            "Length of the complete sequence, if the scaling rule of CONFIG depends on it. "
            "With --model: the number of positions to test, at least 64.",
            min=1,
        ),
    ] = None,
    form: Annotated[
        str | None,
        option(
            "ROLE,…",
            "Roles of the arguments, if their names do not say them: x, q, k, v, positions, "
            "offset, cos, sin, freqs_cis, freqs (angles), old_positions, new_positions.",
        ),
    ] = None,
    axes: Annotated[
        str | None,
        option("ORDER", "bhsd or bshd: the order of batch, heads, sequence and dimensions."),
    ] = None,
    head_dim: Annotated[int | None, option("N", "Size of heads.", min=2)] = None,
    as_json: AsJson = False,
) -> None:
    """Find out what a rotation really does, and name its faults.

    Angles are read from rotated vectors. Exits with 0 if no fault is found, 1 if there is a
    fault or if nothing could be tested, 2 if the command is wrong.
    """
    with errors(as_json=as_json):
        from ropewalk.tools.verify import verify as check
        from ropewalk.tools.verify.load_target import limited, load_target

        if (target is None) == (model is None):
            raise ValueError("either MODULE:FUNCTION or --model must be given, and not both")
        if model is not None:
            others = {"--layer": layer, "--form": form, "--axes": axes, "--head-dim": head_dim}
            leave_out("with --model", others)
            report = _of_model(path_of("--model", model), like, length, meta, trust_remote_code)
        else:
            others = {"--meta": meta, "--trust-remote-code": trust_remote_code}
            leave_out("without --model", others)
            with limited(SECONDS):
                report = check(
                    load_target(str(target)),
                    like=config_of_pipe(path_of("--like", like)),
                    layer=layer,
                    length=length,
                    form=form,
                    axes=axes,
                    head_dim=head_dim,
                )
        if as_json:
            print_json(report.to_dict())
        else:
            print_report(report)
        if not report.right or not any(report.with_verdict("right")):
            raise typer.Exit(1)


def _of_model(
    path: Path, like: str | None, length: int | None, meta: bool, trust_remote_code: bool
) -> Report:
    """Load a model and verify it; what its code prints goes to standard error."""
    from ropewalk.rotary.config.conventions import CONVERTED_PAIRING_KEY
    from ropewalk.tools.verify import load_model, verify_model

    with redirect_stdout(sys.stderr):
        loaded = load_model(path, meta=meta, trust_remote_code=trust_remote_code)
        report = verify_model(
            loaded, config_of_pipe(path_of("--like", like)) or path, length=length
        )
    config: Any = getattr(loaded, "config", None)
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    if "pairing" in report.faults and getattr(text, CONVERTED_PAIRING_KEY, None) is not None:
        print(
            f"{CONVERTED_PAIRING_KEY} in config.json: these weights were converted. The model's "
            f"own code does not read that key; ropewalk.patch(model) does, and makes this right.",
            file=sys.stderr,
        )
    return report


def print_report(report: Report) -> None:
    """Print one line for each check, then the likely cause of each fault."""
    from ropewalk.tools.verify import FAULTS
    from ropewalk.tools.verify.verify_report import by_layers

    print(f"{report.target}: {report.form}\n")
    print_rows(
        (
            MARKS[check.verdict],
            f"{check.where}, {check.name}" if check.where else check.name,
            f"{check.fault}: {check.says}" if check.fault else check.says,
        )
        for check in by_layers(report)
    )
    print()
    for fault in report.faults:
        print_rows([(f"{fault}:", f"{FAULTS[fault].what}. Likely cause: {FAULTS[fault].cause}.")])
    if not report.right:
        return
    if not any(report.with_verdict("right")):
        print("nothing could be tested")
    elif report.complete:
        print("no fault found")
    else:
        named, more = report.untested[:MOST_UNTESTED], len(report.untested) - MOST_UNTESTED
        rest = f"; and {more} more" if more > 0 else ""
        print(f"no fault found in what could be tested; not tested: {'; '.join(named)}{rest}")
