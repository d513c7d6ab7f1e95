"""The report, the figures and the published folder, read back from what was written.

Fails where a page would load anything from elsewhere, let a corpus sentence become markup, leave
out or change a number, say "better" where no difference was shown, or draw other numbers than it
was given; and where a published folder holds a sentence of the corpus, or differs the next time.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic_run import AWKWARD, attention, examples, results, write_run

from ropewalk.figures import interactive, static
from ropewalk.figures.data import Curve, Outcome, ceiling, mean_curve, smoothed
from ropewalk.figures.html import script_json
from ropewalk.figures.palette import COLOURS, DARK_PAGE, LIGHT_PAGE, style
from ropewalk.lab.report import write_report
from ropewalk.lab.report.findings import findings, headline
from ropewalk.lab.report.formats import format_duration, format_number, format_p_value
from ropewalk.lab.report.metrics import digits_of_difference
from ropewalk.lab.report.page import pack_weights, report
from ropewalk.lab.report.publish import publish, readable_json
from ropewalk.lab.report.sections import mark_differences

BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class Page(HTMLParser):
    """What a browser would find in a page: elements, what they link to, text, scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.held: dict[str, list[str]] = {"script": [], "style": []}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        linking = {"src", "href", "srcset", "data", "poster", "action", "xlink:href"}
        self.links += [value for name, value in attrs if name in linking]
        if tag in self.held:
            self.held[tag].append("")

    def handle_data(self, data):
        inside = self.tags[-1] if self.tags else ""
        if inside in self.held and self.cdata_elem == inside:
            self.held[inside][-1] += data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    @property
    def data(self):
        return json.loads(self.held["script"][0])


@pytest.fixture(scope="module")
def facts():
    return results()


@pytest.fixture(scope="module")
def page(facts, tmp_path_factory):
    path = write_report(write_run(tmp_path_factory.mktemp("run"), facts))
    assert path.name == "report.html"
    assert path.stat().st_size < 10_000_000
    return Page(path.read_text(encoding="utf-8"))


# The page


def test_it_loads_nothing_from_elsewhere(page):
    assert all(link.startswith(("#", "data:")) for link in page.links)
    assert not re.search(r"url\(|@import", page.held["style"][0])
    assert not re.search(r"fetch|XMLHttp|import|https?://(?!www\.w3\.org/)", page.held["script"][2])


def test_a_sentence_stays_text(page):
    assert len(page.held["script"]) == 3  # data, plotly, the page's own
    assert "b" not in page.tags
    assert page.text.count(AWKWARD) == 2  # a translation, and a choice of sentence
    assert "German to English, corpus <ä>" in page.text


@given(
    st.recursive(
        st.text() | st.floats() | st.none(),
        lambda held: st.lists(held) | st.dictionaries(st.text(), held),
    )
)
def test_json_in_a_script_can_not_end_it(value):
    text = script_json(value)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text) == _without_nan(value)


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
            wanted += [cell["status"], f"{cell['steps']:,}", format_number(cell["tokens_per_s"], 0)]
            wanted += [
                format_number(cell["peak_memory_bytes"] / 2**20, 0),
                format_number(cell["validation_loss"], 3),
            ]
            wanted += [format_number(score["bleu"], 2) for score in cell["scores"].values()]
        wanted += [format_number(v, 3) for v in row["equal_time"]["validation_loss"]["values"]]
        missing = [text for text in wanted if text not in page.text]
        assert not missing
    conditions = [facts["command"], facts["commit"], "1 h 12 min in 2 sittings", "2.13.0"]
    overlap = "6 pairs of 120 (5.0 %); source sentences 17, target sentences 19"
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
    for against, field in (("steps", "step"), ("seconds", "seconds")):
        traces = figures["loss"][against]["validation"]["data"]
        first = facts["encodings"][0]["cells"][0]["validation"]
        assert traces[0]["x"] == pytest.approx([point[field] for point in first], abs=0.01)
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
    whole = len(report(facts, examples(facts), maps).encode())
    less = report(facts, examples(facts), maps, limit=whole - 1)
    assert len(less.encode()) < whole
    assert "The maps of 2 of these 3 sentences are here" in less
    assert "There are no maps to show" in report(facts, examples(facts), maps, limit=1)


def test_it_opens_with_nothing_but_one_encoding():
    alone = results(("rotary",), diverged=False)
    text = Page(report(alone, examples(alone), attention(alone))).text
    assert "rotary reaches 30.6 BLEU on test (means of 2 seeds)." in text
    assert "against" not in text


