"""Serves the page on this machine: its files, and Python's answers to what it asks, by name."""

from __future__ import annotations

import contextlib
import errno
import html
import json
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ropewalk.explorer.page_files import POLICY, page_files
from ropewalk.explorer.questions import ANSWERS, Answer, about_model, about_runs

if TYPE_CHECKING:
    from ropewalk.explorer.model_room import ModelRoom

ADDRESS = "127.0.0.1"
LEADING = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=%s">'
EARLY = 1.0  # seconds until torch is imported: the page is loaded first


def serve(
    port: int | None,
    link: str,
    opens: bool,
    say: Callable[[str], None],
    run: str | None = None,
    model: ModelRoom | None = None,
) -> None:
    """Serve the page until Ctrl-C.

    port: None for any that is free. link: what follows the page's address, such as "#turn".
    opens: whether to open the user's browser. run: the folder that the room Attention opens without
    a click, unlike one that only a link names. model: what the room Your model shows. Raises
    ValueError if the port is taken.
    """
    token = secrets.token_urlsafe(32)
    answers = {**ANSWERS, **about_runs(run), **about_model(model)}
    app = make_app(page_files(), answers, token)
    with listen(port) as listening, TemporaryDirectory(prefix="ropewalk-") as folder:
        address = f"http://{ADDRESS}:{listening.getsockname()[1]}/?token={token}{link}"
        say(f"{address}\nCtrl-C ends it.")
        if opens:
            page = Path(folder, "open.html")  # other users see the arguments of the browser
            page.touch(0o600)
            page.write_text(LEADING % html.escape(address), encoding="utf-8")
            webbrowser.open(page.as_uri())
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

#: The link is opened by a file, for which browsers send no strict cookie: the page itself goes on.
ENTERED = '<!doctype html><meta charset="utf-8"><script src="/enter.js"></script>'


def make_app(files: Mapping[str, bytes], answers: Mapping[str, Answer], token: str) -> Starlette:
    """Return the application for these files and answers.

    A link with the token gives the browser a cookie, which everything else needs: other users of
    this machine reach the port too. A request must name this machine as its host, so that no other
    site's name can be pointed here (DNS rebinding), and a question must be JSON from this page: a
    page of another origin cannot send that without permission, and none is given.
    """
    alone = threading.Lock()  # answers may compute on all cores
    files = {**files, "enter.js": b'location.replace("/" + location.hash);'}
    same = partial(secrets.compare_digest, token.encode())

    async def admit(request: Request, proceed: RequestResponseEndpoint) -> Response:
        name = f"ropewalk-{request.scope['server'][1]}"  # browsers share cookies among ports
        if same(request.query_params.get("token", "").encode()):
            cookie = {"Set-Cookie": f"{name}={token}; Path=/; HttpOnly; SameSite=Strict"}
            return Response(ENTERED, 200, {**HEADERS, **cookie}, "text/html")
        if same(request.cookies.get(name, "").encode()):
            return await proceed(request)
        return _failed(403, "open the link that ropewalk explore printed: its token is missing")

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
        routes=[Route("/api/{name}", ask, methods=["POST"]), Route("/{path:path}", serve)],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
            Middleware(BaseHTTPMiddleware, dispatch=admit),
        ],
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
