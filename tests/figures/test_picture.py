"""Pictures: two schemes, the same bytes each time, files, HTML, and checks of their numbers.

These fail if a picture depends on the user's settings of matplotlib, if an SVG has no words, or if
a wrong argument is drawn.
"""

import base64
import io
import math
import re
import sys

import pytest

from ropewalk import figures
from ropewalk.figures.drawing import DARK, LIGHT, NARROW

matplotlib = pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")
Image = pytest.importorskip("PIL.Image")
ImageChops = pytest.importorskip("PIL.ImageChops")


@pytest.fixture
def picture():
    return figures.pair_planes([1.0, 0.1], range(4))


def test_the_same_numbers_give_the_same_bytes_whatever_the_settings(picture):
    before = picture.svg(), picture.png()
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.grid": True}):
        again = figures.pair_planes([1.0, 0.1], range(4))
        assert (again.svg(), again.png()) == before
        assert matplotlib.rcParams["font.size"] == 30
    assert not re.search(rb"\d{4}-\d\d-\d\d|matplotlib v|Matplotlib v", before[0])


def test_an_svg_has_its_words_and_its_alternative_text(picture):
    text = picture.svg().decode()
    assert "0.1 rad per position</text>" in text
    assert picture.alt in text
    assert '<svg role="img" ' in text


@pytest.mark.parametrize(("dark", "scheme"), [(False, LIGHT), (True, DARK)])
def test_a_scheme_has_its_own_page_and_words(picture, dark, scheme):
    text = picture.svg(dark=dark).decode()
    assert f"fill: {scheme.page}" in text
    assert f"fill: {scheme.ink}" in text
    figure = picture.figure(dark=dark)
    assert matplotlib.colors.to_hex(figure.get_facecolor()) == scheme.page


def test_files(picture, tmp_path):
    picture.save(tmp_path / "a.svg", dark=True)
    picture.save(str(tmp_path / "a.png"))
    assert (tmp_path / "a.svg").read_bytes() == picture.svg(dark=True)
    assert (tmp_path / "a.png").read_bytes() == picture.png()
    with pytest.raises(ValueError, match=r"path must end with \.svg or \.png, got 'a\.gif'"):
        picture.save("a.gif")


def test_both_schemes_as_small_files(picture):
    files = picture.both("a"), picture.both("b", "png")
    assert files[0] == {"a-light.svg": picture.svg(), "a-dark.svg": picture.svg(dark=True)}
    assert list(files[1]) == ["b-light.png", "b-dark.png"]
    narrow = picture.both("a", narrow=True)
    assert narrow.items() - files[0].items() == {
        ("a-narrow-light.svg", picture.svg(narrow=True)),
        ("a-narrow-dark.svg", picture.svg(dark=True, narrow=True)),
    }
    for name, scheme in (("b-light.png", LIGHT), ("b-dark.png", DARK)):
        assert len(files[1][name]) < len(picture.png(dpi=120))
        image = Image.open(io.BytesIO(files[1][name]))
        assert image.info["Description"] == picture.alt
        page = image.convert("RGB").getpixel((0, 0))
        assert matplotlib.colors.to_hex([part / 255 for part in page]) == scheme.page
        assert 2 < len(image.getcolors()) <= 128
        whole = Image.open(io.BytesIO(picture.png(dark=scheme is DARK, dpi=120))).convert("RGB")
        most = max(
            high for _, high in ImageChops.difference(image.convert("RGB"), whole).getextrema()
        )
        assert most < 24  # of 255: no line has another color


def test_panels_of_a_narrow_picture_are_below_each_other():
    """Wide: in one row. Each panel of a narrow one is as wide as the others, and none is lost."""
    tables = figures.cos_sin_tables([[1.0, 0.5]], [[0.0, 0.5]])
    wide, narrow = (tables.figure(narrow=narrow) for narrow in (False, True))
    assert (wide.get_figwidth(), narrow.get_figwidth()) == (7.2, NARROW)
    for figure, row in ((wide, True), (narrow, False)):
        figure.draw_without_rendering()
        first, second = (axes.get_position() for axes in figure.axes[:2])
        assert (first.y0 == pytest.approx(second.y0), first.x0 == pytest.approx(second.x0)) == (
            row,
            not row,
        )
    curves = {name: [figures.Curve(1, (1, 2), (3.0, 2.0))] for name in ("rotary", "alibi", "t5")}
    (legend,) = figures.loss_curves(curves).figure(narrow=True).legends
    assert len(legend.get_texts()) == 3