def test_importing_the_report_pulls_in_no_plot_library():
    code = "import ropewalk.lab.report, sys; print({'plotly', 'matplotlib'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"


# What it says


def test_the_headline_says_no_more_than_the_test():
    facts = results(("sinusoidal", "learned"), diverged=False)
    versus = facts["encodings"][1]["summary"]["test"]["versus_first"]
    for verdict, said in (
        ("better", "On test, learned is better than sinusoidal (30.6 against 37.8 BLEU"),
        ("worse", "On test, learned is worse than sinusoidal"),
        ("no difference shown", "On test, no difference is shown between learned and sinusoidal"),
    ):
        versus["verdict"] = verdict
        assert headline(facts).startswith(said)
    facts["encodings"][1]["summary"]["test"]["versus_first"] = None
    assert headline(facts).startswith("On test, learned was not tested against sinusoidal")


def test_models_that_have_not_learned_are_not_ranked():
    facts = results(("sinusoidal", "learned"), diverged=False)
    for row in facts["encodings"]:
        bleu = row["summary"]["test"]["bleu"]
        bleu["mean"], bleu["values"] = bleu["mean"] / 20, [value / 20 for value in bleu["values"]]
    said = "No model has learned to translate test: all are below 5 BLEU"
    assert headline(facts).startswith(said)
    assert "learned is better" not in headline(facts)
    facts["encodings"][1]["summary"]["test"]["bleu"] = {"mean": None, "values": [30.0, None]}
    assert "No model has learned" not in headline(facts)  # one has, and another seed has no score


def test_a_small_difference_is_not_rounded_away():
    facts = results(("sinusoidal", "learned"), diverged=False)
    versus = {"difference": 0.04, "low": 0.01, "high": 0.07, "p_holm": 0.01, "verdict": "better"}
    facts["encodings"][1]["summary"]["test"]["versus_first"] = versus
    facts["encodings"][1]["summary"]["test"]["bleu"]["mean"] = 37.83
    assert "37.83 against 37.79 BLEU" in headline(facts)
    assert "difference +0.04, 95 % interval +0.01 to +0.07, p = 0.010" in headline(facts)


def test_several_verdicts_are_kept_apart():
    facts = results(("none", "sinusoidal", "rotary(theta=1e6)", "learned"), diverged=False)
    assert headline(facts) == (
        "Against none (27.9 BLEU on test, means of 2 seeds), sinusoidal (+9.9) and "
        "rotary(theta=1e6) (+12.3) are better; no difference is shown for learned (+2.7)."
    )
    assert "not against the others" in findings(facts)[-1]


def test_where_it_did_not_win_is_said():
    facts = results(("sinusoidal", "rotary(theta=1e6)"), diverged=False)
    said = " ".join(findings(facts))
    assert (
        "is not ahead of sinusoidal in the mean of 2 of 10 measures taken: training speed and "
        "peak memory." in said
    )
    for cell in facts["encodings"][1]["cells"]:
        cell["scores"]["test"]["by_length"][1]["bleu"] = 1.0
    assert (
        "3 of 10 measures taken: training speed, peak memory and test sentences of 9 words."
        in " ".join(findings(facts))
    )


