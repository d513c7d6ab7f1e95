"""`ropewalk bench`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from typing import Annotated, Any

from rich.console import Console

from ropewalk.cli.messages import errors
from ropewalk.cli.options import PICTURES, Device, flag, leave_out, option, path_of, target_of


def bench(
    model: Annotated[
        str | None,
        option(
            "PATH",
            "Time a transformers model instead, before and after patch: a folder with "
            "config.json and safetensors, or a config alone, which gets random weights.",
        ),
    ] = None,
    work: Annotated[
        str, option("NAME,…", "Workloads: any of prefill, training, decode.")
    ] = "prefill,training,decode",
    dtype: Annotated[
        str | None,
        option(
            "NAME,…",
            "Dtypes: any of float32, bfloat16, float16.  [default: float32,bfloat16; for a "
            "model float32]",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        option(
            "N",
            "For a model: tokens of prefill and training, and context of decode.  [default: "
            "up to 512, fewer if the machine is slow]",
            min=1,
        ),
    ] = None,
    threads: Annotated[int | None, option("N", "CPU threads.  [default: torch's]", min=1)] = None,
    rounds: Annotated[
        int | None, option("N", "Rounds per result table; replaces --seconds.", min=1)
    ] = None,
    seconds: Annotated[
        float | None,
        option(
            "S",
            "Seconds per result table, for a model per workload.  [default: 6; for a model 20]",
            min=0,
        ),
    ] = None,
    device: Device = "auto",
    compiled: Annotated[
        bool, flag("--compile", "Also time the plain formula under torch.compile (a minute more).")
    ] = False,
    trust_remote_code: Annotated[
        bool, flag("--trust-remote-code", "Execute the model code in PATH.")
    ] = False,
    out: Annotated[str | None, option("PATH", ".json file for all numbers.")] = None,
    figure: Annotated[str | None, option("PATH", ".png or .svg file for a chart.")] = None,
) -> None:
    """Time rotation on this machine, alone or in a model.

    Alone, it is compared with copying the same tensors and with other libraries. Libraries that are
    not installed are skipped. In a model (--model): tokens per second before and after patch, the
    part of a step that rotation takes, and how far logits move at far positions.
    """
    with errors():
        from ropewalk.bench import bench_report
        from ropewalk.bench.bench_options import make_model_plan, make_plan
        from ropewalk.bench.model_bench import measure_model
        from ropewalk.bench.rotation_bench import measure
        from ropewalk.files import write_json

        path = path_of("--model", model)
        if path is None:
            others = {"--tokens": tokens, "--trust-remote-code": trust_remote_code}
            leave_out("without --model", others)
        else:
            leave_out("with --model", {"--compile": compiled, "--figure": figure})
        if rounds is not None and seconds is not None:
            raise ValueError("--rounds or --seconds must be given, and not both")
        numbers = target_of("--out", out, [".json"])
        picture = target_of("--figure", figure, PICTURES)
        options: dict[str, Any] = {"dtype": dtype, "seconds": seconds, "device": device}
        options |= {"threads": threads, "rounds": rounds}
        console, command = Console(soft_wrap=True, file=sys.stdout), ["ropewalk", *sys.argv[1:]]
        if path is None:
            plan = make_plan(work, compiled=compiled, **options)
            tables = measure(plan, command, partial(bench_report.print_part, console))
            bench_report.print_notes(console, tables)
            results = tables.as_json()
            if picture is not None:
                bench_report.picture_of(tables.tables).save(picture)
        else:
            options |= {"tokens": tokens, "trust_remote_code": trust_remote_code}
            with redirect_stdout(sys.stderr):  # what the model's code prints
                results = measure_model(
                    make_model_plan(path, work, **options),
                    command,
                    partial(bench_report.print_model_part, console),
                )
            bench_report.print_model_notes(console, results)
        if numbers is not None:
            write_json(numbers, results)
