"""Fixtures: the explorer's page, served to a browser that reaches no other host."""

from __future__ import annotations

import threading
import time

import pytest
from chromium import PATIENCE, chromium

uvicorn = pytest.importorskip("uvicorn", reason="the extra explore is not installed")


def _echo(question):
    if "mistake" in question:
        raise ValueError(question["mistake"])
    return question


@pytest.fixture(scope="module")
def address():
    """The address of a running server, with a slash at its end."""
    from ropewalk.explorer.page_files import page_files
    from ropewalk.explorer.server import ANSWERS, listen, make_app

    listening = listen(None)
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(page_files(), {**ANSWERS, "echo": _echo}), log_level="warning", ws="none"
        )
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def visit(browser, address):
    """Return a function that opens a link; console messages and other hosts are failures."""
    heard, contexts = [], []

    def open_page(link="", width=1400, **settings):
        context = browser.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on(
            "request",
            lambda asked: heard.append(asked.url) if not asked.url.startswith(address) else None,
        )
        page.goto(address + link)
        page.wait_for_selector("h1")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in heard if not text.startswith("data:")] == []
