"""The gallery shows every figure, as its code draws it.

These fail if a public figure has no picture in docs/gallery.md, or if the code there draws another
picture or other words than the committed ones.
"""

import base64
import io
import re
import runpy
from pathlib import Path

import pytest

from ropewalk import figures
from ropewalk.figures.drawing import DARK, LIGHT, NARROW

ROOT = Path(__file__).parents[1]
FOLDER, SCHEMES = ROOT / "docs" / "pictures" / "gallery", ("light", "dark")
WIDTHS = ("", "-narrow")
PAGE = (ROOT / "docs" / "gallery.md").read_text("utf-8")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
IMAGE = re.compile(r"data:image/png;base64,([A-Za-z0-9+/=\s]+)")
COLOR = re.compile(r"#[0-9a-f]{6}\b")
HASHED = re.compile(r'\b([a-z])[0-9a-f]{10}\b|(id="|#)(?:image|[a-z])[0-9a-f]{10}')


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("matplotlib", reason="draws the pictures: pip install 'ropewalk[lab]'")
    return runpy.run_path(str(ROOT / "docs" / "gallery.py"))


@pytest.fixture(scope="module")
def drawn(script):
    return script["pictures"](PAGE)


def pixels(code: str):
    image = pytest.importorskip("PIL.Image")
    numpy = pytest.importorskip("numpy")
    return numpy.asarray(image.open(io.BytesIO(base64.b64decode(code)))).astype(int)


def assert_same_text(found: str, committed: str) -> None:
    """Words are equal; numbers may differ in the last digits between processors."""
    assert NUMBER.sub("#", found) == NUMBER.sub("#", committed)
    numbers = ([float(n) for n in NUMBER.findall(text)] for text in (found, committed))
    assert next(numbers) == pytest.approx(next(numbers), rel=2e-2, abs=1e-3)


def test_every_figure_is_in_it():
    called = set(re.findall(r"figures\.(\w+)\(", PAGE))
    assert called == set(figures.__all__) - {"Picture"}


def test_the_page_is_what_the_script_writes(script, drawn):
    assert_same_text(script["page"](PAGE, drawn), PAGE)


def as_dark(light: str) -> str:
    """A light file in dark colors; data without images have the same in both."""
    around = ("page", "ink", "soft", "quiet", "faint", "wash")
    colors = {getattr(LIGHT, each): getattr(DARK, each) for each in around}
    return COLOR.sub(lambda found: colors.get(found[0], found[0]), light)


@pytest.mark.longer
@pytest.mark.slow
def test_the_pictures_are_what_the_code_draws(drawn):
    """Dark ones are drawn where they have images; the others are the light ones in dark colors."""
    files = [
        FOLDER / f"{stem}{width}-{s}.svg" for stem in drawn for width in WIDTHS for s in SCHEMES
    ]
    assert set(files) == set(FOLDER.iterdir())
    for path in files:
        stem, _, scheme = path.stem.rpartition("-")
        narrow = stem.endswith("-narrow")
        committed = path.read_text("utf-8")
        if scheme == "dark" and not IMAGE.search(committed):
            light = path.with_name(f"{stem}-light.svg").read_text("utf-8")
            assert HASHED.sub("", committed) == HASHED.sub("", as_dark(light))
            continue
        picture = drawn[stem.removesuffix("-narrow")]
        content = picture.svg(dark=scheme == "dark", narrow=narrow)
        points = float(re.search(rb'width="([\d.]+)pt"', content)[1])
        assert not narrow or points <= 72 * NARROW  # so that a phone shows words in their size
        assert len(content) < 150_000
        texts = [content.decode("utf-8"), committed]
        images = [IMAGE.findall(text) for text in texts]
        for found, wanted in zip(*images, strict=True):
            assert abs(pixels(found) - pixels(wanted)).max() <= 2, path
        assert_same_text(*(HASHED.sub("", IMAGE.sub("", text)) for text in texts))
