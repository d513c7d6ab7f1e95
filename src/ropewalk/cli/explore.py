"""`ropewalk explore`."""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

from ropewalk.checks import needing, shown
from ropewalk.cli.messages import errors
from ropewalk.cli.options import argument, dtype_of, flag, leave_out, option, path_of

if TYPE_CHECKING:
    from ropewalk.explorer.model_room import ModelRoom


def explore(
    run: Annotated[
        str | None,
        argument(
            "RUN",
            "Folder of a run of `ropewalk compare`; the page shows its attention maps.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        option("N", "Port of 127.0.0.1.  [default: any that is free]", min=1, max=65_535),
    ] = None,
    opens: Annotated[bool, flag("--open/--no-open", "Open the page in the browser.")] = True,
    export: Annotated[
        str | None,
        option(
            "DIR", "Write the page as files to open or to host instead; DIR must not exist yet."
        ),
    ] = None,
    model: Annotated[
        str | None,
        option(
            "FOLDER", "Folder of a transformers model, whose attention the page splits by pair."
        ),
    ] = None,
    text: Annotated[
        str | None,
        option(
            "TEXT", "What the model reads: a text, the path of a file, or - for standard input."
        ),
    ] = None,
    dtype: Annotated[
        str | None, option("NAME", "float32, bfloat16 or float16.  [default: float32]")
    ] = None,
    random_weights: Annotated[
        bool, flag("--random-weights", "Open a config.json that has no weights beside it.")
    ] = False,
    trust_remote_code: Annotated[
        bool, flag("--trust-remote-code", "Execute the model code in FOLDER.")
    ] = False,
) -> None:
    """Explore rotary position embeddings (RoPE) in the browser.

    The page shows how RoPE rotates vectors, how scaling rules stretch a context, and how RoPE
    compares with other encodings. It is served to this machine alone, and loads nothing from
    another host.
    """
    with errors():
        from ropewalk.explorer import page_files

        target, folder, link = path_of("--export", export), path_of("RUN", run), ""
        if target is not None:
            leave_out("with --export", {"--port": port})
            leave_out("with --export: a run needs Python", {"RUN": run})
            page_files.check_target(target)
        if folder is not None:
            if not folder.is_dir():
                raise ValueError(f"RUN must be the folder of a ropewalk compare, got {shown(run)}")
            run = os.path.abspath(folder)
            link = f"#attention?{urlencode({'run': run})}"
        room = None
        if model is not None and text is not None:
            leave_out("with --model", {"RUN": run})
            link = "#heads"
            place = path_of("--model", model)
            room = _open(place, text, dtype or "float32", random_weights, trust_remote_code)
        elif model is not None or text is not None:
            needed, other = ("--text", "--model") if text is None else ("--model", "--text")
            raise ValueError(f"{needed} must be given with {other}")
        else:
            leave_out("without --model", {
                "--dtype": dtype, "--random-weights": random_weights,
                "--trust-remote-code": trust_remote_code,
            })  # fmt: skip
        if target is not None:
            print(f"{target}: {page_files.export(target, room):,} bytes")
            return
        with needing("ropewalk explore"):
            from ropewalk.explorer.server import serve
        serve(port, link, opens, partial(print, flush=True), run, room)


def _open(
    place: Path, text: str, dtype: str, random_weights: bool, trust_remote_code: bool
) -> ModelRoom:
    """Run a model on a text, with a progress bar; what its code prints goes to standard error."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    with progress as bar, redirect_stdout(sys.stderr):
        task = bar.add_task("loading", total=None)
        from ropewalk.explorer.model_room import ModelRoom
        from ropewalk.tools import attention
        from ropewalk.tools.attention.open_model import open_model

        chosen = dtype_of(dtype)
        opened = open_model(
            place, _text(text), dtype=chosen, random_weights=random_weights,
            trust_remote_code=trust_remote_code,
        )  # fmt: skip
        bar.update(task, description="running")

        def tell(done: int, layers: int) -> None:
            bar.update(task, completed=done, total=layers)

        found = attention(opened.model, opened.ids, on_layer=tell)
    return ModelRoom(found, opened.words, str(place), opened.random)


def _text(given: str) -> str:
    """Return a text: as it is given, of standard input, or of a file."""
    from ropewalk.tools.model_files import text_of

    if given == "-":
        return sys.stdin.read()
    try:
        is_file = Path(given).is_file()
    except (OSError, ValueError):  # a text is no path, or longer than one may be
        is_file = False
    return text_of(Path(given)) if is_file else given
