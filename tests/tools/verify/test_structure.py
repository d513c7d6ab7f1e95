"""What is read from matrices is what made them.

These fail if the pairs, frequencies or direction of any rope are misread, if a rope is not right
like its own specification, or if it passes as one of another pairing, theta, part or direction.
"""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk import RotaryEmbedding, RotarySpec, axes, scaling
from ropewalk.tools.verify.frequency_mistakes import fit_theta, frequency_hypotheses, rounded
from ropewalk.tools.verify.measured_rotation import POSITIONS, residuals, slopes
from ropewalk.tools.verify.rotation_verdicts import check_rotation, compare

AT = torch.tensor(POSITIONS)
RULES = (
    None,
    scaling.Linear(4.0),
    scaling.NTKAware(8.0),
    scaling.YaRN(4.0, original_length=4096),
    scaling.Llama3(8.0, 1.0, 4.0, 8192),
)
PAIRINGS = ("half", "interleaved")


def partial(pairs, unrotated, **fields):
    dims = {"head_dim": 2 * pairs + unrotated, "rotary_dim": 2 * pairs, "start": unrotated // 2}
    return RotarySpec(**dims, **fields)


specs = st.builds(
    partial,
    pairs=st.integers(3, 16),
    unrotated=st.sampled_from([0, 2, 7]),
    theta=st.sampled_from([500.0, 10_000.0, 500_000.0]),
    pairing=st.sampled_from(PAIRINGS),
    write_pairing=st.sampled_from(PAIRINGS),
    scaling=st.sampled_from(RULES),
    reverse=st.booleans(),
    amplitude=st.sampled_from([1.0, 1.25]),
)


def matrices(spec: RotarySpec) -> torch.Tensor:
    """M(p) of a rope in float32, as `measure` would return them, at AT on each axis."""
    basis = torch.eye(spec.head_dim).view(1, spec.head_dim, 1, -1).expand(-1, -1, len(AT), -1)
    at = AT if spec.axis_count == 1 else AT.expand(spec.axis_count, -1)
    return RotaryEmbedding(spec).rotate(basis, at)[0].double().permute(1, 2, 0)


@settings(max_examples=30)
@given(specs)
def test_a_rope_is_read_as_it_is(spec):
    checks, structure = check_rotation(matrices(spec), AT)
    assert structure is not None, checks
    assert not any(check.fault for check in [*checks, *compare(structure, spec)])
    assert (slopes(structure) < 0).all() == spec.reverse
    expected = spec.inverse_frequencies()
    torch.testing.assert_close(slopes(structure), expected, rtol=1e-5, atol=1e-9)
    assert residuals(structure, expected).max() < 1e-3
    assert structure.writes.numel() == spec.rotary_dim


@settings(max_examples=30)
@given(specs, st.sampled_from(["pairing", "theta", "part", "reverse", "amplitude", "start"]))
def test_a_rope_is_not_another(spec, change):
    other = {
        "pairing": lambda: replace(
            spec, pairing=PAIRINGS[spec.pairing == "half"], write_pairing=spec.write_pairing
        ),
        "theta": lambda: replace(spec, theta=spec.theta * 1.001),
        "part": lambda: replace(spec, rotary_dim=spec.rotary_dim - 2),
        "reverse": lambda: replace(spec, reverse=not spec.reverse),
        "amplitude": lambda: replace(spec, amplitude=spec.amplitude * 1.01),
        "start": lambda: replace(spec, start=spec.start + 1, head_dim=spec.head_dim + 1),
    }[change]()
    if change == "start":
        spec = replace(spec, head_dim=other.head_dim)
    _, structure = check_rotation(matrices(spec), AT)
    faults = [check.fault for check in compare(structure, other) if check.fault]
    assert faults, other
    named = {"pairing": "pairing", "reverse": "wrong-sign", "amplitude": "amplitude"}
    assert named.get(change, faults[0]) in faults


@pytest.mark.parametrize("rule", [axes.axial([4, 4]), axes.interleaved([4, 2, 2])])
def test_several_axes_are_compared_where_text_is(rule):
    spec = RotarySpec(16, axes=rule)
    _, structure = check_rotation(matrices(spec), AT)
    assert not any(check.fault for check in compare(structure, spec))


@given(st.floats(2.0, 1e8), st.floats(1.0, 64.0), st.integers(3, 64))
def test_theta_is_found_from_frequencies(theta, factor, pairs):
    spec = RotarySpec(2 * pairs, theta=theta, scaling=scaling.Linear(factor))
    found, divided, error = fit_theta(spec.inverse_frequencies())
    assert math.isclose(found, theta, rel_tol=1e-9)
    assert math.isclose(divided, factor, rel_tol=1e-9)
    assert error < 1e-9


@given(st.floats(1e-3, 1e9))
def test_rounding_is_within_its_tolerance(value):
    short = rounded(value)
    assert abs(short - value) <= 3e-5 * value
    assert len(f"{short:g}") <= 12


@pytest.mark.parametrize("rule", RULES)
def test_no_hypothesis_is_the_specification(rule):
    """Else right code would be called wrong."""
    spec = RotarySpec(32, rotary_dim=16, scaling=rule)
    expected = spec.inverse_frequencies()
    for hypothesis in frequency_hypotheses(spec, {"same": spec}, None):
        assert not torch.allclose(hypothesis.frequencies, expected, rtol=1e-3), hypothesis.says
