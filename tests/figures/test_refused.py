"""What figures refuse: the error names the argument, and what it must be."""

import math
import re

import pytest

from ropewalk import figures
from ropewalk.figures import Curve, Outcome
from ropewalk.figures.plot_data import table

pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

ONE, TWO = [1.0], [1.0, 1.0]
HEAD, OTHER = [[0.2, 0.8], [1.0, 0.0]], [[0.5, 0.5], [0.1, 0.9]]
NOT_A_NUMBER = float("nan")


def dials(count=1, positions=(0,)):
    return figures.pair_planes([1.0] * count, positions)


def maps(stack):
    return figures.attention_maps({"a": stack})


def tables(sin, positions=None):
    return figures.cos_sin_tables([[1.0]] * 3, sin, positions)


def scores(**more):
    return figures.score_by_distance([1.0] * 8, [0, 1], **more)


def moved(starts, gap, numbers):
    return figures.moved_together(starts, gap, {"a": numbers})


def outcome(*fields):
    return figures.score_by_encoding({"a": Outcome(*fields)})


def losses(*curve):
    return figures.loss_curves({"a": [Curve(3, *curve)]})


def contexts(**more):
    given = {"contexts": [128, 256], "losses": {"a": [3.0, 4.0]}, **more}
    return figures.loss_by_context(given.pop("contexts"), given.pop("losses"), **given)


def waves(**more):
    return figures.wavelengths_by_pair({"plain": [6.28, 62.8], "p-RoPE": [6.28, math.inf]}, **more)


def usage(norms, wavelengths):
    return figures.frequency_usage({"q": norms}, wavelengths)


def angles(positions, numbers):
    return figures.angle_error(positions, {"a": numbers})


