"""`ropewalk usage`."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ropewalk.checks import shown
from ropewalk.cli.messages import errors, one_line, print_rows
from ropewalk.cli.options import Device, Imports, import_all, path_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

TOKENS, WINDOW = 4_096, 256
MOST_TOKENS = 1_000_000
DTYPES = ("float32", "bfloat16", "float16")


def usage(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Folder of a transformers model with tokenizer.json, or a run folder of ropewalk "
            "compare or train.",
        ),
    ],
    text: Annotated[str, typer.Option(metavar="FILE", help="UTF-8 text that the model reads.")],
    encoding: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Encoding, if a run has several.", show_default=False),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Seed, if a run has several.")
    ] = None,
    tokens: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=MOST_TOKENS, help="Maximum number of tokens of the text."
        ),
    ] = TOKENS,
    window: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=MOST_TOKENS,
            help=f"Tokens that the model reads at a time.  [default: {WINDOW}; for a run, the "
            "trained length]",
        ),
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="NAME", help="float32, bfloat16 or float16; not for a run.")
    ] = "float32",
    device: Device = "auto",
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Execute the model code in MODEL.")
    ] = False,
    imports: Imports = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    plot: Annotated[
        str | None, typer.Option(metavar="PATH", help=".png or .svg file for the heat map.")
    ] = None,
) -> None:
    """Show which rotary frequencies a model's heads use.

    Norms of queries and keys by layer, head and pair; heads that attend by position or by content;
    and the loss if only the fastest share p of the pairs rotates (p-RoPE, without training).
    """
    with errors():
        from ropewalk.bench.bench_options import check_target
        from ropewalk.lab.tasks.text_model import run_of
        from ropewalk.machine import pick_device
        from ropewalk.tools import usage as measure
        from ropewalk.tools.usage.usage_report import summary_blocks, usage_picture

        place, text_file, picture = (
            path_of("MODEL", model), path_of("--text", text), path_of("--plot", plot)
        )  # fmt: skip
        check_target("--plot", picture, [".png", ".svg"])
        on = pick_device(device)
        targets: Tensor | None = None  # the next tokens
        if dtype not in DTYPES:
            raise ValueError(f"--dtype must be one of {', '.join(DTYPES)}, got {shown(dtype)}")
        if run_of(place) is not None:
            import_all(imports)
            name, ids, targets, loaded = _of_run(
                place, encoding, seed, text_file, window, tokens, on
            )
        else:
            for option, given in (("--encoding", encoding), ("--seed", seed)):
                if given is not None:
                    raise ValueError(
                        f"{option} must be left out for a model that is not in a run folder, got "
                        f"{shown(given)}"
                    )
            with redirect_stdout(sys.stderr):  # what the model's code prints
                name, ids, loaded = _of_transformers(
                    place, text_file, window, tokens, dtype, on, trust_remote_code
                )
        with redirect_stdout(sys.stderr):
            found = measure(loaded, ids, targets=targets)
        if picture is not None:
            usage_picture(found).save(picture)
        if as_json:
            print(json.dumps({"source": name, **found.to_dict()}, ensure_ascii=False, indent=1))
            return
        for at, (title, rows) in enumerate(summary_blocks(found, name)):
            print(("\n" if at else "") + one_line(title))
            if rows:
                print_rows(("", *row) for row in rows)


def _of_run(
    place: Path,
    encoding: str | None,
    seed: int | None,
    text: Path,
    window: int | None,
    most: int,
    device: torch.device,
) -> tuple[str, Tensor, Tensor | None, nn.Module]:
    """Return a name, what the model of a run reads, its targets, and the model."""
    from ropewalk.lab.tasks.text_model import find_text_model

    wanted = None if encoding is None else "".join(encoding.split())
    found = find_text_model(place, wanted, seed)
    length = window or found.config.train_length
    ids = found.read_ids(text, _least(length, most, window), most)
    name = f"{place}, {found.encoding}, seed {found.seed}"
    return name, *found.batch(_windows(ids, length)), found.load(device)


def _of_transformers(
    place: Path,
    text: Path,
    window: int | None,
    most: int,
    dtype: str,
    device: torch.device,
    trust_remote_code: bool,
) -> tuple[str, Tensor, nn.Module]:
    """Return a name, windows of token ids and a model of transformers."""
    import torch

    from ropewalk.tools.model_files import (
        check_memory,
        load,
        read_source,
        read_tokens,
        start_tokens,
    )

    if not (place / "config.json").is_file():
        raise ValueError(
            f"MODEL must be a model's folder with config.json, or a run folder, got {place}"
        )
    source = read_source(place, trust_remote_code, name="MODEL")
    if not source.has_weights:
        raise ValueError(f"MODEL must be a folder with weights, got {shown(str(place))}")
    config = source.config.get_text_config(decoder=True)
    trained = getattr(config, "max_position_embeddings", None) or WINDOW
    length = window or min(WINDOW, trained)
    if length > trained:
        raise ValueError(
            f"--window must be at most the model's max_position_embeddings {trained:,}, got "
            f"{length:,}"
        )
    start = start_tokens(source)
    text_length = length - len(start)
    ids = read_tokens(source, text, _least(length, most, window), most)
    check_memory(source, getattr(torch, dtype), device)
    rows = _windows(ids, text_length)
    model = load(source, getattr(torch, dtype), device)
    return str(place), torch.cat([start.expand(len(rows), -1), rows], 1), model


def _least(length: int, most: int, window: int | None) -> int:
    """Return how many tokens of a text are needed; raise ValueError if --tokens allows fewer."""
    from ropewalk.tools.usage.usage import LEAST_LENGTH, least_rows

    if length < LEAST_LENGTH:
        given = "--window" if window else "the trained length"
        raise ValueError(f"{given} must be at least {LEAST_LENGTH} tokens, got {length}")
    least = least_rows(length) * length
    if most < least:
        raise ValueError(
            f"--tokens must be at least {least:,} with windows of {length:,} tokens, got {most:,}"
        )
    return least


def _windows(ids: Tensor, length: int) -> Tensor:
    """Return rows of this many tokens; what is left at the end is dropped."""
    rows = len(ids) // length
    return ids[: rows * length].view(rows, length)