def test_one_seed_is_said_to_be_one():
    facts = results(("sinusoidal", "rotary(theta=1e6)"), diverged=False)
    for row in facts["encodings"]:
        del row["cells"][1:]
    assert "one seed" in headline(facts)
    assert findings(facts)[-1].startswith("With one seed each")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(12.44, "12.4 s"), (59.99, "60.0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations(seconds, said):
    assert format_duration(seconds) == said


WORDS = st.lists(st.text("aäB<&>", min_size=1, max_size=4), max_size=8).map(" ".join)


@given(WORDS, WORDS)
def test_marking_differences_changes_no_word(hypothesis, reference):
    marked = mark_differences(hypothesis, reference)
    assert Page(marked.replace('<span class="gap">[…]</span>', "")).text == hypothesis
    assert ("<" in marked) == (hypothesis.split() != reference.split())


# Figures


CURVES = st.lists(st.floats(0, 10), min_size=1, max_size=30)


@given(CURVES, st.floats(-5, 5))
def test_mean_of_curves(losses, shift):
    xs = tuple(float(x) for x in range(len(losses)))
    one = Curve(1, xs, tuple(losses))
    other = Curve(2, xs, tuple(loss + 2 * shift for loss in losses))
    lost = Curve(3, xs, tuple(99.0 for _ in losses), diverged=True)
    mean = mean_curve([one, other, lost])
    assert mean is not None
    assert mean.x == xs
    assert mean.loss == pytest.approx([loss + shift for loss in losses])


def test_mean_of_curves_on_different_grids():
    straight = Curve(1, (0.0, 10.0), (0.0, 10.0))
    finer = Curve(2, (2.0, 4.0, 12.0), (4.0, 6.0, 14.0))
    mean = mean_curve([finer, straight])
    assert mean is not None
    assert (mean.x, mean.loss) == ((2.0, 4.0, 10.0), pytest.approx((3.0, 5.0, 11.0)))


@given(CURVES, st.sampled_from([1, 3, 5]))
def test_smoothing(losses, width):
    curve = Curve(1, tuple(map(float, range(len(losses)))), tuple(losses))
    found = smoothed(curve, width)
    assert found.x == curve.x
    assert min(losses) - 1e-9 <= min(found.loss) <= max(found.loss) <= max(losses) + 1e-9
    if width == 1:
        assert found == curve


def test_the_frame_leaves_out_the_fall_and_nothing_else():
    curve = Curve(
        1,
        tuple(map(float, range(101))),
        (50.0, 20.0, 15.0, 12.0, *(9.0 - i / 100 for i in range(97))),
    )
    assert ceiling([curve]) == 9.0


OUTCOMES = {
    "sinusoidal": Outcome((36.5, 37.9), 37.2),
    "rotary": Outcome((39.0, None), None, (2.4, 1.1, 3.7)),
}


def test_plotly_outcome_is_what_was_given():
    traces = interactive.score_by_encoding(OUTCOMES)["data"]
    assert [(t["x"], t["y"]) for t in traces] == [
        ([36.5, 37.9], [0, 0]),
        ([37.2], [0]),
        ([39.0], [1]),
    ]
    (point,) = interactive.differences(OUTCOMES)["data"]
    assert (point["x"], point["y"]) == ([2.4], [1])
    assert point["error_x"]["array"] == pytest.approx([1.3])
    assert point["error_x"]["arrayminus"] == pytest.approx([1.3])
    assert point["marker"]["color"] == style(1).colour


def test_matplotlib_outcome_is_what_was_given():
    scores, difference = static.score_by_encoding(OUTCOMES).axes
    assert [list(line.get_xdata()) for line in scores.lines] == [[36.5, 37.9], [37.2], [39.0]]
    bar = difference.containers[0]
    assert bar.lines[0].get_xdata() == [2.4]
    ends = bar.lines[2][0].get_segments()[0]
    assert ends.tolist() == [pytest.approx([1.1, 1]), pytest.approx([3.7, 1])]


def test_matplotlib_lengths_and_losses_are_what_was_given():
    axes = static.score_by_length(["1–5", "6"], {"none": [[30.0, 20.0], [32.0, 26.0]]}).axes[0]
    assert [list(line.get_ydata()) for line in axes.lines] == [
        [31.0, 23.0],
        [30.0, 20.0],
        [32.0, 26.0],
    ]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1–5", "6"]
    curve = Curve(1, (1.0, 2.0), (3.0, 2.5))
    figure = static.loss_curves({"a": [curve]}, {"a": [curve], "b": [curve]}, "steps")
    assert [[list(line.get_ydata()) for line in axes.lines] for axes in figure.axes] == [
        [[3.0, 2.5]] * 2,
        [[3.0, 2.5]] * 4,
    ]
    assert figure.axes[1].lines[2].get_color() == style(1).colour


def test_matplotlib_maps_are_what_was_given():
    weights = [[0.2, 0.8], [1.0, 0.0]]
    axes = static.attention_map(weights, ["a", "b"], ["c", "d"]).axes[0]
    assert axes.images[0].get_array().tolist() == weights
    assert [label.get_text() for label in axes.get_xticklabels()] == ["c", "d"]
    other = [[0.5, 0.5], [0.1, 0.9]]
    figure = static.attention_heads({"none": [[weights, other]], "rotary": [[other, weights]]})
    shown = [axes.images[0].get_array().tolist() for part in figure.subfigs for axes in part.axes]
    assert shown == [weights, other, other, weights]
    assert {
        image.norm.vmax for part in figure.subfigs for a in part.axes for image in a.images
    } == {1}


def test_a_diverged_curve_ends_in_a_cross_and_out_of_the_mean():
    curves = {"a": [Curve(1, (1.0, 2.0), (3.0, 2.0)), Curve(2, (1.0,), (9.0,), diverged=True)]}
    traces = interactive.loss_curves(curves, "steps")["data"]
    assert [t["y"] for t in traces] == [[3.0, 2.0], [9.0], [9.0], [3.0, 2.0]]
    assert traces[2]["marker"]["symbol"] == "x"
    assert [t["showlegend"] for t in traces] == [False, False, False, True]
    assert static.loss_curves(curves, curves, "steps").axes[0].lines[2].get_marker() == "x"


def test_colours_can_be_seen_and_told_apart():
    for colour in COLOURS:
        assert min(_contrast(colour, LIGHT_PAGE), _contrast(colour, DARK_PAGE)) >= 3
    for one, other in combinations(COLOURS, 2):
        for name, matrix in _SEEN_AS.items():
            assert _distance(one, other, matrix) > 12, (one, other, name)
    looks = [style(place) for place in range(35)]
    assert len({(look.colour, look.symbol) for look in looks}) == 35
    assert len({(look.colour, look.dash, look.line) for look in looks[:20]}) == 20


# What is published


def test_published_folder(tmp_path, facts):
    run = write_run(tmp_path / "run", facts)
    publish(run, tmp_path / "one")
    publish(run, tmp_path / "two")
    files = {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "two").iterdir()}
    assert set(files) == {
        "README.md",
        "results.json",
        "bleu.png",
        "bleu-by-length.png",
        "loss.png",
        "attention.png",
    }
    for name, content in files.items():
        if name.endswith(".png"):
            assert content.startswith(b"\x89PNG")
            assert len(content) < 150_000
    for name in ("README.md", "results.json"):
        text = files[name].decode()
        assert not re.search("grüß|greets|hello|Mann", text)


