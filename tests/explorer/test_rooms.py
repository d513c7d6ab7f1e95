"""Why, Relative and Mistakes in a real browser.

These fail if a step of Why cannot be opened or moved, if a drag does not move what it should, by
mouse or finger, if a finger cannot scroll past a drawing, or if the numbers of a room stay behind.
"""

from __future__ import annotations

import re

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.slow  # a browser drags through three rooms

STEPS = 9


def fact(page, name):
    row = page.locator(".facts > div", has=page.locator("dt", has_text=re.compile(name)))
    return row.locator("dd").first.inner_text()


def drag(page, part, by):
    """Drag a part of a drawing to the right by so many pixels."""
    box = page.locator(f'[data-drag="{part}"]').first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by, y)
    page.mouse.up()


def swipe(page, place, right, down):
    """Move a finger over the middle of an element, as a phone reports it."""
    page.locator(place).first.scroll_into_view_if_needed()
    box = page.locator(place).first.bounding_box()
    x, y = box["x"] + box["width"] / 3, box["y"] + box["height"] / 2
    session = page.context.new_cdp_session(page)
    parts = 8  # the page draws for each
    for part in range(parts + 1):
        touch = {"x": x + right * part / parts, "y": y + down * part / parts}
        kind = "touchMove" if part else "touchStart"
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [touch]})
        page.wait_for_timeout(16)
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(100)


def number(page, name):
    return int(page.locator(f"#field-{name}").input_value())


def test_a_finger_drags_to_the_side_and_scrolls_up_and_down(visit):
    page = visit("#why?step=3", width=360, has_touch=True, is_mobile=True)
    before = number(page, "first")
    swipe(page, "[data-drag=line]", right=0, down=-150)
    assert number(page, "first") == before
    assert page.evaluate("scrollY") > 50
    swipe(page, "[data-drag=line]", right=150, down=20)
    assert number(page, "first") > 35  # 150 pixels of some 300 for 64 positions, from a third on
    page.goto(re.sub("#.*", "#why?step=5", page.url))
    before = number(page, "start")
    swipe(page, "[data-drag=both]", right=120, down=10)
    assert number(page, "start") > before + 25  # 120 pixels of some 300 for 90 positions
    page.goto(re.sub("#.*", "#why?step=1", page.url))
    swipe(page, "[data-drag='0']", right=0, down=92)
    assert page.locator("#field-sentence").input_value() == "dog bites the the man"


def test_nine_steps_follow_one_another(visit):
    page = visit("#why")
    for step in range(1, STEPS + 1):
        assert page.locator("h2").first.inner_text().startswith(f"{step}. ")
        assert page.get_by_role("slider").count() >= 1  # something to move in every step
        assert page.locator("svg[role=img]").count() >= 1
        if step < STEPS:
            page.locator(".ends a").last.click()
            sync_api.expect(page).to_have_url(re.compile(f"step={step + 1}"))
            sync_api.expect(page.locator("h2").first).to_be_focused()
    for width in (768, 360):
        page.set_viewport_size({"width": width, "height": 900})
        for step in range(1, STEPS + 1):
            page.goto(re.sub("#.*", f"#why?step={step}", page.url))
            assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_moving_both_words_keeps_the_score_and_moving_one_does_not(visit):
    page = visit("#why?step=7")
    before, angle = fact(page, "^score"), fact(page, "angle of q")
    drag(page, "both", 120)
    sync_api.expect(page).to_have_url(re.compile("start="))
    assert fact(page, "^score") == before
    assert fact(page, "angle of q") != angle
    drag(page, "query", 40)
    sync_api.expect(page).to_have_url(re.compile("distance="))
    assert fact(page, "^score") != before


def test_the_order_of_a_bag_of_words_has_no_effect(visit):
    page = visit("#why")
    before = fact(page, "output of")
    page.get_by_role("button", name="Reverse").click()
    sync_api.expect(page).to_have_url(re.compile("sentence=man"))
    assert fact(page, "output of") == before
    page = visit("#why")
    page.get_by_role("button", name="Swap “dog” and “man”").click()
    sync_api.expect(page).to_have_url(re.compile("sentence=the.man.bites.the.dog"))
    assert fact(page, "output of") == before
    page.fill("#field-sentence", "")
    sync_api.expect(page.get_by_text("Type at least one word.")).to_be_visible()


