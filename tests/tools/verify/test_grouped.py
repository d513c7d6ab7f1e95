"""Layers with the same verdict share a line; fails if a layer or a verdict is lost on the way."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ropewalk.checks import ranges
from ropewalk.tools.verify.verify_report import Place, Report, by_layers, fault, right


@given(st.sets(st.integers(0, 40), min_size=1))
def test_ranges_name_each_number_once(numbers):
    read = []
    for part in ranges(sorted(numbers)).split(", "):
        first, _, last = part.partition("-")
        read += range(int(first), int(last or first) + 1)
    assert read == sorted(numbers)


def test_layers_with_one_verdict_share_a_line():
    good = [replace(right("sign", "as specified"), places=(Place(i, "q"),)) for i in range(3)]
    bad = [
        replace(fault("sign", "wrong-sign", f"off by {i}", error=i), places=(Place(i, x),))
        for i in (4, 5, 7)
        for x in "qk"
    ]
    other = replace(right("sign", "none"), places=(Place(1, "k"),))
    overall = fault("runs", "fails", "no")
    lines = by_layers(Report("M", "model", (*good, *bad, other, overall)))
    assert [(line.where, line.says) for line in lines] == [
        ("layers 0-2; q", "as specified"),
        ("layers 4-5, 7; q and k", "off by 7"),
        ("layer 1, k", "none"),
        ("", "no"),
    ]


def test_different_faults_of_one_name_have_a_line_each():
    found = [
        replace(
            fault("frequencies", "theta", says, theta=theta, error=0.1 * i), places=(Place(i, "q"),)
        )
        for i, (theta, says) in enumerate(
            [(1e6, "theta is 1e6; off by 1"), (2e4, "theta is 2e4; off by 2")] * 2
        )
    ]
    lines = by_layers(Report("M", "model", tuple(found)))
    assert [line.where for line in lines] == ["layers 0, 2; q", "layers 1, 3; q"]
    factors = [
        replace(
            fault("amplitude", "amplitude", f"{x}", measured=x, expected=1.2),
            places=(Place(i, "q"),),
        )
        for i, x in enumerate((1.0, 1.44))
    ]
    assert len(by_layers(Report("M", "model", tuple(factors)))) == 2
