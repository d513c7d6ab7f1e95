"""The server: to this machine alone, under this machine's name, with one line for each mistake.

These fail if another host's name, another page's origin or another program is served, if another
user could read the token, if a header that keeps the page offline is missing, or if a wrong
question ends in anything but a message.
"""

from __future__ import annotations

import http.client
import json
import threading
import webbrowser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn

from ropewalk.explorer.page_files import export, page_files
from ropewalk.explorer.server import MOST_QUESTION_BYTES, listen, serve

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def ask(address):
    """Return a function that sends a request and returns the status, headers and body."""
    cookie = {"Cookie": f"ropewalk-{urlsplit(address).port}=letmein"}

    def request(method, path, body=None, headers=()):
        headers = cookie | dict(headers)
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    return request


def test_every_file_is_served_under_the_policy(ask):
    for path, content in page_files().items():
        status, headers, body = ask("GET", f"/{path}")
        assert (status, body) == (200, content)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert ask("GET", "/")[2] == page_files()["index.html"]


@pytest.mark.parametrize("path", ["/nothing.js", "/../app.py", "/rooms", "/%2e%2e/app.py", "/api/"])
def test_other_paths_are_not_served(ask, path):
    assert ask("GET", path)[0] in (404, 405)


def test_only_the_link_lets_a_browser_in(ask, address):
    port = urlsplit(address).port
    asked = [("GET", "/"), ("GET", "/main.js"), ("GET", "/no"), ("GET", "/?token=letmei")]
    asked += [("GET", "/?token="), ("GET", "/?token=%ff"), ("POST", "/api/echo"), ("PUT", "/")]
    for cookie in ("", f"ropewalk-{port}=", f"ropewalk-{port}=letmei", "ropewalk-1=letmein"):
        for method, path in asked:
            status, _, body = ask(method, path, b"{}", JSON | {"Cookie": cookie})
            assert (status, b"open the link that ropewalk explore printed" in body) == (403, True)
    status, headers, body = ask("GET", "/?token=letmein", headers={"Cookie": ""})
    assert (status, b"letmein" in body) == (200, False)
    wanted = f"ropewalk-{port}=letmein; Path=/; HttpOnly; SameSite=Strict"
    assert headers["set-cookie"] == wanted


def test_the_browser_is_led_in_by_a_file_that_other_users_cannot_read(browser, monkeypatch):
    opened, run, page = [], uvicorn.Server.run, browser.new_page()

    def visited(server, sockets):
        thread = threading.Thread(target=run, args=(server, sockets), daemon=True)
        thread.start()
        path = Path(urlsplit(opened[0]).path)
        assert (path.stat().st_mode & 0o777, opened[0].count("token")) == (0o600, 0)
        page.goto(opened[0])
        page.wait_for_selector("h1")
        assert page.url.partition("/#")[2] == "turn?position=7&head_dim=8"
        page.reload()
        page.wait_for_selector("h1")
        server.should_exit = True
        thread.join()

    monkeypatch.setattr(webbrowser, "open", opened.append)
    monkeypatch.setattr(uvicorn.Server, "run", visited)
    serve(None, "#turn?position=7&head_dim=8", opens=True, say=str)
    page.close()
    assert not Path(urlsplit(opened[0]).path).exists()


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil"])
def test_a_foreign_host_is_refused(ask, host):
    assert ask("GET", "/", headers={"Host": host})[0] == 400
    assert ask("POST", "/api/echo", b"{}", JSON | {"Host": host})[0] == 400


def test_a_question_of_another_origin_is_refused(ask):
    assert ask("POST", "/api/echo", b"{}", JSON | {"Origin": "http://evil.example"})[0] == 403
    assert ask("POST", "/api/echo", b"{}", {"Content-Type": "text/plain"})[0] == 415
    assert "access-control-allow-origin" not in ask("OPTIONS", "/api/echo")[1]


def test_a_question_is_answered_and_a_mistake_is_named(ask):
    status, _, answer = ask("POST", "/api/echo", b'{"n": 1}', JSON)
    assert (status, json.loads(answer)) == (200, {"n": 1})
    status, _, answer = ask("POST", "/api/echo", b'{"mistake": "n must be 2, got 1"}', JSON)
    assert (status, json.loads(answer)) == (400, {"error": "n must be 2, got 1"})
    assert ask("POST", "/api/nothing", b"{}", JSON)[0] == 404


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b"NaN"])
def test_what_is_not_an_object_is_refused(ask, body):
    status, _, answer = ask("POST", "/api/echo", body, JSON)
    assert (status, "object" in json.loads(answer)["error"]) == (400, True)


def test_a_question_has_a_bound(ask):
    status, _, answer = ask("POST", "/api/echo", b" " * (MOST_QUESTION_BYTES + 1), JSON)
    assert (status, "at most" in json.loads(answer)["error"]) == (413, True)


def test_it_listens_on_this_machine_alone_and_names_a_port_that_is_taken():
    with listen(None) as listening:
        address, port = listening.getsockname()
        assert address == "127.0.0.1"
        with pytest.raises(ValueError, match=f"a free port, got {port}: it is taken"):
            listen(port)


@pytest.mark.slow
def test_the_export_is_complete_small_and_knows_that_no_python_answers(exported):
    target, size = exported
    written = {p.relative_to(target).as_posix(): p for p in target.rglob("*") if p.is_file()}
    data = {name for name in written if name.startswith("data/")}
    assert set(written) - data == {"index.html", "page.js", "explorer.css", "palette.css"}
    assert {"data/encodings.js", "data/stretch-llama-2-7b.js", "data/model.js"} <= data
    assert sum(p.stat().st_size for p in written.values()) == size < 3_000_000
    assert "SERVED = false" in written["page.js"].read_text()
    with pytest.raises(ValueError, match="does not exist yet"):
        export(target)
    with pytest.raises(ValueError, match="in a folder that exists"):
        export(target.parent / "no" / "page")
