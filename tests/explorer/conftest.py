"""Fixtures: the explorer's page, served to a browser that reaches no other host."""

from __future__ import annotations

import threading
import time

import pytest
from chromium import PATIENCE, chromium
from model_double import ModelDouble

from ropewalk.explorer import encodings_room
from ropewalk.explorer.page_files import export

uvicorn = pytest.importorskip("uvicorn", reason="the extra explore is not installed")


def _echo(question):
    if "mistake" in question:
        raise ValueError(question["mistake"])
    return question


@pytest.fixture(scope="session")
def data():
    """What the exported page knows of encodings; drawing it takes seconds."""
    return encodings_room.encodings_data()


@pytest.fixture(scope="session")
def exported(data, tmp_path_factory):
    """The folder of an exported page with a model, and its size."""
    target = tmp_path_factory.mktemp("export") / "page"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encodings_room, "encodings_data", lambda: data)
        return target, export(target, ModelDouble())


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """The address of a running server with a model; all folders of the tests are its RUN."""
    from ropewalk.explorer.page_files import page_files
    from ropewalk.explorer.questions import ANSWERS, about_model, about_runs
    from ropewalk.explorer.server import listen, make_app

    listening = listen(None)
    answers = {**ANSWERS, **about_runs(str(tmp_path_factory.getbasetemp())), "echo": _echo}
    app = make_app(page_files(), {**answers, **about_model(ModelDouble())}, "letmein")
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/?token=letmein"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def page(browser, address):
    """The page, opened once for all tests that only evaluate its modules."""
    opened = browser.new_page()
    opened.goto(address)
    opened.wait_for_selector("h1")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def watched(browser, address):
    """Return a function that opens a page of its own, and what these pages say in the console."""
    heard, own = [], (address.partition("?")[0], "about:")

    def new_page(**settings):
        page = browser.new_context(**settings).new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(own) else heard.append(asked.url),
        )
        return page

    return new_page, heard


@pytest.fixture(scope="module")
def common(watched):
    return watched[0]()


@pytest.fixture
def visit(common, watched, address):
    """Return a function that opens a link; console messages and other hosts are failures.

    Links are opened anew in one page, those with settings in pages of their own.
    """
    new_page, heard = watched
    common.goto("about:blank")  # what the page of another test still says does not count
    heard.clear()
    own = []

    def open_page(link="", width=1400, **settings):
        page = common
        if settings:
            page = new_page(**settings)
            own.append(page)
        page.set_viewport_size({"width": width, "height": 900})
        page.goto("about:blank")
        page.goto(address + link)
        page.wait_for_selector("h1")
        return page

    yield open_page
    common.unroute_all()
    for page in own:
        page.context.close()
    assert [text for text in heard if not text.startswith("data:")] == []