def test_a_notebook_gets_both_schemes_and_one_alternative_text(picture):
    html = picture._repr_html_()
    images = re.findall(r'<img class="ropewalk-(\w+)" alt="" src="[^"]*base64,([^"]+)">', html)
    assert [name for name, _ in images] == ["light", "dark"]
    drawn = [base64.b64decode(code) for _, code in images]
    assert drawn == [picture.svg(), picture.svg(dark=True)]
    assert f'role="img" aria-label="{picture.alt}"' in html
    assert "prefers-color-scheme:dark" in html


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"a figure needs matplotlib.* pip install .*\[lab\]"):
        figures.pair_planes([1.0], [0])


def test_every_public_name_is_there_and_listed():
    assert set(figures.__all__) <= set(dir(figures))
    assert all(getattr(figures, name).__name__ == name for name in figures.__all__)
    with pytest.raises(AttributeError, match=r"module 'ropewalk\.figures' has no attribute 'pie'"):
        figures.pie  # noqa: B018


SMALLEST = {
    "pair_planes": lambda: figures.pair_planes([0.0], [5]),
    "corkscrew": lambda: figures.corkscrew([0.0], [0, 1]),
    "cos_sin_tables": lambda: figures.cos_sin_tables([[0.0]], [[0.0]]),
    "wavelengths_by_pair": lambda: figures.wavelengths_by_pair({"a": [math.inf]}, {"b": 8}),
    "frequency_usage": lambda: figures.frequency_usage({"q": [[1.0]]}, [6.28]),
    "score_by_distance": lambda: figures.score_by_distance([0.0], [0, 1]),
    "moved_together": lambda: figures.moved_together([0], 1, {"a": [0.0]}),
    "position_vectors": lambda: figures.position_vectors({"a": [[0.0]]}),
    "position_similarity": lambda: figures.position_similarity({"a": [[0.0]]}),
    "bias_by_distance": lambda: figures.bias_by_distance({"a": [[0.0]]}),
    "angle_error": lambda: figures.angle_error([1, 2], {"a": [0.0, 0.0]}),
    "loss_by_context": lambda: figures.loss_by_context([1, 2], {"a": [0.0, 0.0]}),
    "loss_curves": lambda: figures.loss_curves({"a": [figures.Curve(1, (), ())]}),
    "score_by_encoding": lambda: figures.score_by_encoding({"a": figures.Outcome((), None)}),
    "score_by_length": lambda: figures.score_by_length(["1"], {"a": []}),
    "attention_maps": lambda: figures.attention_maps({"a": [[[[0.0]]]]}),
    "head_by_pair": lambda: figures.head_by_pair(
        [[0.0]], [math.inf], [0.0, 0.0], [0], {"a": [0.0]}, pair_of_tokens=(0, 0)
    ),
}


def test_every_figure_is_drawn_from_the_fewest_numbers():
    assert set(SMALLEST) == {name for name in figures.__all__ if name[0].islower()}


STILL = {"no pair rotates": lambda: figures.wavelengths_by_pair({"a": [math.inf]})}


@pytest.mark.parametrize("make", (SMALLEST | STILL).values(), ids=SMALLEST | STILL)
def test_the_fewest_numbers_are_drawn_without_a_warning(make):
    picture = make()
    assert "nan" not in picture.alt
    assert "-0 " not in picture.alt
    assert picture.svg()


def test_names_are_written_as_they_are():
    picture = figures.wavelengths_by_pair({"_a$b$": [1.0, 2.0], "<c>": [1.0, 3.0]})
    text = picture.svg().decode()
    assert "_a$b$</text>" in text
    assert "&lt;c&gt;</text>" in text
    assert "&lt;c&gt;" in picture._repr_html_().partition(">")[2]
