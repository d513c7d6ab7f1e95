"""The room Encodings against the encodings and the figures.

These fail if a word of a docstring is lost, if the numbers are not those of the encoding, if the
page's similarity differs from that of the figures, or if it misjudges which encodings are relative.
"""

from __future__ import annotations

import inspect
import json
import re
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from html_pages import BASE64

import ropewalk
from ropewalk import figures
from ropewalk.encodings import REGISTRY
from ropewalk.explorer.encodings_room import (
    MOST_POSITIONS,
    described,
    encoding_answer,
    names_answer,
)

# As drawn: those that act on scores or embeddings by the distance alone. FIRE reads a distance as
# a fraction of at least its L = 512 here, so it is relative within it.
RELATIVE = {
    "sinusoidal", "rotary", "xpos", "shaw", "transformer_xl", "deberta", "alibi", "t5", "kerple",
    "fire",
}  # fmt: skip
ABSOLUTE = {"integer", "binary", "learned", "tupe"}

JUDGE = """async (answers) => {
  const { isRelative, similarity, visible } = await import("./encodings.js");
  return Object.fromEntries(Object.entries(answers).map(([name, { vectors, heads }]) => {
    if (vectors) return [name, { similarity: similarity(vectors), relative: isRelative(similarity(vectors), false) }];
    return [name, { relative: heads && heads.every((head) => isRelative(visible(head, true), true)) }];
  }));
}"""  # noqa: E501


@pytest.fixture(scope="module")
def answers(data):
    return data["encodings"]["answers"]


@pytest.mark.slow
def test_every_encoding_is_there_and_the_data_stay_small(data):
    assert list(data["encodings"]["answers"]) == list(REGISTRY)
    assert [each["name"] for each in names_answer({})["names"]] == list(REGISTRY)
    assert len(json.dumps(data, separators=(",", ":"), allow_nan=False)) < 1_500_000


@pytest.mark.parametrize("name", list(REGISTRY))
def test_no_word_of_a_docstring_is_lost(name):
    found = described(name, REGISTRY[name])
    told = [*found["paragraphs"], *(f"{names}: {text}" for names, text in found["arguments"])]
    text = inspect.cleandoc(REGISTRY[name].__doc__)
    assert sorted(" ".join(told).split()) == sorted(text.split())
    assert not any(re.match(r"\w+: ", each) for each in found["paragraphs"] if name not in each[:9]
                   and not each.startswith("Source"))  # fmt: skip


@pytest.mark.slow
def test_the_numbers_are_those_of_the_encoding(answers):
    slopes = [2.0 ** (-8 * (head + 1) / 4) for head in range(4)]
    found = torch.tensor(answers["alibi"]["heads"])
    assert found[:, 31, 0].tolist() == pytest.approx([-31 * slope for slope in slopes], rel=1e-3)
    (rotary,) = answers["rotary"]["heads"]  # ones rotated by d: the sum of cos(d · f) over sqrt(16)
    frequencies = 10_000.0 ** (-torch.arange(8) / 8)
    wanted = (2 * torch.cos(5 * frequencies).sum() / 4 - 4).item()
    assert rotary[20][15] == pytest.approx(wanted, rel=1e-3)
    assert answers["binary"]["vectors"][6][:4] == [0, 1, 1, 0]
    assert answers["none"]["vectors"] is None
    assert answers["none"]["heads"] is None
    assert answers["cope"]["heads"] is None  # its vectors start at 0
    assert answers["cope"]["parameters"] == 64 * 16


@pytest.mark.slow
def test_the_pictures_are_those_of_figures_and_none_is_wrong(answers):
    for name, answer in answers.items():
        drawn, vectors = answer["pictures"], answer["vectors"]
        assert (drawn["vectors"] is None) == (drawn["similarity"] is None) == (vectors is None)
        if vectors:
            assert f"{name}, 32 positions by 64 columns" in drawn["vectors"]["alt"]
    picture = figures.position_vectors({"binary": answers["binary"]["vectors"]})
    assert answers["binary"]["pictures"]["vectors"] == {
        "light": picture.svg().decode(),
        "dark": picture.svg(dark=True).decode(),
        "alt": picture.alt,
    }


