"""Arguments of encodings that are wrong or too large: refused with our messages.

These fail if a message names no argument or gives no way out, if an argument allocates without
limit, takes time that grows faster than its size, gives NaN or is repeated in full in the message,
or if text that Python's parser cannot nest raises Python's own error.
"""

from __future__ import annotations

import pytest
import torch
from encoding_cases import BACK

from ropewalk.encodings import Placement, StackShape, build
from ropewalk.encodings.biases import bucket_borders

SHAPE = StackShape(layers=2, heads=4, kv_heads=4, head_dim=16, width=64, causal=True)

#: Encodings, and a part of the error: its type and how its message begins.
WRONG = [
    ("sinusoidal(theta=0)", "ValueError: theta must be finite and above 0, got 0"),
    ("sinusoidal(theta=big)", "TypeError: theta must be a float, got 'big'"),
    ("sinusoidal(theta=1e999)", "ValueError: theta must be finite and above 0, got inf"),
    ("sinusoidal(theta=5e-324)",
     "ValueError: theta must be at least 1e-300, so that 1/theta is a finite"),
    ("learned(max_positions=0)", "ValueError: max_positions must be at least 1, got 0"),
    ("learned(max_positions=2.5)", "TypeError: max_positions must be an int, got 2.5"),
    ("learned(max_positions=True)", "TypeError: max_positions must be an int, got True"),
    ("integer(length=0)",
     "ValueError: length must be at least 1, or None to add the position itself, got"),
    ("integer(length=0.5)", "TypeError: length must be an int, got 0.5"),
    ("integer(lenght=5)",
     "ValueError: encoding 'integer' has no argument 'lenght'; it has length, cross; did you m"),
    ("binary(bits=0)",
     "ValueError: bits must be an int from 1 to width=32, one column per bit, got 0"),
    ("binary(bits=33)",
     "ValueError: bits must be an int from 1 to width=32, one column per bit, got 33"),
    ("binary(bits=True)",
     "ValueError: bits must be an int from 1 to width=32, one column per bit, got T"),
    ("alibi(symmetric=1)", "TypeError: symmetric must be True or False, got 1"),
    ("t5(buckets=7)", "ValueError: buckets must be even, got 7"),
    ("t5(buckets=2)", "ValueError: buckets must be at least 4, got 2"),
    ("t5(buckets=32.0)", "TypeError: buckets must be an int, got 32.0"),
    ("t5(distance=16)", "ValueError: distance must be at least 17, because distances 0 to 15 "
     "have a bucket each, got 16"),
    ("t5(distance=far)", "TypeError: distance must be an int, got 'far'"),
    ("t5(scale=0)", "ValueError: scale must be finite and above 0, got 0"),
    ("t5(scale=1e300)", "ValueError: scale must lie between 1e-18 and 1e18, got 1e+300"),
    ("t5(scale=True)", "TypeError: scale must be a float, got True"),
    ("kerple(kind=linear)", "ValueError: kind must be 'log' or 'power', got 'linear'"),
    ("fire(hidden=0)", "ValueError: hidden must be at least 1, got 0"),
    ("fire(c=0)", "ValueError: c must be finite and above 0, got 0"),
    ("fire(length=long)", "TypeError: length must be a float, got 'long'"),
    ("fire(shared=1)", "TypeError: shared must be True or False, got 1"),
    ("tupe(max_positions=0)", "ValueError: max_positions must be at least 1, got 0"),
    ("tupe(relative=t5)", "TypeError: relative must be True or False, got 't5'"),
    ("tupe(reset=0)", "TypeError: reset must be True or False, got 0"),
    ("cope(npos_max=1)", "ValueError: npos_max must be at least 2, the vectors of counts 0 a"),
    ("cope(npos_max=64.0)", "TypeError: npos_max must be an int, got 64.0"),
    ("cope(two_sided=yes)", "TypeError: two_sided must be True or False, got 'yes'"),
    ("shaw(distance=0)", "ValueError: distance must be at least 1; with 0, all keys"),
    ("shaw(distance=1.5)", "TypeError: distance must be an int, got 1.5 of type float"),
    ("shaw(values=1)", "TypeError: values must be True or False, got 1"),
    ("shaw(per_head=no)", "TypeError: per_head must be True or False, got 'no'"),
    ("shaw(clip=4)", "ValueError: encoding 'shaw' has no argument 'clip'; it has distance, values"),
    ("transformer_xl(theta=1)",
     "ValueError: encoding 'transformer_xl' has no argument 'theta'; it has cross"),
    ("deberta(distance=0)", "ValueError: distance must be at least 1, got 0"),
    ("deberta(distance=512.0)", "TypeError: distance must be an int, got 512.0"),
    ("deberta(buckets=3)", "ValueError: buckets must be at least 4, got 3"),
    ("deberta(buckets=True)", "TypeError: buckets must be an int, got True"),
    ("deberta(distance=17, buckets=32)", "ValueError: distance must be at least 18, because "
     "distances below 16 have a bucket each, got 17"),
    ("xpos(both_ways=alibi)", "ValueError: both_ways must be rotary, xpos or None, got 'alibi'"),
    ("xpos(both_way=xpos)",
     "ValueError: encoding 'xpos' has no argument 'both_way'; it has theta, rot"),
    ("xpos(scale_base=0)", "ValueError: scale_base must be finite and above 0, got 0; publish"),
    ("xpos(center=None)", "ValueError: center must be a finite position, got None"),
    ("xpos(rotary_dim=10)", "ValueError: rotary_dim must be at most head_dim=8, got 10"),
    ("xpos(pairing=whole)",
     'ValueError: pairing must be "half" (dimensions i and i + R/2 rot'),
    ("rotary(rotary_dim=10)", "ValueError: rotary_dim must be at most head_dim=8, got 10"),
    ("rotary(revers=True)",
     "ValueError: encoding 'rotary' has no argument 'revers'; it has theta, rotary_dim, "),
    ("rotary(reverse=1)", "TypeError: reverse must be True or False, got 1"),
    ("rotary(rule=yarm)", "ValueError: rule must be one of linear, ntkaware, mixedntk, "
     "dynamicntk, qwenntk, yarn, longrope, llama3, proportional, got 'yarm'; did you mean 'yarn'?"),
    ("rotary(rule=3)", "ValueError: rule must be one of linear, ntkaware, mixedntk, dynamicntk"),
    ("rotary(rule=yarn, factor=4)", "ValueError: rule=yarn also needs original_length, "
     "got factor; its fields are factor, original_length, beta_fast, beta_slow, truncate, att"),
    ("rotary(rule=linear)", "ValueError: rule=linear also needs factor, got none of its "
     "fields; its fields are factor"),
    ("rotary(rule=linear, facter=4)",
     "ValueError: encoding 'rotary' has no argument 'facter'; it has theta, "),
    ("rotary(rule=linear, facter=4)", "did you mean 'factor'?"),
    ("rotary(rule=linear, factor=4, original_length=9)",
     "ValueError: encoding 'rotary' has no argument 'original_length'"),
    ("rotary(rule=linear, factor=big)", "TypeError: factor must be a float, got 'big'"),
    ("rotary(rule=yarn, factor=4, original_length=0)",
     "ValueError: original_length must be at least 1, got 0"),
    ("rotary(factor=4)", "ValueError: rule must be given with factor=4, which is a field of "
     "linear, ntkaware, mixedntk, dynamicntk, yarn, longrope, llama3, proportional; write "
     "rotary(rule=linear, factor=4)"),
    ("rotary(beta_fast=4)", "ValueError: rule must be given with beta_fast=4, which is a field "
     "of yarn; write rotary(rule=yarn, beta_fast=4)"),
    ("rotary(rule=dynamicntk, factor=2, original_length=8)", "ValueError: length must be given "
     "with rule=DynamicNTK, got None: frequencies of this rule"),
    ("rotary(rule=dynamicntk, factor=2, original_length=8, length=9.5)",
     "TypeError: length must be an int, got 9.5"),
    ("rotary(rule=linear, factor=2, length=9)", "ValueError: length must be left out if "
     "frequencies do not depend on it, got 9; they depend"),
    ("rotary(learned=True, rule=dynamicntk, factor=2, original_length=8, length=9)",
     "ValueError: spec must have frequencies that do not depend on the length, since they are "
     "learned"),
    ("rotary(frequency=0)", "ValueError: frequency must be finite and above 0, got 0; rev"),
    ("rotary(frequency=one)", "TypeError: frequency must be a float, got 'one'"),
    ("rotary(frequency=1, theta=5)", "ValueError: theta must be left out with frequency=1, which "
     "is the same for all pairs"),
    ("rotary(frequency=1, rule=linear, factor=2)", "ValueError: rule must be left out with f"),
    ("rotary(learned=heads)", "ValueError: learned must be True, False, 'layer' or 'head', "),
    ("rotary(values=1)", "ValueError: values must be True, False or 'absolute', got 1"),
    ("rotary(fields_of_rule=1)",
     "ValueError: encoding 'rotary' has no argument 'fields_of_rule'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_wrong_argument_is_named_with_the_way_out(text, message):
    with pytest.raises((ValueError, TypeError)) as caught:
        build(text, BACK)
    assert message in f"{caught.typename}: {caught.value}"


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
