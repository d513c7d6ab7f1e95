"""The HTML page of a run, parsed.

These fail if it loads anything from elsewhere, lets a corpus sentence become markup, leaves out or
changes a number, has an empty plot, calls the baseline anything else, cuts a sentence within a
word, changes a word by marking it, or exceeds its size limit.
"""

from __future__ import annotations

import ast
import copy
import io
import re
from pathlib import Path

import pytest
from html_pages import BASE64, Page
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from synthetic_run import AWKWARD, attention, examples, results, typed

import ropewalk
from ropewalk.figures.drawing import LIGHT
from ropewalk.figures.interactive import scheme_css
from ropewalk.lab.report.formats import format_number, format_p_value
from ropewalk.lab.report.page import mark_differences, pack_weights, report
from ropewalk.lab.report.tables import interval_note, legend, main_table
from ropewalk.lab.report.terminal import print_table
from ropewalk.lab.results import AttentionMaps, Examples
from ropewalk.lab.tasks.translation import spread_out

WORDS = st.lists(st.text("aäB<&>", min_size=1, max_size=4), max_size=8).map(" ".join)
SOURCE = Path(ropewalk.__file__).parent


def written(facts, maps=None, **limit):
    """The page of these facts, with these maps."""
    maps = AttentionMaps.model_validate(maps or attention(facts))
    return report(typed(facts), Examples.model_validate(examples(facts)), maps, **limit)


def test_it_loads_nothing_from_elsewhere(page):
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not re.search(r"url\(|@import", page.held["style"][0])
    assert not re.search(r"fetch|XMLHttp|import|https?://(?!www\.w3\.org/)", page.held["script"][2])


def test_a_sentence_stays_text(page):
    assert len(page.held["script"]) == 3  # data, plotly, the page's own
    assert "b" not in page.tags
    assert page.text.count(AWKWARD) == 2  # a translation, and a choice of sentence
    assert "German to English, corpus <ä>" in page.text


def test_all_numbers_are_there(page, facts):
    for row in facts["encodings"]:
        wanted = [row["name"], f"{row['parameters']:,}", f"{row['extra_parameters']:+,}"]
        for summary in row["summary"].values():
            for metric in ("bleu", "chrf"):
                wanted += [
                    format_number(v) for v in [summary[metric]["mean"], *summary[metric]["values"]]
                ]
            if summary["versus_first"]:
                wanted += [
                    format_number(summary["versus_first"][k], signed=True)
                    for k in ("difference", "low", "high")
                ]
                wanted += [
                    format_p_value(summary["versus_first"]["p_holm"]),
                    summary["versus_first"]["verdict"],
                ]
        for cell in row["cells"]:
            wanted += [cell["status"], f"{cell['steps']:,}"]
            wanted += [
                format_number(cell["peak_memory_bytes"] / 2**20, 0),
                format_number(cell["validation_loss"], 3),
            ]
            wanted += [format_number(score["bleu"], 2) for score in cell["scores"].values()]
        missing = [text for text in wanted if text not in page.text]
        assert not missing
    conditions = [
        facts["command"],
        facts["commit"],
        "1 h 12 min, summed over 2 calls of the command: one began the run, others continued it",
        "2.13.0",
    ]
    overlap = "6 of 120 pairs (5.0 %), 17 of the source sentences, 19 of the target sentences"
    for text in (*facts["signatures"].values(), *conditions, overlap, "line 7 was blank"):
        assert text in page.text


def test_a_diverged_run_is_shown(page):
    assert "0.0 †" in page.text
    assert "rotary(theta=1e6), seed 2, diverged after 60 steps" in page.text
    assert "1 of 6 runs diverged" in page.text