@pytest.mark.slow
def test_the_page_judges_and_compares_as_the_library_does(visit, answers):
    found = visit().evaluate(JUDGE, answers)
    assert {name for name, each in found.items() if each["relative"]} == RELATIVE
    assert {name for name, each in found.items() if each["relative"] is False} == ABSOLUTE
    vectors = {name: answers[name]["vectors"] for name in ("sinusoidal", "learned", "binary")}
    for name, wanted in figures.position_similarity(vectors).data["similarity"].items():
        for row, like in zip(found[name]["similarity"], wanted, strict=True):
            ours = [float("nan") if each is None else each for each in row]
            assert ours == pytest.approx(like, abs=1e-9, nan_ok=True)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"encoding": "rotery"}, "did you mean rotary|must be one of"),
        ({"encoding": ""}, "must have the form name"),
        ({"encoding": "xpos", "causal": False}, "both_ways"),
        ({"encoding": "binary(bits=2)"}, "2 bits"),
        ({"encoding": "learned(max_positions=1000000)"}, "at most 5,000,000 parameters"),
        ({"encoding": "rotary", "length": MOST_POSITIONS + 1}, "length must be a whole number"),
        ({"encoding": "rotary", "causal": 1}, "causal must be"),
        ({"encoding": "r" * 201}, "at most 200 characters"),
    ],
)
def test_a_mistake_in_a_question_is_explained(asked, why):
    with pytest.raises(ValueError, match=why):
        encoding_answer({"length": 32, "causal": True, **asked})


def test_an_answer_leaves_the_random_numbers_of_the_process():
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    encoding_answer({"encoding": "learned", "length": 8, "causal": True})
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.slow
def test_an_encoding_is_chosen_and_given_back_by_its_link(visit):
    page = visit("#encodings?encoding=sinusoidal%2Brotary&looks=both&length=20")
    page.wait_for_selector("h2 >> text=What the scores become")
    assert page.locator("svg image").count() == 1
    assert page.locator(".drawn img").count() == 2
    page.click(".choices >> text=alibi")
    page.wait_for_selector("h2 >> text=alibi(symmetric=True)")
    assert "encoding=alibi" in page.url
    assert "looks=both" in page.url
    assert page.locator("svg image").count() == 4


@pytest.fixture(scope="module")
def exported_address(exported):
    """The address of an exported page."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(exported[0]))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.mark.slow
def test_the_export_draws_only_numbers_that_it_has(browser, exported_address):
    page = browser.new_page()
    page.goto(f"{exported_address}#attention?example=2&row=3&column=2")  # of the stored run
    page.wait_for_selector("svg image")
    run = json.loads((Path(ropewalk.explorer.__file__).parent / "stored_run.json").read_text())
    shown = page.locator(".panels section").all_inner_texts()
    for each, text in zip(run["run"]["encodings"], shown, strict=True):
        maps = run["attention-2"]["encodings"][each["slug"]]["maps"]["encoder"]
        place = 2 * (2 * len(maps["columns"]) + 1)
        high, low = (BASE64.index(digit) for digit in maps["weights"][0][0][place : place + 2])
        assert f": {(64 * high + low - 2048) / 1000:.3f}" in text
    assert page.locator(".panels .number >> nth=3").inner_text() == "4"  # of a head
    assert page.locator("#field-text, #field-run").filter(visible=True).count() == 0
    page.goto(f"{exported_address}#encodings?encoding=constructor")
    page.wait_for_selector("text=ropewalk explore computes others")
    page.goto(f"{exported_address}#encodings?encoding=rotary")
    assert page.locator(".math").first.inner_html() == "θ<sup>−2i/R</sup>"
    assert page.locator("svg path.line").count() == 1  # all heads are the same
    page.goto(f"{exported_address}#encodings?encoding=t5&looks=both&length=8")
    page.wait_for_selector("text=This copy of the page has only the usual numbers")
    told = page.locator(".panels").inner_text()
    page.goto(f"{exported_address}#encodings?encoding=t5")
    page.wait_for_function("() => !document.querySelector('main .mistake[role=status]')")
    assert page.locator(".panels").inner_text() == told
    page.close()


def test_a_room_that_opened_without_an_answer_works_when_one_comes(browser, address):
    page = browser.new_page()  # not `visit`: the console hears of the lost requests
    page.route("**/api/**", lambda route: route.abort())
    page.goto(f"{address}#encodings?query=95&length=8")
    page.wait_for_selector("text=does not answer")
    assert page.input_value("#field-query") == "7"
    page.unroute("**/api/**")
    page.fill("#field-query", "3")
    page.press("#field-query", "Enter")
    page.wait_for_selector(".choices button")
    page.wait_for_selector("h2 >> text=What the scores become")
    page.close()
