"""Sentences about a usage are true for its numbers, also for one layer, one head or none named.

These fail if rounding is told as an effect, or if a sentence speaks of others that are not there.
"""

import pytest

from ropewalk.tools.usage.head_usage import Cost, Head, Layer, Usage
from ropewalk.tools.usage.usage_report import sentences

WAVES, NORMS = (6.0, 600.0), (2.0, 1.0)


def usage(kinds=((None, None), (None, "position")), costs=()):
    layers = tuple(
        Layer(
            place, None, WAVES, (NORMS,) * len(of), (NORMS,) * len(of), (NORMS,) * len(of),
            tuple(Head(0.3, 1, 0.2, 0.1, kind) for kind in of),
        )
        for place, of in enumerate(kinds)
    )  # fmt: skip
    return Usage("Model", 8, 64, 500, layers, tuple(costs), ())


def cost(fraction, difference, low, high):
    return Cost(fraction, (1, 1), 4.0, difference, low, high)


@pytest.mark.parametrize(
    ("kinds", "heads", "position", "content", "others"),
    [
        (((None, None), (None, "position")), "4 heads", "1 is", 0, "3 are"),
        ((("content", "content"), ("position", None)), "4 heads", "1 is", 2, "1 is"),
        ((("position", "position"),), "2 heads", "2 are", 0, ""),
        ((("content",),), "1 head", "0 are", 1, ""),
    ],
)
def test_heads_are_counted(kinds, heads, position, content, others):
    says = f"Of {heads}, {position} position-like and {content} content-like by the rule below"
    says += f"; the other {others} neither clearly." if others else "."
    assert says in [*sentences(usage(kinds))]


def test_one_layer_has_no_range():
    first = next(sentences(usage(((None,),))))
    assert "have 20% of the squared norm of q in the only layer with a rope; they are 50%" in first
    assert "mean of 2 layers (20% to 20%)" in next(sentences(usage()))


def test_rounding_is_no_effect():
    """A loss of 4 nats has steps of 2.4e-7 in float32: an interval may exclude 0 by chance."""
    said = " ".join(sentences(usage(costs=(cost(1.0, 0, 0, 0), cost(0.5, -4e-8, -9e-8, -1e-8)))))
    assert "lowers" not in said
    assert "At p = 0.5, no change of the loss is shown; intervals end within 9e-08 nats" in said
    said = " ".join(sentences(usage(costs=(cost(1.0, 0, 0, 0), cost(0.5, 7e-6, 2e-6, 9e-6)))))
    assert "raises the loss: +7e-06 at p = 0.5" in said


def test_the_ends_of_intervals_are_rounded_up():
    said = " ".join(sentences(usage(costs=(cost(1.0, 0, 0, 0), cost(0.5, 0, -2.01e-4, 1e-4)))))
    assert "intervals end within 0.00021 nats of 0" in said
    said = " ".join(sentences(usage(costs=(cost(1.0, 0, 0, 0), cost(0.5, 0, 0, 0)))))
    assert "intervals end within 0 nats of 0" in said
