"""`ropewalk explore`."""

from __future__ import annotations

import os
from functools import partial
from typing import Annotated
from urllib.parse import urlencode

from ropewalk.checks import needing, shown
from ropewalk.cli.messages import errors
from ropewalk.cli.options import argument, flag, leave_out, option, path_of


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
        option("DIR", "Write the page as files for any web host instead; DIR must not exist yet."),
    ] = None,
) -> None:
    """Explore rotary position embeddings (RoPE) in the browser.

    The page shows how RoPE rotates vectors, how scaling rules stretch a context, and how RoPE
    compares with other encodings. It is served to this machine alone, and loads nothing from
    another host.
    """
    with errors():
        target = path_of("--export", export)
        if target is not None:
            leave_out("with --export", {"--port": port})
            leave_out("with --export: a run needs Python", {"RUN": run})
            from ropewalk.explorer.page_files import export as export_page

            print(f"{target}: {export_page(target):,} bytes")
            return
        folder, link = path_of("RUN", run), ""
        if folder is not None:
            if not folder.is_dir():
                raise ValueError(f"RUN must be the folder of a ropewalk compare, got {shown(run)}")
            run = os.path.abspath(folder)
            link = f"#attention?{urlencode({'run': run})}"
        with needing("ropewalk explore"):
            from ropewalk.explorer.server import serve
        serve(port, link, opens, partial(print, flush=True), run)
