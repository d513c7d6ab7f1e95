"""The report in a real browser.

These fail if the page logs an error, requests anything from the network, scrolls sideways on a
phone or hides a verdict there, or if menus, pointing, tapping and arrow keys do not show the
weights of the file, their mean over heads, and the difference between two encodings.
"""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from chromium import PATIENCE, chromium
from synthetic_run import attention, results, write_run

from ropewalk.figures.drawing import COLORS, DARK_COLORS
from ropewalk.lab.config import slug
from ropewalk.lab.report import write_report

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
LAST = "rotary(theta=1e6)"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    return write_report(write_run(tmp_path_factory.mktemp("run"))).as_uri()


@pytest.fixture
def visit(browser, address):
    """Return a function that opens the report; any log message or network request is a failure."""
    heard, contexts = [], []

    def open_page(size, **settings):
        context = browser.new_context(viewport=size, **settings)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("request", lambda asked: heard.append(asked.url) if asked.url != address else None)
        page.goto(address)
        page.wait_for_selector(".panel .heads canvas")
        page.wait_for_function("document.querySelectorAll('.plot .main-svg').length >= 6")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in heard if not text.startswith("data:")] == []


def weight(facts, name, site, sentence, layer, head, row, column):
    held = attention(facts)["encodings"][slug(name)]["sentences"][sentence][site]
    return held["weights"][layer][head][row][column], held["rows"][row], held["columns"][column]


def cell(page, name, row, column):
    """Return the center of a cell of an encoding's map, in the viewport."""
    frame = page.locator(f".panel[data-name='{name}'] .map svg .frame")
    frame.scroll_into_view_if_needed()
    box, label = frame.bounding_box(), "e => e.closest('svg').getAttribute('aria-label')"
    rows, columns = map(int, re.search(r"(\d+) by (\d+) weights", frame.evaluate(label)).groups())
    return (
        box["x"] + box["width"] * (column + 0.5) / columns,
        box["y"] + box["height"] * (row + 0.5) / rows,
    )


def within(page):
    """Return whether the tooltip is inside the viewport."""
    box, size = page.locator("#tip").bounding_box(), page.viewport_size
    return (
        box["x"] >= 0
        and box["y"] >= 0
        and box["x"] + box["width"] <= size["width"]
        and box["y"] + box["height"] <= size["height"]
    )


def test_choosing_and_pointing(visit):
    page, facts = visit(DESKTOP), results()
    choice = {"site": 2, "sentence": 1, "layer": 1, "head": 2}  # cross-attention
    before = page.locator(f".panel[data-name='{LAST}'] .map").inner_html()
    for name, place in choice.items():
        page.select_option(f"#choose-{name}", index=place)
        after = page.locator(f".panel[data-name='{LAST}'] .map").inner_html()
        assert after != before
        before = after
    for name in ("none", LAST):
        for row, column in ((0, 0), (3, 2), (3, 5)):
            found, attending, attended = weight(facts, name, "cross", 1, 1, 2, row, column)
            page.mouse.move(*cell(page, name, row, column))
            said = page.locator("#tip").inner_text()
            assert f"weight {found:.3f}" in said
            assert attending.replace("▁", "·") in said
            assert attended.replace("▁", "·") in said
            assert within(page)
            for other in ("none", "sinusoidal", LAST):  # the same cell is read out in every map
                value = weight(facts, other, "cross", 1, 1, 2, row, column)[0]
                readout = page.locator(f".panel[data-name='{other}'] .said").inner_text()
                assert readout.endswith(f": {value:.3f}")
    page.mouse.move(5, 5)
    assert page.locator("#tip").is_hidden()


def test_heads_and_keys(visit):
    page, facts = visit(DESKTOP), results()
    page.click(".panel[data-name='none'] .heads button[title='layer 2, head 2']")
    assert page.input_value("#choose-layer") == "1"
    assert page.input_value("#choose-head") == "1"
    assert page.locator(".heads button[aria-pressed=true]").count() == 4  # a difference too
    page.focus(".panel[data-name='none'] .map svg")
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    found = weight(facts, "none", "encoder", 0, 1, 1, 2, 1)[0]
    assert f"weight {found:.3f}" in page.locator("#tip").inner_text()
    assert within(page)
    page.keyboard.press("Escape")
    assert page.locator("#tip").is_hidden()


