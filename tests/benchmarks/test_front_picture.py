"""The pictures of benchmarks show the committed numbers.

Fails if the script does not draw README's committed files again, if a library that was timed is not
in its picture, or if a page shows another picture or other words than the script writes.
"""

import json
import re

import pytest
from scripts import load_scripts

NUMBER = re.compile(r"-?\d+\.\d+")

draw, front_picture = load_scripts("benchmarks", "draw", "front_picture")


@pytest.fixture(scope="module")
def drawn():
    pytest.importorskip("matplotlib", reason="draws the pictures: pip install 'ropewalk[lab]'")
    return draw.pictures()


@pytest.mark.slow  # draws with matplotlib
def test_the_script_draws_readme_s_picture_again(drawn):
    """The words are equal; numbers may differ in the last digits between processors."""
    picture, folder, form = drawn["error-and-speed"]
    for name, content in picture.both("error-and-speed", form, narrow=True).items():
        texts = (content.decode(), (folder / name).read_text("utf-8"))
        again, committed = ([float(n) for n in NUMBER.findall(text)] for text in texts)
        assert NUMBER.sub("#", texts[0]) == NUMBER.sub("#", texts[1])
        assert again == pytest.approx(committed, abs=1e-3)


def test_pages_show_the_pictures_and_their_words(drawn):
    shown = set()
    for path in draw.PAGES:
        text = path.read_text("utf-8")
        assert draw.page(path, drawn) == text
        shown |= {match[2] for match in draw.MARKED.finditer(text)}
    assert shown == set(drawn)
    for name, (_, folder, form) in drawn.items():
        for scheme in ("light", "dark"):
            assert (folder / f"{name}-{scheme}.{form}").stat().st_size < 150_000
        assert not (folder / f"{name}.{form}").exists()


def test_it_shows_every_library_that_was_timed(drawn):
    libraries = json.loads((draw.RESULTS / "libraries.json").read_text("utf-8"))
    for dark in (False, True):
        figure = drawn["error-and-speed"].picture.figure(dark=dark)
        shown = {label.get_text() for label in figure.axes[1].get_yticklabels()}
        timed = {row["name"] for table in libraries["tables"] for row in table["rows"]}
        limits = {r["name"] for table in libraries["tables"] for r in table["rows"] if r["limit"]}
        assert shown == timed - limits - {"ropewalk without its kernel"}


@pytest.mark.parametrize("name", ["cost", "exactness"])
def test_every_line_is_drawn_and_named(drawn, name):
    picture, numbers = drawn[name].picture, json.loads((draw.RESULTS / f"{name}.json").read_text())
    axes, *_ = picture.figure().axes
    names = [label for _, label in zip(*axes.get_legend_handles_labels(), strict=True)]
    wanted = numbers["sweep"] if name == "exactness" else [row["name"] for row in numbers["rows"]]
    assert names == list(wanted)
    if name == "exactness":
        first = next(iter(numbers["sweep"].values()))
        assert [list(point) for point in axes.lines[0].get_xydata()] == first
    else:
        assert set(axes.lines[0].get_ydata()) == {1}  # no encoding, relative to itself
    assert all(f"{each}, " in picture.alt for each in wanted)
