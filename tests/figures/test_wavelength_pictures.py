"""Pictures of wavelengths and of errors of angles: drawn numbers are the given ones.

These fail if a rope or a context is not drawn, if a pair that does not rotate is drawn, if the
shares of a head's norm are wrong, or if an error of 0 moves a logarithmic axis.
"""

import math

import pytest

from ropewalk import RotarySpec, figures, scaling

pytest.importorskip("matplotlib", reason="figures: pip install 'ropewalk[lab]'")

ROPES = {"plain": [6.28, 62.8], "p-RoPE": [6.28, math.inf]}


def test_ropes_and_contexts_are_drawn():
    picture = figures.wavelengths_by_pair(ROPES, {"context 50": 50}, dashed=["plain"])
    (axes,) = picture.figure().axes
    assert [line.get_label() for line in axes.lines[:2]] == ["plain", "p-RoPE"]
    assert [line.get_linestyle() for line in axes.lines[:2]] == ["--", "-"]
    assert list(axes.lines[0].get_ydata()) == ROPES["plain"]
    assert math.isnan(axes.lines[1].get_ydata()[1])
    assert set(axes.lines[2].get_ydata()) == {50}
    assert axes.get_yscale() == "log"
    assert b"context 50" in picture.svg()
    assert "plain, 6.28 to 62.8 (of 2 pairs, 1 within context 50 make a full turn)" in picture.alt


def test_no_two_of_six_lines_look_the_same():
    """Fails if the sixth, which repeats the first color, is dashed like a line that was asked."""
    names = ["none", "linear", "ntk", "dynamic", "yarn", "llama3"]
    ropes = {name: [6.28, 62.8 * place] for place, name in enumerate(names, 1)}
    (axes,) = figures.wavelengths_by_pair(ropes, dashed=["none"]).figure().axes
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == len(names)


def test_a_rule_is_drawn_relative_to_the_rope_without_it():
    plain = RotarySpec(head_dim=16)
    linear = RotarySpec(head_dim=16, scaling=scaling.Linear(8))
    ropes = {"plain": plain.wavelengths(), "Linear": linear.wavelengths()}
    picture = figures.wavelengths_by_pair(ropes, relative_to="plain")
    assert picture.data["ratios"] == {"plain": [1.0] * 8, "Linear": pytest.approx([8.0] * 8)}
    axes = picture.figure().axes[0]
    assert list(axes.lines[1].get_ydata()) == picture.data["ratios"]["Linear"]
    assert axes.get_yscale() == "linear"


def test_shares_of_a_norm_are_drawn_in_percent():
    norms = {"queries": [[3.0, 1.0], [0.0, 2.0]], "keys": [[1.0, 1.0], [2.0, 0.0]]}
    picture = figures.frequency_usage(norms, [6.28, 628.0], {"context": 100}, heads_per_layer=1)
    assert picture.data["shares"]["queries"] == [[0.9, 0.1], [0.0, 1.0]]
    images = [axes.images[0] for axes in picture.figure().axes if axes.images]
    assert images[0].get_array().tolist() == [[90.0, 10.0], [0.0, 100.0]]
    assert "above context (100) have 55 % of queries and 25 % of keys" in picture.alt
    first = picture.figure().axes[0]
    assert [label.get_text() for label in first.get_yticklabels()] == ["layer 0", "layer 1"]


def test_each_name_may_have_its_own_wavelengths_heads_and_layers():
    """Fails if a pair that does not rotate is refused, or counts as one with a short wavelength."""
    norms = {"q": [[3.0, 1.0], [0.0, 2.0]], "k": [[1.0, 1.0]]}
    waves = {"q": [6.28, math.inf], "k": [6.28, 628.0]}
    picture = figures.frequency_usage(
        norms, waves, {"window": 100}, heads_per_layer={"q": 2, "k": 1}, layers={"q": [5], "k": [5]}
    )
    first, second = picture.figure().axes[:2]
    assert [label.get_text() for label in first.get_xticklabels()] == ["6.28", "none"]
    assert [label.get_text() for label in second.get_yticklabels()] == ["layer 5"]
    assert "above window (100) have 55 % of q and 50 % of k" in picture.alt
    assert picture.data["wavelengths"]["k"] == [6.28, 628.0]


def test_errors_are_what_was_given():
    errors = {"float32": [1e-6, 1e-3, 0.5], "exact": [0.0, 1e-9, 0.0]}
    picture = figures.angle_error([10, 1000, 100_000], errors)
    (axes,) = picture.figure().axes
    assert list(axes.lines[0].get_ydata()) == errors["float32"]
    first, second, third = axes.lines[1].get_ydata()
    assert (math.isnan(first), second, math.isnan(third)) == (True, 1e-9, True)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert set(axes.lines[2].get_ydata()) == {math.pi}
    assert "float32, 1e-06 at 10, 0.5 at 100,000, at most 0.5" in picture.alt