WAYS = {
    "at most 64 numbers, one for each dial, got 65; choose some": lambda: dials(65),
    "at most 64 numbers for 64 dials": lambda: dials(64, range(65)),
    "dpi must be at least 1, got 0": lambda: dials().png(dpi=0),
    "colors must be at least 2, got 1": lambda: dials().png(colors=1),
    "at most 256, got 257": lambda: dials().png(colors=257),
    "form must be 'svg' or 'png'": lambda: dials().both("a", "gif"),
    "at most 4 numbers, one for each panel, got 5": lambda: figures.corkscrew([1.0] * 5, [0, 1]),
    "parts must be one for each of the 1 wavelengths": lambda: figures.head_by_pair(
        [[1.0]], [6.3], [0.5], [0], {"a": [0.0]}, pair_of_tokens=(0, 0)
    ),
    "key must be below 1, got 1": lambda: figures.head_by_pair(
        [[1.0]], [6.3], [0.5, 0.0], [0], {"a": [0.0]}, pair_of_tokens=(0, 1)
    ),
    "at most 160 turns, got 318 at 1 rad": lambda: figures.corkscrew([1.0], [0, 2000]),
    "cos and sin must have the same shape, got (3, 1) and (1, 1)": lambda: tables([[1.0]]),
    "positions must have one number for each of the 3 rows of cos": lambda: tables(
        [[0.0]] * 3, [0, 1]
    ),
    "positions must be evenly spaced, got steps from 1.0 to 4.0": lambda: tables(
        [[0.0]] * 3, [0, 1, 5]
    ),
    "x must have at most 2^20 numbers, got shape (1025, 1024); choose some rows, such as x[::8]": (
        lambda: table("x", [[0.0] * 1024] * 1025)
    ),
    "maps['a'] must have layers of as many heads each": lambda: maps([[HEAD], [HEAD, OTHER]]),
    "all of the same size, got [2] heads and sizes": lambda: maps([[HEAD, [[1.0]]]]),
    "maps['a'] must have layers": lambda: maps([]),
    "maps['a'][0][0] must be rows of numbers": lambda: maps([[[1.0]]]),
    "pair must be below 8, the number of pairs, got 8": lambda: scores(pair=8),
    "q and k must be given together, got only q": lambda: scores(q=[[1.0, 0.0]] * 8),
    "q must have the shape (8, 2), two numbers for each frequency, got (8, 1)": lambda: scores(
        q=[[1.0]] * 8, k=[[1.0]] * 8
    ),
    "measured['m'] must have one number for each of the 2": lambda: scores(measured={"m": ONE}),
    "measured must not use the name of a line of the rope, got 'all 8 pairs'": lambda: scores(
        measured={"all 8 pairs": TWO}
    ),
    "starts must have at most 24 numbers": lambda: moved(range(25), 1, [0.0] * 25),
    "gap must be at least 1, got 0": lambda: moved([0, 1], 0, TWO),
    "scores['a'] must have one number for each of the 2 starts, got 1": lambda: moved(
        [0, 1], 1, ONE
    ),
    "vectors['a'] must have at most 1,024 positions, got 1,025": lambda: (
        figures.position_similarity({"a": [[1.0]] * 1025})
    ),
    "biases['b'] must have one number for each of the 2 d": lambda: figures.bias_by_distance(
        {"a": [TWO], "b": [ONE]}
    ),
    "scores['a'] must have one number for each of the 2 bins, got 1": lambda: (
        figures.score_by_length(["1", "2"], {"a": [ONE]})
    ),
    "outcomes['a'].difference must be a difference, the low end and the high end": lambda: outcome(
        ONE, 1.0, (2.0, 2.5, 3.0)
    ),
    "outcomes['a'].values must be finite, got inf": lambda: outcome((math.inf,), 1.0),
    "training['a'], seed 3: loss must have one numb": lambda: losses((1.0, 2.0), ONE),
    "training['a'], seed 3: x must increase": lambda: losses((2.0, 1.0), TWO),
    "seed 3: loss must be finite, got nan": lambda: losses(ONE, (NOT_A_NUMBER,)),
    "contexts must increase": lambda: contexts(contexts=[256, 128]),
    "contexts must be above 0": lambda: contexts(contexts=[0, 128]),
    "losses must have at least one entry": lambda: contexts(losses={}),
    "losses['a'] must have one number for each of the 2": lambda: contexts(losses={"a": ONE}),
    "halves must have names of losses, got 'b'": lambda: contexts(halves={"b": [0.1, 0.1]}),
    "halves['a'] must not be negative, got -0.1": lambda: contexts(halves={"a": [0.1, -0.1]}),
    "original must be": lambda: contexts(original=-1),
    "offsets and changes must be given together": lambda: contexts(offsets=[1, 2]),
    "must name ropes of wavelengths (plain, p-RoPE), got 'YaRN'": lambda: waves(relative_to="YaRN"),
    "contexts must be above 0, got 0.0 at index 0": lambda: waves(contexts={"none": 0}),
    "wavelengths must not decrease": lambda: usage([TWO], [628.0, 6.28]),
    "wavelengths must not decrease, got [nan": lambda: usage([TWO], [math.inf, 6.28]),
    "must name each of norms, got none for 'q'": lambda: usage([TWO], {"keys": [6.28, 628.0]}),
    "norms['q'] must have one number for each of the 2": lambda: usage([ONE], [6.28, 628.0]),
    "norms['q'] must have a number above 0 in each row": lambda: usage([[0.0, 0.0]], [6.28, 628.0]),
    "positions must be above 0, got 0.0 at index 0": lambda: angles([0, 1], [0.0, 0.0]),
    "errors['a'] must be from 0 to π radians, got 3.5 at position 2": lambda: angles(
        [1, 2], [0.0, 3.5]
    ),
    "got -0.1 at position 2; subtract full turns": lambda: angles([1, 2], [0.0, -0.1]),
    "errors['a'] must have one number for each of the 2 positions, got 1": lambda: angles(
        [1, 2], [0.0]
    ),
}


@pytest.mark.parametrize("message", WAYS)
def test_a_wrong_argument_is_refused(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        WAYS[message]()