def test_the_readme_tells_the_numbers(tmp_path, facts):
    publish(write_run(tmp_path / "run", facts), tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert facts["command"] in text
    for row in facts["encodings"]:
        mean = format_number(row["summary"]["test"]["bleu"]["mean"])
        (line,) = re.findall(
            rf"^\| {re.escape(row['name'])}<br>[^|]* \| {mean}<br>.*",
            text,
            re.M,
        )
        assert all(format_number(v) in line for v in row["summary"]["test"]["bleu"]["values"])
    assert "| better |" in text
    assert "| worse |" in text
    assert "corpus &lt;ä&gt;" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1


def test_the_published_numbers_are_the_run_s(tmp_path):
    whole = results(diverged=False)
    publish(write_run(tmp_path / "run", whole), tmp_path / "out")
    assert json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8")) == whole


def test_a_run_that_is_not_finished_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"run must be a finished run's folder, got .*no results\.json"
    ):
        publish(tmp_path, tmp_path / "out")


@given(
    st.recursive(
        st.text() | st.integers() | st.none(),
        lambda held: st.lists(held) | st.dictionaries(st.text(), held),
    )
)
def test_readable_json_is_json(value):
    assert json.loads(readable_json(value)) == value


# Tools


def _unpacked(text: str) -> list[float]:
    digits = [BASE64.index(letter) for letter in text]
    pairs = zip(digits[::2], digits[1::2], strict=True)
    return [(64 * high + low - 2048) / 1000 for high, low in pairs]


def _without_nan(value):
    if isinstance(value, dict):
        return {name: _without_nan(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_without_nan(held) for held in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _linear(colour: str) -> list[float]:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def _times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def _contrast(one: str, other: str) -> float:
    light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(_linear, (one, other)))
    return (light[1] + 0.05) / (light[0] + 0.05)


def _distance(one: str, other: str, matrix) -> float:
    """CIE76 distance of two colours as seen through a matrix on linear RGB."""
    return math.dist(*(_lab(_times(matrix, _linear(colour))) for colour in (one, other)))


def _lab(linear: list[float]) -> tuple[float, float, float]:
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = _times(to_xyz, [min(1.0, max(0.0, c)) for c in linear])
    white = [c / w for c, w in zip(xyz, (0.9505, 1.0, 1.089), strict=True)]
    x, y, z = (c ** (1 / 3) if c > 0.008856 else 7.787 * c + 16 / 116 for c in white)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


_SEEN_AS = {  # Machado, Oliveira and Fernandes (2009), severity 1
    "full sight": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


@given(st.floats(-100, 100) | st.sampled_from([0.0, -0.0, 1e-9, 0.0004, -0.04]))
def test_a_difference_has_the_digits_that_show_it(difference):
    """Fails if a small one is written as nothing, or none at all as a long row of zeros."""
    digits = digits_of_difference({"difference": difference}, {"digits": 1})
    written = float(f"{difference:.{digits}f}")
    if round(difference, 6) == 0:
        assert digits == 1
    else:
        assert written != 0
        assert digits == 1 or abs(difference) < 10 ** (1 - digits)
