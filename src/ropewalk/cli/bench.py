"""`ropewalk bench`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from ropewalk.cli.common import errors, path_of
from ropewalk.cli.options import Device


def bench(
    work: Annotated[
        str, typer.Option(metavar="NAME,…", help="Workloads: any of prefill, training, decode.")
    ] = "prefill,training,decode",
    dtype: Annotated[
        str, typer.Option(metavar="NAME,…", help="Dtypes: any of float32, bfloat16, float16.")
    ] = "float32,bfloat16",
    threads: Annotated[
        str | None, typer.Option(metavar="N", help="CPU threads.  [default: torch's]")
    ] = None,
    rounds: Annotated[
        str | None, typer.Option(metavar="N", help="Rounds per result table; replaces --seconds.")
    ] = None,
    seconds: Annotated[str, typer.Option(metavar="S", help="Seconds per result table.")] = "6",
    device: Device = "auto",
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile", help="Also time the plain formula under torch.compile (a minute more)."
        ),
    ] = False,
    out: Annotated[
        str | None, typer.Option(metavar="PATH", help=".json file for all numbers.")
    ] = None,
    figure: Annotated[
        str | None, typer.Option(metavar="PATH", help=".png or .svg file for a chart.")
    ] = None,
) -> None:
    """Time rotation on this machine, also of other libraries.

    Copying the same tensors is also timed, for comparison. Libraries that are not installed are
    skipped.
    """
    with errors():
        from ropewalk.bench.output import print_notes, print_part, save_figure
        from ropewalk.bench.plan import check_target, make_plan
        from ropewalk.bench.run import measure, write_results

        plan = make_plan(work, dtype, threads, rounds, seconds, device, compiled)
        numbers, picture = path_of("--out", out), path_of("--figure", figure)
        check_target("--out", numbers, [".json"])
        check_target("--figure", picture, [".png", ".svg"])
        console = Console(soft_wrap=True)
        command = ["ropewalk", *sys.argv[1:]]
        results = measure(plan, command, lambda facts: print_part(console, facts))
        print_notes(console, results)
        if numbers is not None:
            write_results(numbers, results)
        if picture is not None:
            save_figure(picture, results)
