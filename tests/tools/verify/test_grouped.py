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


def at(check, layer, part="q"):
    return replace(check, places=(Place(layer, part),))


def lines(*checks):
    return by_layers(Report("M", "model", checks))


def test_layers_with_one_verdict_share_a_line():
    checks = [at(right("sign", "as specified"), i) for i in range(3)]
    for i in (4, 5, 7):
        bad = fault("sign", "wrong-sign", f"off by {i}", error=i)
        checks += [at(bad, i), at(bad, i, "k")]
    checks += [at(right("sign", "none"), 1, "k"), fault("runs", "fails", "no")]
    assert [(line.where, line.says) for line in lines(*checks)] == [
        ("layers 0-2; q", "as specified"),
        ("layers 4-5, 7; q and k", "off by 7"),
        ("layer 1, k", "none"),
        ("", "no"),
    ]


def test_different_faults_of_one_name_have_a_line_each():
    thetas = enumerate([1e6, 2e4] * 2)
    checks = [at(fault("frequencies", "theta", "", theta=x, error=0.1 * i), i) for i, x in thetas]
    assert [line.where for line in lines(*checks)] == ["layers 0, 2; q", "layers 1, 3; q"]
    sizes = enumerate((1.0, 1.44))
    assert (
        len(lines(*(at(fault("amplitude", "amplitude", "", measured=x), i) for i, x in sizes))) == 2
    )
