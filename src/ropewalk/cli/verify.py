"""`ropewalk verify`."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.messages import errors, print_rows
from ropewalk.cli.options import path_of

if TYPE_CHECKING:
    from ropewalk.tools.verify import Check, Report

SECONDS = 60.0
MOST_UNTESTED = 8  # that are named in one line
MARKS = {"right": "ok", "fault": "FAULT", "remark": "note", "not tested": "-"}


def verify(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODULE:FUNCTION]",
            help="Function that rotates q, or q and k, or returns cos and sin; or a class that can "
            "be constructed without arguments. The module is found from the current folder, and "
            "its code is executed: name only what you trust.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Verify a transformers model instead: the queries and keys that attention gets in "
            "each layer. The folder has config.json and safetensors.",
        ),
    ] = None,
    meta: Annotated[
        bool,
        typer.Option(
            "--meta",
            help="Build the model on the meta device and allocate it by to_empty, as serving "
            "engines do: buffers that are not in the checkpoint stay unset.",
        ),
    ] = False,
    trust_remote_code: Annotated[
        bool,
        typer.Option("--trust-remote-code", help="Execute the model code in FOLDER."),
    ] = False,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG",
            help="config.json, or its folder, that describes the right rotation. Without it, any "
            "consistent rotation passes; pairing, theta and amplitude are reported, not checked.",
        ),
    ] = None,
    layer: Annotated[
        str | None,
        typer.Option(metavar="N", help="Layer of CONFIG, from 0.  [default: the first with rope]"),
    ] = None,
    length: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Length of the complete sequence, if the scaling rule of CONFIG depends on it. "
            "With --model: the number of positions to test, at least 64.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE,…",
            help="Roles of the arguments, if their names do not say them: x, q, k, v, positions, "
            "offset, cos, sin, freqs_cis, freqs (angles).",
        ),
    ] = None,
    axes: Annotated[
        str | None,
        typer.Option(
            metavar="ORDER",
            help="bhsd or bshd: the order of batch, heads, sequence and dimensions.",
        ),
    ] = None,
    head_dim: Annotated[str | None, typer.Option(metavar="N", help="Size of heads.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find out what a rotation really does, and name its faults.

    Angles are read from rotated vectors. Exits with 0 if no fault is found, 1 if there is a
    fault or if nothing could be tested, 2 if the command is wrong.
    """
    with errors():
        from ropewalk.tools.verify import verify as check
        from ropewalk.tools.verify.load_target import limited, load_target

        if (target is None) == (model is None):
            raise ValueError("either MODULE:FUNCTION or --model must be given, and not both")
        if model is not None:
            others = {"--layer": layer, "--form": form, "--axes": axes, "--head-dim": head_dim}
            for option, value in others.items():
                if value is not None:
                    raise ValueError(f"{option} must be left out with --model, got {value[:40]!r}")
            report = _of_model(model, like, length, meta, trust_remote_code)
        elif meta or trust_remote_code:
            raise ValueError("--meta and --trust-remote-code must be left out without --model")
        else:
            assert target is not None
            with limited(SECONDS):
                report = check(
                    load_target(target),
                    like=path_of("--like", like),
                    layer=_number("--layer", layer, 0),
                    length=_number("--length", length, 1),
                    form=form,
                    axes=axes,
                    head_dim=_number("--head-dim", head_dim, 2),
                )
        if as_json:
            print(json.dumps(report.to_dict(), indent=1))
        else:
            print_report(report)
        if not report.right or not any(report.with_verdict("right")):
            raise typer.Exit(1)


def _of_model(
    folder: str, like: str | None, length: str | None, meta: bool, trust_remote_code: bool
) -> Report:
    """Load a model and verify it; what its code prints goes to standard error."""
    from ropewalk.rotary.config.conventions import CONVERTED_PAIRING_KEY
    from ropewalk.tools.verify import load_model, verify_model

    with redirect_stdout(sys.stderr):
        path = path_of("--model", folder)
        assert path is not None
        loaded = load_model(path, meta=meta, trust_remote_code=trust_remote_code)
        wanted = path_of("--like", like) or path
        report = verify_model(loaded, wanted, length=_number("--length", length, 64))
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
    print_rows(_row(check) for check in by_layers(report))
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
        print(f"no fault found in what could be tested; not tested: {_untested(report)}")


def _untested(report: Report) -> str:
    shown = "; ".join(report.untested[:MOST_UNTESTED])
    more = len(report.untested) - MOST_UNTESTED
    return f"{shown}; and {more} more" if more > 0 else shown


def _row(check: Check) -> tuple[str, str, str]:
    name = f"{check.where}, {check.name}" if check.where else check.name
    says = f"{check.fault}: {check.says}" if check.fault else check.says
    return MARKS[check.verdict], name, says


def _number(option: str, text: str | None, least: int) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 12 or int(text) < least:
        raise ValueError(f"{option} must be a whole number of at least {least}, got {text[:40]!r}")
    return int(text)