def test_figures_hold_the_numbers(page, facts):
    figures = page.data["figures"]
    means = {
        trace["name"]: trace["y"]
        for trace in figures["length"][0]["data"]
        if "lines" in trace["mode"]
    }
    for row in facts["encodings"]:
        scores = [[b["bleu"] for b in cell["scores"]["test"]["by_length"]] for cell in row["cells"]]
        assert means[row["name"]] == pytest.approx([sum(c) / 2 for c in zip(*scores, strict=True)])
    traces = figures["loss"]["validation"]["data"]
    first = facts["encodings"][0]["cells"][0]["validation"]
    assert traces[0]["x"] == [point["step"] for point in first]
    assert traces[0]["y"] == pytest.approx([point["loss"] for point in first], abs=1e-4)


def test_maps_hold_the_weights(page, facts):
    for slug, held in attention(facts)["encodings"].items():
        for given_, found in zip(
            held["sentences"], page.data["attention"][slug]["sentences"], strict=True
        ):
            for site in ("encoder", "decoder", "cross"):
                assert found[site]["rows"] == given_[site]["rows"]
                heads = [h for layer in given_[site]["weights"] for h in layer]
                texts = [h for layer in found[site]["weights"] for h in layer]
                for head, text in zip(heads, texts, strict=True):
                    assert _unpacked(text) == [weight for row in head for weight in row]


@given(st.lists(st.lists(st.floats(-2, 2), min_size=3, max_size=3)))
def test_packing_keeps_thousandths_also_below_0_and_above_1(weights):
    flat = [weight for row in weights for weight in row]
    assert _unpacked(pack_weights(weights)) == pytest.approx(flat, abs=0.0005001)


def test_a_page_too_large_has_fewer_maps_and_says_so(facts):
    maps = attention(facts, sentences=3)
    whole = len(written(facts, maps).encode())
    less = written(facts, maps, limit=whole - 1)
    assert len(less.encode()) < whole
    assert "This page has the maps of 2 of these 3 sentences" in less
    assert "There are no maps to show" in written(facts, maps, limit=1)


def test_it_opens_with_nothing_but_one_encoding():
    alone = results(("rotary",), diverged=False)
    text = Page(written(alone)).text
    assert "rotary reaches 30.6 BLEU on test (mean of 2 seeds, 400 steps each)." in text
    assert "against" not in text


def test_a_heading_has_something_below_it(facts):
    """Fails if one encoding, which nothing can be said of, leaves an empty list of findings."""
    assert '<ul class="findings"><li>' in written(facts)
    page = written(results(("rotary",), diverged=False))
    assert '<ul class="findings">' not in page
    assert "What the numbers show" not in page


def test_two_encodings_fit_in_three_megabytes():
    two = results(("sinusoidal", "rotary"), diverged=False)
    assert len(written(two, attention(two, sentences=1)).encode()) < 2_000_000


def test_what_was_not_tested_has_no_plot(facts):
    untested = copy.deepcopy(facts)
    for row in untested["encodings"]:
        for summary in row["summary"].values():
            summary["versus_first"] = None
    assert 'data-figure="outcome.difference"' in written(facts)
    page = written(untested)
    assert 'data-figure="outcome.difference"' not in page
    assert "not tested" in page


def test_the_first_is_called_the_baseline(page, facts):
    assert f"relative to the baseline, {facts['encodings'][0]['name']}" in page.text
    assert "the first encoding" not in page.text


def test_the_terminal_prints_the_differences_of_the_page(facts):
    """Fails if one of them rounds otherwise: 3.41 there and 3.5 here."""
    read = typed(facts)
    console = Console(file=io.StringIO(), width=200)
    print_table(console, read)
    printed = console.file.getvalue()
    for row in main_table(read).cells()[1:]:
        name, score, _, difference, interval, p, verdict = row[:7]
        (line,) = (x for x in printed.splitlines() if x.startswith(f"`{name.text}` on `test`"))
        assert f": {difference.text} BLEU against" in line
        assert f"interval {interval.text}, p (Holm) {p.text}: {verdict.text}" in line
        assert verdict.beside.removeprefix("±") in line
        assert re.search(rf"^ ?{re.escape(name.text)} +{score.text} ", printed, re.MULTILINE)


