"""The room Your model: scores by rotary pair against NumPy, its controls, and its export.

These fail if a score, a weight or a mean of head-scores.js differs from NumPy's by more than
rounding, if the room shows another number than that of the chosen head, query, key and band, if a
control, a link or a layer without a split does not work, or if an exported model needs a server.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from model_double import ModelDouble, softmax

from ropewalk.explorer.questions import about_model

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
LINK = "heads?layer=2&head=1&query=9&key=8&from=5&to=8"
FALLING = """() => {
  const text = document.querySelector(".all-heads").innerText;
  const shares = [...text.matchAll(/(\\d+)%/g)].map((found) => Number(found[1]));
  return shares.length > 1 && shares.every((share, i) => i === 0 || shares[i - 1] >= share);
}"""
COMPUTE = """async ([answer, count, bands, i, j, queries]) => {
  const all = await import("./head-scores.js"), head = all.unpackHead(answer, count);
  const plain = (all) => Array.from(all, (each) => (Number.isNaN(each) ? null : each));
  return { parts: all.parts(head, i, j), bands: bands.map(([from, to]) => {
    const found = all.scores(head, { from, to }), after = all.weights(head, found);
    const mean = all.meanByDistance(head, found), summary = all.summary(after, queries, 1);
    const scores = plain(found), weights = after.map(plain);
    return { scores, weights, mean, summary, strongest: all.strongest(after, queries) };
  }) };
}"""
BANDS = [(0, -1), (0, 2), (3, 7), (0, 7)]


def remaining(q, k, first=0, last=-1):
    kept = np.ones(q.shape[1], bool)
    kept[2 * first : 2 * last + 2] = False
    return q[:, kept].astype("f8") @ k[:, kept].T.astype("f8")


@pytest.mark.parametrize("layer", [0, 1, 2])
@pytest.mark.parametrize("causal", [True, False])
def test_scores_and_weights_are_those_of_numpy(page, layer, causal, monkeypatch):
    model = ModelDouble()
    q, k, visible = model.vectors(layer, 1)
    visible |= not causal
    monkeypatch.setattr(model, "vectors", lambda layer, head: (q, k, visible))
    count, rules = len(model.tokens), model.rules(layer)
    queries = (count // 2, count) if causal else (count // 4, count - count // 4)
    found = page.evaluate(COMPUTE, [model.head(layer, 1), count, BANDS, 9, 5, queries])
    by_column = q[9].astype("f8") * k[5]
    wanted = [*by_column[:16].reshape(8, 2).sum(-1), by_column[16:].sum()]
    assert found["parts"] == pytest.approx(wanted, abs=1e-12)
    distance = np.subtract.outer(np.arange(count), np.arange(count))
    for band, each in zip(BANDS, found["bands"], strict=True):
        scores = np.where(visible, remaining(q, k, *band), np.nan)
        weights = softmax(scores, visible, **rules)
        for of_page, own in ((each["scores"], scores.ravel()), (each["weights"], weights)):
            assert np.allclose(np.array(of_page, float), own, atol=2e-6, equal_nan=True)
        for far, mean in each["mean"]:
            assert mean == pytest.approx(scores[visible & (distance == far)].mean(), abs=2e-6)
        assert [far for far, _ in each["mean"]] == np.unique(distance[visible]).tolist()
        rows, at = np.nan_to_num(weights)[slice(*queries)], np.arange(*queries) - 1
        there = rows[np.arange(len(rows)), at]
        wanted = {"there": there.mean(), "first": rows[:, 0].mean(), "queries": len(rows)}
        wanted["most"] = int((rows.argmax(-1) == at).sum())
        assert each["summary"] == pytest.approx(wanted, abs=2e-6)
        row, key = np.unravel_index(rows[:, 1:].argmax(), rows[:, 1:].shape)
        assert each["strongest"] == [queries[0] + row, key + 1]


def fact(page, name):
    row = page.locator(".facts > div", has=page.locator("dt", has_text=re.compile(name)))
    return row.locator("dd").first.inner_text().replace("−", "-")


def test_a_head_a_pair_and_a_band_are_chosen_by_mouse_and_keyboard(visit):
    page, model = visit("#heads"), ModelDouble()
    expect(page.locator(".mistake").filter(visible=True)).to_contain_text("weights are random")
    page.select_option("#field-sort", "positional")
    page.wait_for_function(FALLING)  # the page is drawn again in its next frame
    page.get_by_role("button", name=re.compile("^Layer 1, head 0: distance alone")).press("Enter")
    expect(page.locator("h2").last).to_have_text("Layer 1, head 0")
    q, k, visible = model.vectors(1, 0)
    score, rules = remaining(q, k), model.rules(1)
    weights = softmax(score, visible, **rules)
    assert fact(page, "^weight$") == f"{np.nanmax(weights[12:, 1:]):.3f}"  # where it begins
    for name, key in (("query", 22), ("key", 23)):
        page.locator(f"#field-{name}").fill(str(key))
        page.locator(f"#field-{name}").press("Enter")
    expect(page.get_by_text("does not see this key, so they have no score")).to_be_visible()
    region = page.get_by_role("region", name="All weights")
    for step in ("ArrowUp", "ArrowLeft", "ArrowLeft", "ArrowLeft"):
        region.press(step)
    expect(page).to_have_url(re.compile("query=21&key=20"))
    expect(region).to_be_focused()
    expect(page.locator("label[for=field-query]")).to_have_text("query: ·the")
    assert fact(page, "^score$") == f"{score[21, 20]:+.2f}"
    assert fact(page, "^score after") == f"{2 * np.tanh(score[21, 20] / 2):+.2f}"
    assert fact(page, "^weight") == f"{softmax(score, visible, **rules)[21, 20]:.3f}"
    maps = page.locator(".panels image")
    assert maps.first.get_attribute("href") == maps.last.get_attribute("href")
    page.get_by_role("slider", name="last pair left out, slider").press("End")
    expect(page).to_have_url(re.compile("to=8"))
    expect(page.locator("figure li")).to_have_text(["all pairs", "without the band"])
    row = page.locator("tr", has_text="score of the chosen cell").locator("td")
    after = remaining(q, k, 0, 7)[21, 20]
    expect(row).to_have_text([f"{x:+.2f}".replace("-", "−") for x in (score[21, 20], after)])
    assert maps.first.get_attribute("href") != maps.last.get_attribute("href")
    page.get_by_role("button", name="Nothing").click()
    expect(page.get_by_text("Nothing is left out, so this map is the same.")).to_be_visible()
    page.select_option("#field-layer", "3")
    expect(page.get_by_text("cannot be split by pair: it adds a bias of its own.")).to_be_visible()
    assert page.get_by_role("slider", name="last pair left out, slider").is_hidden()


def test_without_a_model_the_room_says_how_to_start_it(visit):
    (page := visit()).route("**/api/model", lambda route: route.fulfill(json={"model": None}))
    page.goto(f"{page.url.split('#')[0]}#heads")
    expect(page.locator("main pre")).to_contain_text("ropewalk explore --model FOLDER --text")
    assert page.locator("main svg, main input").filter(visible=True).count() == 0
    with pytest.raises(ValueError, match="start ropewalk explore with --model"):
        about_model(None)["head"]({"layer": 0, "head": 0})


@pytest.mark.slow
def test_an_exported_model_and_every_room_open_from_a_disk(browser, exported):
    page, heard = browser.new_page(), []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.goto(f"{(exported[0] / 'index.html').as_uri()}#{LINK}")
    page.wait_for_selector("main figure svg")
    q, k, _ = ModelDouble().vectors(2, 1)
    assert fact(page, "^score$") == f"{remaining(q, k)[9, 8]:+.2f}"
    for link in page.locator("#rooms a").all():
        link.click()
        page.wait_for_function("() => !document.querySelector('main [aria-busy=true]')")
        page.wait_for_selector("main svg")
    assert heard == []
