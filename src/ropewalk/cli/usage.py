"""`ropewalk usage`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ropewalk.checks import shown
from ropewalk.cli import options
from ropewalk.cli.messages import errors, print_blocks, print_json
from ropewalk.cli.options import AsJson, argument, flag, option

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

TOKENS, WINDOW = 4_096, 256
MOST_TOKENS = 1_000_000


def usage(
    model: Annotated[
        str,
        argument(
            "MODEL",
            "Folder of a transformers model with tokenizer.json, or a run folder of ropewalk "
            "compare or train.",
        ),
    ],
    text: Annotated[str, option("FILE", "UTF-8 text that the model reads.")],
    encoding: Annotated[
        str | None, option("NAME", "Encoding, if a run has several.", show_default=False)
    ] = None,
    seed: Annotated[int | None, option("N", "Seed, if a run has several.", min=0)] = None,
    tokens: Annotated[
        int, option("N", "Maximum number of tokens of the text.", min=1, max=MOST_TOKENS)
    ] = TOKENS,
    window: Annotated[
        int | None,
        option(
            "N",
            f"Tokens that the model reads at a time.  [default: {WINDOW}; for a run, the "
            "trained length]",
            min=1,
            max=MOST_TOKENS,
        ),
    ] = None,
    dtype: Annotated[
        str, option("NAME", "float32, bfloat16 or float16; not for a run.")
    ] = "float32",
    device: options.Device = "auto",
    trust_remote_code: Annotated[
        bool, flag("--trust-remote-code", "Execute the model code in MODEL.")
    ] = False,
    imports: options.Imports = None,
    as_json: AsJson = False,
    plot: Annotated[str | None, option("PATH", ".png or .svg file for the heat map.")] = None,
) -> None:
    """Show which rotary frequencies a model's heads use.

    Norms of queries and keys by layer, head and pair; heads that attend by position or by content;
    and the loss if only the fastest share p of the pairs rotates (p-RoPE, without training).
    """
    with errors(as_json=as_json):
        from ropewalk.lab.tasks.text_model import run_of
        from ropewalk.machine import pick_device
        from ropewalk.tools import usage as measure
        from ropewalk.tools.usage.usage_report import summary_blocks, usage_picture

        place, text_file = options.path_of("MODEL", model), options.path_of("--text", text)
        picture = options.target_of("--plot", plot, options.PICTURES)
        on, chosen = pick_device(device), options.dtype_of(dtype)
        with redirect_stdout(sys.stderr):  # what the model's code prints
            if run_of(place) is not None:
                options.import_all(imports)
                name, ids, targets, loaded = _of_run(
                    place, encoding, seed, text_file, window, tokens, on
                )
            else:
                others = {"--encoding": encoding, "--seed": seed}
                options.leave_out("for a model that is not in a run folder", others)
                name, ids, loaded = _of_transformers(
                    place, text_file, window, tokens, chosen, on, trust_remote_code
                )
                targets = None  # the next tokens
            used = measure(loaded, ids, targets=targets)
        if picture is not None:
            usage_picture(used).save(picture)
        if as_json:
            print_json({"source": name, **used.to_dict()})
        else:
            print_blocks(summary_blocks(used, name))


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
    trained = find_text_model(place, wanted, seed)
    length = window or trained.config.train_length
    ids = trained.read_ids(text, _least(length, most, window), most)
    name = f"{place}, {trained.encoding}, seed {trained.seed}"
    return name, *trained.batch(_windows(ids, length)), trained.load(device)


def _of_transformers(
    place: Path,
    text: Path,
    window: int | None,
    most: int,
    dtype: torch.dtype,
    device: torch.device,
    trust_remote_code: bool,
) -> tuple[str, Tensor, nn.Module]:
    """Return a name, windows of token ids and a model of transformers."""
    import torch

    from ropewalk.tools import model_files

    if not (place / "config.json").is_file():
        raise ValueError(
            f"MODEL must be a model's folder with config.json, or a run folder, got {place}"
        )
    source = model_files.read_source(place, trust_remote_code, name="MODEL")
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
    start = model_files.start_tokens(source)
    ids = model_files.read_tokens(source, text, _least(length, most, window), most)
    model_files.check_memory(source, dtype, device)
    rows = _windows(ids, length - len(start))
    loaded = model_files.load(source, dtype, device)
    return str(place), torch.cat([start.expand(len(rows), -1), rows], 1), loaded


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