def test_sentences_are_counted_above_the_examples(page, facts):
    first, *others = facts["encodings"]
    base = first["cells"][0]["scores"]["test"]["sentence_bleu"]
    for row in others:
        gains = [
            here - there
            for here, there in zip(
                row["cells"][0]["scores"]["test"]["sentence_bleu"], base, strict=True
            )
        ]
        better, worse = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        assert (
            f"{row['name']} is better than {first['name']} in {better} of {len(base)} sentences, "
            f"worse in {worse} and equal in {len(base) - better - worse} "
        ) in page.text


@given(st.integers(1, 300))
def test_examples_show_the_spread(count):
    """The first five are the ends and the quartiles, and no sentence is shown twice."""
    order = list(range(count))[::-1]
    chosen = spread_out(order)
    assert len(set(chosen)) == len(chosen) == min(count, 20)
    if count > 5:
        assert chosen[0] == order[0]
        assert chosen[4] == order[-1]
        assert abs(chosen[2] - (count - 1) / 2) <= 0.5


def test_a_long_sentence_is_cut_behind_a_word_in_the_menu(facts):
    maps = attention(facts)
    maps["sentences"][0]["source"] = "ungeheuerlichkeiten " * 20
    page = written(facts, maps)
    assert ">ungeheuerlichkeiten ungeheuerlichkeiten ungeheuerlichkeiten …</option>" in page


def test_what_was_imported_is_named_with_its_digest(facts):
    imported = copy.deepcopy(facts)
    imported["config"]["imports"] = [{"source": "/home/me/mine.py", "digest": "ab" * 32}]
    text = Page(written(imported)).text
    assert f"mine.py, SHA-256 {'ab' * 32}" in text


def test_an_interval_without_0_and_no_verdict_are_explained(page, facts):
    """Fails if the note is missing, or is there for one comparison, which needs no correction."""
    assert "an interval can exclude 0 while the verdict is" in interval_note(typed(facts))
    assert interval_note(typed(facts)) in page.text
    assert interval_note(typed(results(("sinusoidal", "rotary"), diverged=False))) == ""


def test_the_split_long_is_explained(facts):
    built_in = copy.deepcopy(facts)
    built_in["corpus"]["name"] = "phrases"
    said = legend(typed(built_in))
    assert re.search(r"Sentences of the split `long` have \d+–\d+ words", said)
    assert "Sentences of the split" not in legend(typed(facts))


def test_the_report_and_figures_import_plot_libraries_only_where_they_draw():
    for path in [*SOURCE.glob("figures/*.py"), *SOURCE.glob("lab/report/*.py")]:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                assert not re.search("plotly|matplotlib", ast.unparse(node)), path


def _unpacked(text: str) -> list[float]:
    digits = [BASE64.index(letter) for letter in text]
    pairs = zip(digits[::2], digits[1::2], strict=True)
    return [(64 * high + low - 2048) / 1000 for high, low in pairs]


def test_every_color_of_the_page_is_one_of_the_schemes(page):
    """Fails if the style or the script has a color of its own, or names one that is not there."""
    style, script = page.held["style"][0], page.held["script"][2]
    named = set(re.findall(r"""["(]--(\w+)""", style + script))
    assert {"page", "ink", "soft", "faint", "above", "below"} <= named
    assert named - {"gap", "panel"} <= set(vars(LIGHT))
    assert script_and_style_colors(style.replace(scheme_css(), "") + script) == []
    assert scheme_css() in style


def script_and_style_colors(text):
    return re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\((?!0,0,0,0\))", text)


@given(WORDS, WORDS)
def test_marking_differences_changes_no_word(hypothesis, reference):
    marked = mark_differences(hypothesis, reference)
    assert Page(marked.replace('<span class="gap">[…]</span>', "")).text == hypothesis
    assert ("<" in marked) == (hypothesis.split() != reference.split())
