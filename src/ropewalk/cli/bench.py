"""``ropewalk bench``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from ropewalk.cli.common import errors, path_of


def bench(
    work: Annotated[
        str, typer.Option(help="Any of prefill, training, decode.")
    ] = "prefill,training,decode",
    dtype: Annotated[
        str, typer.Option(help="Any of float32, bfloat16, float16.")
    ] = "float32,bfloat16",
    threads: Annotated[
        str | None, typer.Option(metavar="N", help="Threads; as many as torch takes, if not given.")
    ] = None,
    rounds: Annotated[
        str | None, typer.Option(metavar="N", help="Rounds of each table, instead of --seconds.")
    ] = None,
    seconds: Annotated[str, typer.Option(metavar="S", help="Seconds for each table.")] = "6",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, …")] = "auto",
    compiled: Annotated[
        bool, typer.Option("--compile", help="torch.compile of the formula too: a minute more.")
    ] = False,
    out: Annotated[
        str | None, typer.Option(metavar="PATH", help="A .json file for all numbers.")
    ] = None,
    figure: Annotated[str | None, typer.Option(metavar="PATH", help="A .png or .svg file.")] = None,
) -> None:
    """Time rotation on this machine, beside copying and beside other libraries installed here."""
    with errors("interrupted; nothing was written"):
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
