"""The room Attention: stored maps of a run, models that read typed text, and mistakes.

These fail if weights change on their way to the page, if a translation is not the one of `ropewalk
translate`, if a text is too long for the page, if what is wrong with a folder is not said, or if
the page opens others than the user named.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest
from cells_here import compare_here
from synthetic_run import write_run
from tiny_tasks import config_of, translation_config

from ropewalk.explorer.attention_room import MOST_TOKENS, attention_answer, run_answer
from ropewalk.explorer.questions import about_runs
from ropewalk.files import write_checked_json
from ropewalk.lab.decoding.translator import Translator

ROOT = Path(__file__).parents[2]
UNPACK = """async (answer) => {
  const { unpacked } = await import("./attention.js");
  return unpacked(answer);
}"""


@pytest.fixture
def stored(tmp_path):
    return write_run(tmp_path / "run")


def ask(run, **more):
    return attention_answer({"run": str(run), "text": "", "target": "", "example": 0, **more})


def test_stored_maps_arrive_at_the_page_unchanged(visit, stored):
    maps = json.loads((stored / "attention.json").read_text(encoding="utf-8"))["encodings"]
    page, found = visit(), ask(stored)["encodings"]
    assert found.keys() >= maps.keys()
    for slug, each in maps.items():
        for site, wanted in each["sentences"][0].items():
            held = page.evaluate(UNPACK, found[slug]["maps"][site])
            assert (held["rows"], held["columns"]) == (wanted["rows"], wanted["columns"])
            for heads, like in zip(held["weights"], wanted["weights"], strict=True):
                assert heads[:-1] == like
                mean = [sum(row[0] for row in column) for column in zip(*like, strict=True)]
                assert [row[0] * len(like) for row in heads[-1]] == pytest.approx(mean)


def test_words_of_a_run_are_text_and_no_markup(visit, stored):
    page = visit(f"#attention?run={quote(str(stored))}")
    page.click("text=Open")
    page.wait_for_selector("svg image")
    assert page.locator("main script, main b b").count() == 0
    assert page.locator(".panels section").count() == 3


@pytest.mark.parametrize(
    ("run", "why"),
    [
        ("", "must name the folder"),
        ("a\0b", "must name the folder"),
        ("nowhere", "no such folder"),
        ("~nobody-of-this-name/run", "no such folder"),
        ("x" * 501, "at most 500 characters"),
        ("y" * 400, "no such folder"),
        (".", "without results.json"),
        (3, "run must be a text"),
        (str(ROOT / "results" / "default"), "published results have no models"),
    ],
)
def test_what_is_wrong_with_a_folder_is_said(run, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=why):
        about_runs(str(ROOT))["run"]({"run": run})


def test_a_folder_elsewhere_is_refused_in_the_same_words(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "link").symlink_to(there)
    monkeypatch.chdir(here)
    with pytest.raises(ValueError, match="without results"):
        about_runs(str(there))["run"]({"run": str(there)})
    for run in ("link", "link/in", there, tmp_path / "no", "../there", "../herein", "~root"):
        if run == there:  # from here on, the file system is not asked
            monkeypatch.setattr(os.path, "realpath", None)
        with pytest.raises(ValueError, match="must be in the folder in which ropewalk explore was"):
            about_runs(None)["run"]({"run": str(run)})


def test_an_example_beyond_the_stored_ones_is_refused(stored):
    with pytest.raises(ValueError, match="example must be one of"):
        ask(stored, example=999)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder of a finished translation of two encodings, tiny and hardly trained."""
    folder = tmp_path_factory.mktemp("trained")
    rows = [(f"Der {a} sieht {b}.", f"The {b} sees {a}.") for a in "abcdef" for b in "uvwxyz"]
    for name, part in (("train", rows[:26]), ("val", rows[26:31]), ("test", rows[31:])):
        for side, language in enumerate(("de", "en")):
            text = "".join(f"{row[side]}\n" for row in part)
            (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    encodings = ("none", "learned(max_positions=24)")
    config = translation_config(data=str(folder), encodings=encodings, seeds=(1,), vocabulary=60)
    compare_here(config, folder / "run")
    return folder / "run"


@pytest.mark.slow
def test_a_typed_sentence_is_translated_as_by_translate(trained):
    found = ask(trained, text="Der a sieht u.")["encodings"]
    for slug, each in found.items():
        translator = Translator.load(trained / "cells" / slug / "seed-1", device="cpu")
        assert each["translation"] == translator(["Der a sieht u."])[0]
        cross, encoder = each["maps"]["cross"], each["maps"]["encoder"]
        assert encoder["rows"] == encoder["columns"] == cross["columns"]
        assert encoder["rows"][-1] == "</s>"
        assert cross["rows"][0] == "<s>"
        assert len(cross["weights"]) == 1
        assert len(cross["weights"][0]) == 2


@pytest.mark.slow
def test_every_decoder_reads_a_given_target(trained):
    found = ask(trained, text="Der a sieht u.", target="The u sees a.")["encodings"]
    rows = {slug: each["maps"]["decoder"]["rows"] for slug, each in found.items()}
    assert rows["none"] == next(each for slug, each in rows.items() if slug != "none")
    assert {each["translation"] for each in found.values()} == {None}


@pytest.mark.slow
def test_a_text_that_is_too_long_is_refused_for_each_encoding_by_itself(trained):
    found = ask(trained, text="a " * 30)["encodings"]  # 24 positions are too few for one
    assert "maps" in found["none"]
    assert "0..23" in next(each["error"] for slug, each in found.items() if slug != "none")
    found = ask(trained, text="a " * (MOST_TOKENS + 1))["encodings"]
    assert all(f"at most {MOST_TOKENS} tokens" in each["error"] for each in found.values())
    with pytest.raises(ValueError, match="at most 500 characters"):
        ask(trained, text="a" * 501)


@pytest.mark.slow
def test_a_model_that_is_not_there_is_said_next_to_the_others(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "cells" / "none" / "seed-1" / "model.safetensors").unlink()
    found = ask(run, text="Der a sieht u.")["encodings"]
    assert "there is no model" in found["none"]["error"]
    assert any("maps" in each for each in found.values())


@pytest.mark.slow
def test_a_language_model_reads_a_text(tmp_path):
    compare_here(config_of("causal-lm", encodings=("rotary",), seeds=(1,)), tmp_path / "run")
    assert run_answer({"run": str(tmp_path / "run")})["translates"] is False
    (each,) = ask(tmp_path / "run", text="It was autumn.")["encodings"].values()
    assert each["maps"]["self"]["rows"] == each["maps"]["self"]["columns"]


@pytest.mark.slow
def test_the_page_translates_a_sentence_and_its_link_brings_it_back(visit, trained):
    page = visit(f"#attention?run={quote(str(trained))}")
    page.click("text=Open")
    page.wait_for_selector("svg image")
    page.fill("#field-text", "Der a sieht u.")
    page.wait_for_selector("text=Translations")
    assert page.inner_text(".note >> nth=0").startswith("Your text: “Der a sieht u.”, read by")
    page.select_option("#field-site", "cross")
    page.wait_for_selector("svg[aria-label*='cross']")
    told = page.inner_text(".texts")
    page.reload()
    page.click("text=Open")
    page.wait_for_selector("text=Translations")
    assert page.inner_text(".texts") == told
    assert page.input_value("#field-site") == "cross"


def test_a_link_opens_no_folder_before_a_click(visit, stored):
    page, asked = visit(), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{page.url.split('#')[0]}#attention?run={quote(str(stored))}&example=9&more=64")
    page.wait_for_selector("text=Press Open to read this folder")
    page.wait_for_timeout(500)
    assert not any(url.endswith("/api/run") for url in asked)
    page.press("#field-run", "Enter")
    page.wait_for_selector("svg image")
    assert page.input_value("#field-example") != ""  # the last of the stored sentences
    assert page.input_value("#field-more") == "3"


def test_a_folder_that_was_missing_is_read_when_it_exists(browser, address, tmp_path):
    page = browser.new_page()  # not `visit`: the console hears of the refused question
    page.goto(f"{address}#attention?run={quote(str(tmp_path / 'run'))}")
    page.click("text=Open")
    page.wait_for_selector("text=no such folder")
    write_run(tmp_path / "run")
    page.press("#field-run", "Enter")
    page.wait_for_selector("svg image")
    page.close()


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("results.json", lambda facts: facts.clear()),
        ("results.json", lambda facts: facts["config"].update(seeds=[])),
        ("results.json", lambda facts: facts.update(config={})),
        ("results.json", lambda facts: facts.update(encodings=[{}])),
        ("results.json", lambda facts: facts.update(encodings=3)),
        ("attention.json", lambda facts: facts.update(rule=None)),
        ("attention.json", lambda facts: facts.update(sentences=[{}])),
        ("attention.json", lambda facts: facts.update(encodings=[])),
        ("attention.json", lambda facts: facts["sentences"].pop()),
    ],
)
def test_a_file_that_is_not_of_a_run_is_named(stored, file, change):
    facts = json.loads((stored / file).read_text(encoding="utf-8"))
    facts.pop("checksum", None)
    change(facts)
    (stored / file).write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{file} (is not as ropewalk writes it|has no )"):
        run_answer({"run": str(stored)})


def test_a_run_that_was_stopped_before_its_maps_is_told_to_go_on(stored):
    (stored / "attention.json").unlink()
    (stored / "config.json").touch()  # the folder of a run, whose results have a checksum
    results = stored / "results.json"
    write_checked_json(results, json.loads(results.read_text("utf-8")))
    with pytest.raises(ValueError, match="Run its command again"):
        run_answer({"run": str(stored)})


def test_the_run_of_the_command_line_opens_without_a_click(visit, stored):
    page = visit()
    page.route("**/api/given", lambda route: route.fulfill(json={"run": str(stored)}))
    page.goto(f"{page.url.split('#')[0]}#attention?run={quote(str(stored))}")
    page.wait_for_selector("svg image")
