"""Arguments of encodings that are too large: refused with our messages, before anything is made.

Fails if an argument allocates without limit, takes time that grows faster than its size, gives NaN
or is repeated in full in the message, or if text that Python's parser cannot nest raises Python's
own error.
"""

from __future__ import annotations

import pytest
import torch

from ropewalk.encodings import Placement, StackShape, build
from ropewalk.encodings.biases import bucket_borders

SHAPE = StackShape(layers=2, heads=4, kv_heads=4, head_dim=16, width=64, causal=True)


@pytest.mark.parametrize(
    "argument",
    [
        "learned(max_positions={})",
        "tupe(max_positions={})",
        "shaw(distance={})",
        "shaw(distance={}, per_head=True)",
        "deberta(distance={})",
        "deberta(buckets={}, distance=9223372036854775807)",
        "cope(npos_max={})",
        "t5(buckets={})",
        "fire(hidden={})",
        "fire(c={})",
        "fire(length={})",
        "binary(bits={})",
    ],
)
def test_no_argument_allocates_without_bound(argument):
    name = argument.partition("(")[2].partition("=")[0]
    held_by_float32 = argument in ("fire(c={})", "fire(length={})")
    for size in (2**62 if held_by_float32 else 10**12, 2**63, 10**400, 10**4000):
        with pytest.raises(ValueError, match=rf"^{name} must ") as raised:
            build(argument.format(size), SHAPE)
        assert len(str(raised.value)) < 300


def test_what_published_models_have_is_within_the_bounds():
    wide = StackShape(layers=1, heads=1, kv_heads=1, head_dim=16, width=16, causal=True)
    for encoding in (
        "learned(max_positions=1000000)", "t5(buckets=8192, distance=1000000)",
        "shaw(distance=100000)", "deberta(distance=100000)", "fire(hidden=1024)",
        "cope(npos_max=100000)", "tupe(max_positions=100000)",
    ):  # fmt: skip
        with torch.device("meta"):
            build(encoding, wide)


@pytest.mark.parametrize("c", ["1e39", "1e300", "1e-300"])
def test_fire_takes_what_float32_can_hold(c):
    for argument in ("c", "length"):
        with pytest.raises(ValueError, match=rf"{argument} must lie between 1e-18 and 1e18, got"):
            build(f"fire({argument}={c})", SHAPE)
    for value in ("1e18", "1e-18"):
        site = build(f"fire(c={value}, length={value})", SHAPE).for_layer(0)
        bias = site.bias(Placement(torch.tensor([0, 1, 2**40])))
        assert bias.isfinite().all()


def plain_borders(buckets: int, distance: int) -> list[int]:
    """Return the borders by whole numbers alone, in time cubic in the number of buckets."""
    exact, wide = buckets // 2, buckets - buckets // 2
    borders = list(range(1, exact + 1))
    for k in range(1, wide):
        power, low, high = distance**k * exact ** (wide - k), exact, distance
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if middle**wide < power else (low, middle)
        borders.append(low)
    return borders


@pytest.mark.parametrize("distance", [33, 64, 100, 128, 243, 4096, 10**6, 2**40])
def test_t5s_borders_are_those_of_whole_numbers(distance):
    for buckets in (2, 3, 4, 5, 8, 16, 32, 33, 64):
        assert bucket_borders(buckets, distance) == plain_borders(buckets, distance), buckets


@pytest.mark.parametrize(
    "value",
    ["-" * 5000 + "1", "[" * 5000, "(" * 5000 + ")" * 5000, "1" + "0" * 5000, "'" + "x" * 19_000],
    ids=["minus", "open", "nested", "digits", "text"],
)
def test_what_cannot_be_read_is_cut_short_in_the_message(value):
    refused = r"must have the form key=value|has no argument"
    for name in ("none", "rotary", "t5"):
        with pytest.raises(ValueError, match=refused) as raised:
            build(f"{name}(theta={value})", SHAPE)
        assert len(str(raised.value)) < 400, name


@pytest.mark.parametrize(
    "text", ["x" * 50_000, "rotary(theta=" + "1" * 50_000 + ")"], ids=["name", "argument"]
)
def test_a_name_of_any_size_is_refused_short(text):
    with pytest.raises(ValueError, match="encoding must be of at most 20000 characters") as raised:
        build(text, SHAPE)
    assert len(str(raised.value)) < 200
