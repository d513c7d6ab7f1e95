"""Colors are visible on both pages and differ, for color-blind readers too."""

from __future__ import annotations

import math
from itertools import combinations

from ropewalk.figures.drawing import COLORS, DARK, DARK_COLORS, DARK_PAGE, LIGHT, LIGHT_PAGE, style


def test_colors_can_be_seen_and_told_apart():
    for color in COLORS:
        assert min(_contrast(color, LIGHT_PAGE), _contrast(color, DARK_PAGE)) >= 3
    for color in DARK_COLORS:
        assert min(_contrast(color, DARK.page), _contrast(color, DARK.wash)) >= 4.5
    for one, other in (*combinations(COLORS, 2), *combinations(DARK_COLORS, 2)):
        for name, matrix in _SEEN_AS.items():
            assert _distance(one, other, matrix) > 12, (one, other, name)
    looks = [style(place) for place in range(35)]
    assert len({(look.color, look.symbol) for look in looks}) == 35
    assert len({(look.color, look.dash, look.line) for look in looks[:20]}) == 20


def test_words_and_shades_can_be_read_in_both_schemes():
    """4.5 : 1 for words and 3 : 1 for lines (WCAG 2.2, 1.4.3 and 1.4.11)."""
    assert (LIGHT.page, DARK.page) == (LIGHT_PAGE, DARK_PAGE)
    for scheme in (LIGHT, DARK):
        for words in (scheme.ink, scheme.soft):
            assert min(_contrast(words, scheme.page), _contrast(words, scheme.wash)) >= 4.5
        assert _contrast(scheme.quiet, scheme.page) >= 3
        for matrix in _SEEN_AS.values():
            assert min(_distance(end, scheme.page, matrix) for end in _ends(scheme)) > 40
            assert _distance(*_ends(scheme), matrix) > 40
        assert min(_contrast(end, scheme.page) for end in _ends(scheme)) >= 4.5


def _ends(scheme):
    return scheme.above, scheme.below


def _linear(color: str) -> list[float]:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def _times(matrix, vector):
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def _contrast(one: str, other: str) -> float:
    light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in map(_linear, (one, other)))
    return (light[1] + 0.05) / (light[0] + 0.05)


def _distance(one: str, other: str, matrix) -> float:
    """CIE76 distance of two colors as seen through a matrix on linear RGB."""
    return math.dist(*(_lab(_times(matrix, _linear(color))) for color in (one, other)))


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
