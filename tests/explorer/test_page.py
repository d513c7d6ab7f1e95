"""The page in a real browser: every room, at three widths, in both schemes.

These fail if a room logs an error, asks another host, scrolls sideways, has a serious fault that
axe finds, forgets its state in a reload, or hides what is wrong with a link or a number.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ropewalk.explorer

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
ROOMS_JS = Path(ropewalk.explorer.__file__).parent / "page" / "rooms.js"
ROOMS = re.findall(r"from \"./rooms/(\w+)\.js\"", ROOMS_JS.read_text(encoding="utf-8"))
WIDTHS = (1400, 768, 360)
# Rules of axe whose answer depends on the scheme.
OF_COLOR = ["color-contrast", "link-in-text-block"]


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_no_serious_fault_and_no_sideways_scroll(visit, room):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = visit(f"#{room}", color_scheme="light", reduced_motion="reduce")
    page.wait_for_function("() => !document.querySelector('main [aria-busy=true]')")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => drawn(true)))")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    options = {"resultTypes": ["violations"]}
    for scheme, only in (("light", {}), ("dark", {"runOnly": OF_COLOR})):
        page.emulate_media(color_scheme=scheme)
        found = axe.run(page, options={**options, **only}).response["violations"]
        assert [each["help"] for each in found if each["impact"] in ("serious", "critical")] == []


def test_a_link_brings_a_state_back(visit):
    page = visit("#turn")
    page.select_option("#field-rule", "yarn")
    page.fill("#field-position", "1,000")
    page.press("#field-position", "Enter")
    sync_api.expect(page).to_have_url(re.compile("position=1000"))
    before = page.locator(".facts").first.inner_text()
    page.reload()
    assert page.locator(".facts").first.inner_text() == before
    assert page.input_value("#field-rule") == "yarn"


def test_a_wrong_link_and_a_wrong_number_are_explained(visit):
    page = visit("#turn?theta=x&pairing=third")
    assert "theta must be a number from 2" in page.inner_text(".mistake")
    assert "pairing must be one of half, interleaved" in page.inner_text(".mistake")
    page.fill("#field-theta", "-1")
    page.press("#field-theta", "Enter")
    assert "got -1" in page.inner_text("#field-theta-mistake")
    assert page.get_attribute("#field-theta", "aria-invalid") == "true"
    page.goto(page.url.split("#")[0] + "#nowhere")
    sync_api.expect(page.locator(".mistake").first).to_contain_text("no room nowhere")


def test_a_slider_moves_with_the_keyboard_and_the_numbers_follow(visit):
    page = visit("#turn")
    slider = page.get_by_role("slider", name="position, slider")
    before = page.locator(".facts").first.inner_text()
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    sync_api.expect(page).to_have_url(re.compile("position="))
    assert page.locator(".facts").first.inner_text() != before


def test_a_rope_that_a_rule_refuses_is_named_and_can_be_left(visit):
    page = visit("#turn?head_dim=256&theta=2&rule=yarn&original=1048576&position=77")
    assert "YaRN needs pairs" in page.inner_text(".mistake")
    assert page.input_value("#field-rule") == "yarn"
    assert page.input_value("#field-position") == "77"
    page.select_option("#field-rule", "none")
    sync_api.expect(page.locator(".facts").first).to_contain_text("wavelength")


def test_a_number_that_is_being_typed_stays_in_its_room(visit):
    page = visit("#relative")
    page.goto(page.url.split("#")[0] + "#turn")
    page.fill("#field-theta", "500")
    page.go_back()
    sync_api.expect(page.locator("h1")).to_have_text("Relative")
    page.wait_for_timeout(100)
    assert "theta" not in page.url


def test_skipping_to_the_content_keeps_the_link(visit):
    page = visit("#turn?position=5")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.url.endswith("#turn?position=5")
    assert page.evaluate("document.activeElement.id") == "room"


def test_a_comma_groups_digits_and_is_no_decimal_point(visit):
    page = visit("#turn?rule=linear")
    page.fill("#field-factor", "2,5")
    page.press("#field-factor", "Enter")
    assert "got 2,5" in page.inner_text("#field-factor-mistake")
