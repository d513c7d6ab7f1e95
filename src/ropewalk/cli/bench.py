"""`ropewalk bench`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from ropewalk.cli.messages import errors
from ropewalk.cli.options import Device, path_of


def bench(
    model: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Time a transformers model instead, before and after patch: a folder with "
            "config.json and safetensors, or a config alone, which gets random weights.",
        ),
    ] = None,
    work: Annotated[
        str, typer.Option(metavar="NAME,…", help="Workloads: any of prefill, training, decode.")
    ] = "prefill,training,decode",
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Dtypes: any of float32, bfloat16, float16.  [default: float32,bfloat16; for a "
            "model float32]",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="For a model: tokens of prefill and training, and context of decode.  [default: "
            "up to 512, fewer if the machine is slow]",
        ),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="CPU threads.  [default: torch's]")
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Rounds per result table; replaces --seconds."),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            min=0,
            help="Seconds per result table, for a model per workload.  [default: 6; for a model "
            "20]",
        ),
    ] = None,
    device: Device = "auto",
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile", help="Also time the plain formula under torch.compile (a minute more)."
        ),
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Execute the model code in PATH.")
    ] = False,
    out: Annotated[
        str | None, typer.Option(metavar="PATH", help=".json file for all numbers.")
    ] = None,
    figure: Annotated[
        str | None, typer.Option(metavar="PATH", help=".png or .svg file for a chart.")
    ] = None,
) -> None:
    """Time rotation on this machine, alone or in a model.

    Alone, it is compared with copying the same tensors and with other libraries. Libraries that are
    not installed are skipped. In a model (--model): tokens per second before and after patch, the
    part of a step that rotation takes, and how far logits move at far positions.
    """
    with errors():
        from ropewalk.bench.bench_options import SECONDS, check_target, make_plan
        from ropewalk.bench.bench_report import picture_of, print_notes, print_part
        from ropewalk.bench.rotation_bench import measure
        from ropewalk.files import write_json

        numbers, picture = path_of("--out", out), path_of("--figure", figure)
        given: dict[str, Any] = {"work": work, "threads": threads, "rounds": rounds}
        if rounds is not None and seconds is not None:
            raise ValueError("--rounds or --seconds must be given, and not both")
        if model is not None:
            _leave_out("with", {"--compile": compiled, "--figure": picture})
            check_target("--out", numbers, [".json"])
            given |= {"dtype": dtype or "float32", "device": device, "tokens": tokens}
            given |= {} if seconds is None else {"seconds": seconds}
            _bench_model(
                path_of("--model", model), numbers, trust_remote_code=trust_remote_code, **given
            )
            return
        _leave_out("without", {"--tokens": tokens, "--trust-remote-code": trust_remote_code})
        plan = make_plan(
            dtype=dtype or "float32,bfloat16",
            seconds=SECONDS if seconds is None else seconds,
            device=device,
            compiled=compiled,
            **given,
        )
        check_target("--out", numbers, [".json"])
        check_target("--figure", picture, [".png", ".svg"])
        console = Console(soft_wrap=True)
        command = ["ropewalk", *sys.argv[1:]]
        results = measure(plan, command, lambda part: print_part(console, part))
        print_notes(console, results)
        if numbers is not None:
            write_json(numbers, results.as_json())
        if picture is not None:
            picture_of(results.tables).save(picture)


def _bench_model(path: Path, numbers: Path | None, **given: Any) -> None:
    """Measure a model; what its code prints goes to standard error."""
    from ropewalk.bench.bench_options import make_model_plan
    from ropewalk.bench.bench_report import print_model_notes, print_model_part
    from ropewalk.bench.model_bench import measure_model
    from ropewalk.files import write_json

    plan = make_model_plan(path, **given)
    console = Console(soft_wrap=True, file=sys.stdout)
    command = ["ropewalk", *sys.argv[1:]]
    with redirect_stdout(sys.stderr):
        results = measure_model(plan, command, lambda facts: print_model_part(console, facts))
    print_model_notes(console, results)
    if numbers is not None:
        write_json(numbers, results)


def _leave_out(how: str, options: dict[str, Any]) -> None:
    for option, value in options.items():
        if value:
            raise ValueError(f"{option} must be left out {how} --model")
