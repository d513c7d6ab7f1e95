"""The page's mathematics against the library's.

These fail if a frequency, an angle or a rotation of rope.js differs from the library by more than
the rounding of its float32 tables, at any position below 2^31, or if rope.js accepts a rope that
the library refuses.
"""

from __future__ import annotations

import pytest
import torch

import ropewalk as rw
from ropewalk import scaling, tools

FAR = 2**31 - 1
POSITIONS = [0, 1, 17, 4095, 131_072, 10_000_000, FAR]
RULES = [
    ({"name": "none"}, None),
    ({"name": "linear", "factor": 4.0}, scaling.Linear(4.0)),
    ({"name": "ntk", "factor": 3.7}, scaling.NTKAware(3.7)),
    (
        {"name": "dynamic", "factor": 2.0, "original": 4096},
        scaling.DynamicNTK(2.0, original_length=4096),
    ),
    ({"name": "yarn", "factor": 4.0, "original": 4096}, scaling.YaRN(4.0, original_length=4096)),
    # Where theta is small, blended pairs are fast: at the last position, none may be rounded.
    ({"name": "yarn", "factor": 1.5, "original": 64}, scaling.YaRN(1.5, original_length=64)),
    (
        {"name": "yarn", "factor": 7.5, "original": 2048, "truncate": False, "betaFast": 20.0},
        scaling.YaRN(7.5, original_length=2048, truncate=False, beta_fast=20.0),
    ),
    (
        {"name": "llama3", "factor": 8.0, "original": 8192, "lowFreq": 1, "highFreq": 4},
        scaling.Llama3(8.0, 1.0, 4.0, original_length=8192),
    ),
    ({"name": "proportional", "factor": 1.0, "fraction": 0.3}, scaling.Proportional(0.3)),
]
SHAPES = [(128, 500_000.0), (64, 10_000.0), (16, 1e6), (8, 1000.5), (256, 1e8), (64, 2.5)]
SHAPES += [(64, 2.0), (128, 2.0), (64, 3.7)]

COMPUTE = """async ([specs, positions, length]) => {
  const { cosSin, rope } = await import("./rope.js");
  return specs.map((spec) => {
    try {
      const found = rope(spec, length);
      const tables = positions.map((position) => cosSin(position, found));
      return { frequencies: found.frequencies, tables };
    } catch (error) {
      return { refused: error.message };
    }
  });
}"""
ROTATE = """async (cases) => {
  const { cosSin, rope, rotate } = await import("./rope.js");
  return cases.map(({ spec, x, positions }) =>
    positions.map((position, i) => rotate(x[i], cosSin(position, rope(spec)), spec.pairing)));
}"""


def page_spec(head_dim, rotary_dim, theta, pairing, rule):
    sizes = {"headDim": head_dim, "rotaryDim": rotary_dim}
    return {**sizes, "theta": theta, "pairing": pairing, "rule": rule}


def of_library(size, theta, rule):
    """The library's frequencies and tables, or None if it refuses the rope."""
    length = FAR + 1 if rule is not None and rule.needs_length else None
    try:
        spec = rw.RotarySpec(head_dim=size, theta=theta, scaling=rule)
        frequencies = spec.inverse_frequencies(length)
    except ValueError:
        return None
    tables = rw.RotaryEmbedding(spec).tables(torch.tensor(POSITIONS), length=length)
    return frequencies, *tables


@pytest.mark.parametrize(("rule", "own"), RULES, ids=lambda rule: str(rule)[:30])
def test_frequencies_and_tables_are_the_library_s(page, rule, own):
    specs = [page_spec(size, size, theta, "half", rule) for size, theta in SHAPES]
    found = page.evaluate(COMPUTE, [specs, POSITIONS, FAR + 1])
    served = 0
    for (size, theta), computed in zip(SHAPES, found, strict=True):
        wanted = of_library(size, theta, own)
        assert (wanted is None) == ("refused" in computed), (size, theta, computed)
        if wanted is None:
            continue
        frequencies, cos, sin = wanted
        computed_f = torch.tensor(computed["frequencies"], dtype=torch.float64)
        assert torch.allclose(computed_f, frequencies, rtol=1e-13, atol=0)
        for name, table in (("cos", cos), ("sin", sin)):
            of_page = torch.tensor([each[name] for each in computed["tables"]])
            assert (of_page - table).abs().max() < 1.3e-7
        served += 1
    assert served >= 4


def test_rotation_is_that_of_the_test_vectors(page):
    """Vectors of the catalogue, made with mpmath, whose rope the page can describe."""
    cases = {
        name: each
        for name, each in tools.catalogue_vectors().items()
        if each.axes == "one"
        and each.spec["rotary_dim"] == each.spec["head_dim"]
        and each.spec["scaling"]["rope_type"] == "default"
        and each.spec["pairing"] == each.spec["write_pairing"]
        and not each.spec["reverse"]
    }
    assert len(cases) >= 4
    fields = ("head_dim", "rotary_dim", "theta", "pairing")
    asked = [
        {
            "spec": page_spec(*(each.spec[field] for field in fields), {"name": "none"}),
            "x": each.q,
            "positions": each.positions,
        }
        for each in cases.values()
    ]
    for (name, each), found in zip(cases.items(), page.evaluate(ROTATE, asked), strict=True):
        error = (torch.tensor(found) - torch.tensor(each.rotated_q)).abs().max()
        assert error < 1e-6, name
