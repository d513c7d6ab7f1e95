"""README's picture shows the committed numbers.

Fails if the script does not draw the committed files again, if a library that was timed is not in
the picture, or if README shows another file.
"""

import json
import re
from pathlib import Path

import pytest
from scripts import load_scripts

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"-?\d+\.\d+")

(front_picture,) = load_scripts("benchmarks", "front_picture")


@pytest.mark.slow  # draws with matplotlib
@pytest.mark.parametrize("theme", front_picture.THEMES)
def test_the_script_draws_it_again(theme):
    """The words are equal; numbers may differ in the last digits between processors."""
    name = f"{front_picture.NAME}-{theme}.svg"
    path = front_picture.PICTURES / name
    committed, drawn = path.read_text("utf-8"), front_picture.pictures()[name].decode()
    assert NUMBER.sub("#", drawn) == NUMBER.sub("#", committed)
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (drawn, committed)]
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-3)
    assert str(path.relative_to(ROOT)) in (ROOT / "README.md").read_text("utf-8")


def test_it_shows_every_library_that_was_timed():
    libraries = json.loads((front_picture.RESULTS / "libraries.json").read_text("utf-8"))
    exactness = json.loads((front_picture.RESULTS / "exactness.json").read_text("utf-8"))
    figure = front_picture.draw(exactness, libraries, front_picture.THEMES["light"])
    shown = {label.get_text() for label in figure.axes[1].get_yticklabels()}
    timed = {row["name"] for table in libraries["tables"] for row in table["rows"]}
    limits = {row["name"] for table in libraries["tables"] for row in table["rows"] if row["limit"]}
    assert shown == timed - limits - {"ropewalk without its kernel"}
