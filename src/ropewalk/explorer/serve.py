"""Serves the page on this machine, and writes it as files for any web host."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path

from ropewalk.explorer.files import page_files
from ropewalk.files import shown_path
from ropewalk.tools.convert.target import complete_folder

ADDRESS = "127.0.0.1"
EARLY = 1.0  # seconds until torch is imported: the page is loaded first


def serve(
    port: int | None,
    link: str,
    opens: bool,
    say: Callable[[str], None],
    run: str | None = None,
) -> None:
    """Serve the page until Ctrl-C.

    port: None for any that is free. link: what follows the page's address, such as "#turn".
    opens: whether to open the user's browser. run: the folder that the room Attention opens without
    a click, unlike one that only a link names. Raises ValueError if the port is taken, ImportError
    with the command that installs what is missing.
    """
    try:
        import uvicorn

        from ropewalk.explorer.answers import ANSWERS
        from ropewalk.explorer.app import make_app
    except ImportError as error:
        raise ImportError(
            f"ropewalk explore needs {error.name}, which is not installed: "
            "pip install 'ropewalk[explore]'"
        ) from None
    answers = {**ANSWERS, "given": lambda _: {"run": run}}
    app = make_app(page_files(), answers)
    with listen(port) as listening:
        address = f"http://{ADDRESS}:{listening.getsockname()[1]}/{link}"
        say(f"{address}\nCtrl-C ends it.")
        if opens:
            webbrowser.open(address)
        config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=2)
        early = threading.Timer(EARLY, _import_answers)
        early.start()
        try:
            uvicorn.Server(config).run(sockets=[listening])
        finally:
            early.cancel()


def export(target: Path) -> int:
    """Write all files that need no Python into a new folder; return their bytes together.

    Raises ValueError if there is something at `target`, or no folder to make it in.
    """
    if os.path.lexists(target):
        raise ValueError(
            f"--export must name a folder that does not exist yet, got {shown_path(target)}"
        )
    if not target.parent.is_dir():
        raise ValueError(
            f"--export must be in a folder that exists, got {shown_path(target)}; make it first"
        )
    files = page_files(served=False)
    with complete_folder(target) as folder:
        for path, content in files.items():
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return sum(map(len, files.values()))


def _import_answers() -> None:
    """Import torch, so that the first answer does not wait seconds for it."""
    with contextlib.suppress(ImportError):  # the answer says what is missing
        import ropewalk.explorer.encodings
        import ropewalk.explorer.stretch  # noqa: F401


def listen(port: int | None) -> socket.socket:
    """Return a socket that listens on this machine alone."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((ADDRESS, port or 0))
        listening.listen()
    except OSError as error:
        listening.close()
        if port is not None and error.errno in (errno.EADDRINUSE, errno.EACCES):
            why = "it is taken" if error.errno == errno.EADDRINUSE else "this user may not use it"
            raise ValueError(
                f"--port must be a free port, got {port}: {why}; leave --port out for any"
            ) from None
        raise
    return listening