def test_means_and_differences(visit):
    page, facts = visit(DESKTOP), results()
    page.select_option("#choose-head", label="mean of all")
    means = {
        name: sum(weight(facts, name, "encoder", 0, 0, head, 2, 1)[0] for head in range(3)) / 3
        for name in ("none", "sinusoidal", LAST)
    }
    page.mouse.move(*cell(page, LAST, 2, 1))
    for name, mean in means.items():
        read = page.locator(f".panel[data-name='{name}'] .said").inner_text()
        assert float(read.rpartition(": ")[2]) == pytest.approx(mean, abs=6e-4)
    page.select_option("#choose-more", label=LAST)
    page.select_option("#choose-less", label="none")
    page.mouse.move(*cell(page, "difference", 2, 1))
    read = page.locator(".panel[data-name='difference'] .said").inner_text()
    found = float(read.rpartition(": ")[2].replace("+", ""))
    assert found == pytest.approx(means[LAST] - means["none"], abs=6e-4)
    labels = page.locator(".panel[data-name='difference'] .heads span").all_inner_texts()
    assert labels[1] == "head 1"
    assert {"layer 1", "mean"} <= set(labels)


def test_curves_are_drawn_against_steps(visit):
    """And by nothing else: runs that shared a machine cannot be compared by time."""
    page = visit(DESKTOP)
    read = "document.querySelector(\".plot[data-figure$='validation']\").data[0].x[0]"
    assert page.evaluate(read) == 40
    assert page.locator(".plot[data-figure^='loss.']").count() == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone(visit, scheme):
    page, facts = visit(PHONE, has_touch=True, is_mobile=True, color_scheme=scheme), results()
    for closed in page.locator("details").all():
        closed.evaluate("e => { e.open = true }")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)"
    )
    marks = COLORS if scheme == "light" else DARK_COLORS
    drawn = "[...document.querySelectorAll('.plot')].flatMap(p => p.data.map(t => t.marker.color))"
    assert set(filter(None, page.evaluate(drawn))) == set(marks[:3])
    # Tables stay within the page, so no number is hidden behind a sideways scroll.
    for cells in ("thead + tbody td", "tbody th"):
        boxes = page.locator(f".scroll {cells}").evaluate_all(
            "found => found.map(e => e.getBoundingClientRect()).map(box => [box.left, box.right])"
        )
        assert boxes
        assert all(left >= 0 and right <= PHONE["width"] for left, right in boxes)
    verdict = page.locator("#results .scroll >> nth=0").locator("td[data-title=verdict] >> nth=1")
    assert verdict.is_visible()
    for row, column in ((0, 0), (6, 6)):
        page.touchscreen.tap(*cell(page, LAST, row, column))
        found = weight(facts, LAST, "encoder", 0, 0, 0, row, column)[0]
        assert f"weight {found:.3f}" in page.locator("#tip").inner_text()
        assert within(page)
    page.touchscreen.tap(5, 5)
    assert page.locator("#tip").is_hidden()


def test_a_table_that_is_cut_has_a_shadow_and_a_note_is_in_one_column(visit):
    """The shadow stays at the edge; its cover moves with the columns, so it hides at the end."""
    page = visit({"width": 768, "height": 900})
    table = page.locator("#results .scroll >> nth=0")
    assert table.evaluate("e => e.scrollWidth > e.clientWidth")
    assert table.evaluate("e => getComputedStyle(e).backgroundAttachment") == "local, scroll"
    assert page.locator(".note.long >> nth=0").evaluate("e => getComputedStyle(e).columnCount") == (
        "auto"
    )


def test_every_figure_and_control_has_a_name(visit):
    page = visit(DESKTOP)
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [each["help"] for each in found] == []
    for figure in page.locator("[role=img], [role=region], [role=group]").all():
        assert figure.get_attribute("aria-label")
    for select in page.locator("select, input").all():
        assert select.evaluate("e => e.labels.length") == 1
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(later <= earlier + 1 for earlier, later in pairwise(levels))