def test_rotary_alone_ignores_words_inserted_before(visit):
    page = visit("#relative?before=100")
    verdicts = dict(
        re.findall(r"(rotary|sinusoidal|learned)\s+(\w+)", page.inner_text("main table"))
    )
    assert verdicts == {"rotary": "stays", "sinusoidal": "changes", "learned": "changes"}
    page.get_by_role("button", name="man").first.press("Enter")
    sync_api.expect(page).to_have_url(re.compile("query=6"))
    page.goto(re.sub("#.*", "#relative?before=600", page.url))
    assert "no vector from position 512 on" in page.inner_text("main table")


def test_each_mistake_changes_a_score_that_the_right_code_keeps(visit):
    page = visit("#mistakes")
    for mistake in page.locator("#field-mistake option").all():
        page.select_option("#field-mistake", mistake.get_attribute("value"))
        row = page.locator("main tr", has_text="change of the score")
        sync_api.expect(page.locator("main pre").first).to_be_visible()
        right, wrong = row.locator("td").all_inner_texts()
        assert right == "0.0000"
        assert abs(float(wrong.replace("−", "-"))) > 0.01


def test_words_that_a_room_does_not_use_stay_in_the_sentence(visit):
    words = [f"w{i}" for i in range(30)]
    page = visit(f"#why?sentence={'+'.join(words)}&query=24")
    assert "Only the first 24 of the 30 words" in page.inner_text(".moves")
    page.get_by_role("button", name="Reverse").click()
    sync_api.expect(page).to_have_url(re.compile("sentence=w23"))
    assert page.input_value("#field-sentence").split() == [*words[23::-1], *words[24:]]
    page.goto(re.sub("#.*", f"#relative?sentence={'+'.join('a' * 45)}", page.url))
    sync_api.expect(page.get_by_text("Only the first 40 of the 45 words")).to_be_visible()


def test_a_control_has_the_number_that_is_drawn(visit):
    page = visit("#why?query=24")
    assert page.input_value("#field-query") == "5"


def test_a_phone_shows_both_dimensions_of_a_pair_and_every_score_of_a_rule(visit):
    page = visit("#turn?pair=3", width=390)
    head = page.locator("main table tr >> nth=0").locator("th").all_inner_texts()
    assert head[1:3] == ["3", "11"]
    page.goto(re.sub("#.*", "#stretch", page.url))
    cells = page.locator(".cards td")
    cells.first.wait_for()
    boxes = cells.evaluate_all("all => all.map((e) => e.getBoundingClientRect().right)")
    assert max(boxes) <= 390
    looks = (
        page.locator(".panels section >> nth=0")
        .locator("path.line")
        .evaluate_all(
            "all => all.map((e) => [e.getAttribute('class'), e.getAttribute('stroke-dasharray')])"
        )
    )
    rules = looks[: page.locator(".cards tbody tr").count()]
    assert len({color for color, _ in rules}) == len({dash for _, dash in rules}) == len(rules) > 5


def test_a_long_word_does_not_scroll_the_page(visit):
    page = visit(f"#why?sentence={'x' * 120}", width=360)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize(("room", "field"), [("relative", "between"), ("mistakes", "distance")])
def test_a_table_stays_scrolled_and_focused_while_numbers_change(visit, room, field):
    page = visit(f"#{room}", width=280)  # too narrow for the table
    table = page.locator(".scroll").first
    table.focus()
    table.evaluate("(place) => { place.scrollLeft = 20; }")
    assert table.evaluate("(place) => place.scrollLeft") == 20
    page.evaluate(f"() => location.replace('#{room}?{field}=7')")
    sync_api.expect(page.locator(f"#field-{field}")).to_have_value("7")
    assert page.locator(".scroll").first.evaluate("(place) => place.scrollLeft") == 20
    assert page.evaluate("document.activeElement.className") == "scroll"
