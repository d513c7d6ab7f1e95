"""Serves the page on this machine: its files, and Python's answers to what it asks, by name."""

from __future__ import annotations

import contextlib
import errno
import json
import socket
import threading
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ropewalk.explorer.page_files import POLICY, page_files
from ropewalk.explorer.questions import ANSWERS, Answer

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
    a click, unlike one that only a link names. Raises ValueError if the port is taken.
    """
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


def _import_answers() -> None:
    """Import torch, so that the first answer does not wait seconds for it."""
    with contextlib.suppress(ImportError):  # the answer says what is missing
        import ropewalk.explorer.encodings_room
        import ropewalk.explorer.stretch_room  # noqa: F401


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


HOSTS = ["127.0.0.1", "localhost"]
MOST_QUESTION_BYTES = 2**20

#: The operating system's own table may have other types, with which browsers run no modules.
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}

HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def make_app(files: Mapping[str, bytes], answers: Mapping[str, Answer]) -> Starlette:
    """Return the application for these files and answers.

    A request must name this machine as its host, so that no other site's name can be pointed here
    (DNS rebinding), and a question must be JSON from this page: a page of another origin cannot
    send that without permission, and none is given.
    """
    alone = threading.Lock()  # answers may compute on all cores

    def serve(request: Request) -> Response:
        path = request.path_params["path"] or "index.html"
        content = files.get(path)
        if content is None:
            return Response("no such file", 404, HEADERS, "text/plain")
        kind = KINDS[PurePosixPath(path).suffix]
        return Response(content, 200, HEADERS, kind)

    async def ask(request: Request) -> Response:
        answer = answers.get(request.path_params["name"])
        if answer is None:
            return _failed(404, "there is no such question")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _failed(415, "a question must be application/json")
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{request.headers['host']}":
            return _failed(403, "a question must come from this page")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_QUESTION_BYTES:
                most = f"{MOST_QUESTION_BYTES:,}"
                return _failed(413, f"a question must have at most {most} bytes")
        return await run_in_threadpool(_answered, alone, answer, body)

    return Starlette(
        routes=[
            Route("/api/{name}", ask, methods=["POST"]),
            Route("/{path:path}", serve),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)],
    )


def _answered(alone: threading.Lock, answer: Answer, body: bytes) -> Response:
    try:
        question = json.loads(body)
        if not isinstance(question, dict):
            raise ValueError("a question must be a JSON object")
    except (ValueError, RecursionError):
        return _failed(400, "a question must be a JSON object")
    try:
        with alone:
            return JSONResponse(answer(question), headers=HEADERS)
    except (ValueError, TypeError, OSError, ImportError) as error:
        return _failed(400, str(error))


def _failed(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status, HEADERS)
