"""Ropes whose frequencies are learned: what they compute, where they start, how they learn.

These fail when a frequency gets no gradient or a wrong one, when a head rotates by another's
angles, when the start is not that of the spec or of the published code, when tables pass that do
not fit the heads, and when an optimizer's step, a change of dtype, a copy or a checkpoint leaves
angles other than those of the parameter.
"""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused
from torch import Tensor

from ropewalk import (
    LearnedRotaryEmbedding,
    RotaryEmbedding,
    RotarySpec,
    axes,
    positions,
    rotate,
    scaling,
)
from ropewalk.rotary.learned import random_rotations

PAIRINGS = ["half", "interleaved"]

seeds = st.integers(0, 2**32 - 1)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def mixed(
    heads: int = 4, head_dim: int = 8, pairing: str = "interleaved", axis_count: int = 2
) -> LearnedRotaryEmbedding:
    pairs = axes.axial((head_dim // 2 // axis_count,) * axis_count)
    spec = RotarySpec(head_dim, theta=10.0, pairing=pairing, axes=pairs)
    return LearnedRotaryEmbedding(spec, heads=heads, mixed=True)


def turned_by_hand(x: Tensor, frequencies: Tensor, where: Tensor, pairing: str) -> Tensor:
    """The definition, one pair at a time: x (B, H, S, D), frequencies (A, N, D/2), where (A, S)."""
    y, pairs = torch.empty_like(x), x.shape[-1] // 2
    for h in range(x.shape[1]):
        n = h * frequencies.shape[1] // x.shape[1]
        for s in range(x.shape[2]):
            for i in range(pairs):
                angle = sum(
                    where[a, s].item() * frequencies[a, n, i].item() for a in range(len(where))
                )
                first, second = (i, i + pairs) if pairing == "half" else (2 * i, 2 * i + 1)
                one, two = x[:, h, s, first], x[:, h, s, second]
                y[:, h, s, first] = one * math.cos(angle) - two * math.sin(angle)
                y[:, h, s, second] = two * math.cos(angle) + one * math.sin(angle)
    return y


# One axis


@pytest.mark.parametrize(
    "spec",
    [
        RotarySpec(16),
        RotarySpec(16, rotary_dim=8, start=4, pairing="interleaved", theta=500.0),
        RotarySpec(16, pairing="interleaved", write_pairing="half", amplitude=1.2, reverse=True),
        RotarySpec(16, blocks=(8, 8), axes=axes.axial((4, 4))),
        RotarySpec(16, axes=axes.interleaved((4, 2, 2))),
    ],
)
def test_starts_as_the_rope_of_its_spec(spec):
    plain, learned = RotaryEmbedding(spec), LearnedRotaryEmbedding(spec)
    q, k = random(2, 4, 6, 16, dtype=torch.float32), random(2, 2, 6, 16, dtype=torch.float32)
    several = (spec.axis_count,) * (spec.axis_count > 1)
    where = torch.randint(-1_000, 1_000, (*several, 2, 6))
    for expected, received in zip(plain(q, k, where), learned(q, k, where), strict=True):
        torch.testing.assert_close(received, expected, rtol=0, atol=1e-3)
    torch.testing.assert_close(learned.rotate(q), plain.rotate(q), rtol=0, atol=1e-5)
    torch.testing.assert_close(learned.unrotate(q), plain.unrotate(q), rtol=0, atol=1e-5)
    torch.testing.assert_close(learned.shift(q, by=3), plain.shift(q, by=3), rtol=0, atol=1e-5)
    assert learned.frequencies.dtype == torch.float32


# Several axes


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("axis_count", [2, 3])
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_mixed_equals_the_definition_pair_by_pair(pairing, axis_count, heads):
    rope = mixed(heads, 12, pairing, axis_count)
    q, k = random(2, 8, 5, 12), random(2, 4, 5, 12)
    for where in (random(axis_count, 5) * 20, torch.randint(-20, 20, (axis_count, 5))):
        for x, rotated in zip((q, k), rope(q, k, where), strict=True):
            expected = turned_by_hand(x, rope.frequencies, where, pairing)
            torch.testing.assert_close(rotated, expected, rtol=0, atol=1e-6)


@given(st.lists(st.floats(-30, 30), min_size=6, max_size=6), st.booleans(), seeds)
def test_scores_of_mixed_depend_on_the_distance_in_the_plane_alone(numbers, whole, seed):
    rope, (q, k) = mixed().double(), random(2, 1, 4, 1, 8, seed=seed)
    m, n, shift = torch.tensor(numbers, dtype=torch.float64).reshape(3, 2, 1)
    if whole:
        m, n, shift = m.long(), n.long(), shift.long()

    def scores(m: Tensor, n: Tensor) -> Tensor:
        return (rope.rotate(q, m) * rope.rotate(k, n)).sum(-1)

    torch.testing.assert_close(scores(m, n), scores(m + shift, n + shift), rtol=0, atol=1e-10)


def test_each_of_the_batch_has_its_own_positions():
    rope, x, where = mixed(), random(3, 4, 5, 8), random(2, 3, 5)
    rotated = rope.rotate(x, where)
    heads_last = rope.rotate(x.transpose(1, 2), where, seq_dim=-3)
    assert torch.equal(heads_last.transpose(1, 2), rotated)
    for b in range(3):
        assert torch.equal(rotated[b : b + 1], rope.rotate(x[b : b + 1], where[:, b]))
    assert [t.shape for t in rope.tables(where)] == [(3, 4, 5, 4)] * 2
    assert [t.shape for t in rope.tables(where[:, 0])] == [(1, 4, 5, 4)] * 2
    assert [t.shape for t in LearnedRotaryEmbedding(RotarySpec(8)).tables(where[0])] == [
        (3, 5, 4)
    ] * 2


# The start of RoPE-Mixed


def reference_start(dim: int, heads: int, theta: float) -> Tensor:
    """The formula of naver-ai/rope-vit: magnitudes twice, a quarter rotate apart, in each head."""
    magnitude = theta ** -(torch.arange(0, dim, 4) / dim)
    rows = []
    for _ in range(heads):
        angle = 2 * torch.pi * torch.rand(1)
        directions = torch.cat((angle.expand(dim // 4), angle.expand(dim // 4) + torch.pi / 2))
        twice = torch.cat((magnitude, magnitude))
        rows.append(torch.stack((twice * directions.cos(), twice * directions.sin())))
    return torch.stack(rows, dim=1)


def test_mixed_starts_as_the_reference_does_at_the_same_seed():
    torch.manual_seed(3)
    expected = reference_start(64, 12, 10.0)
    torch.manual_seed(3)
    started = mixed(12, 64).frequencies
    assert started.shape == expected.shape == (2, 12, 32)
    torch.testing.assert_close(started, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("axis_count", [2, 3])
def test_mixed_rotates_the_axes_and_keeps_their_norms(axis_count):
    rope = mixed(6, 24, axis_count=axis_count)
    norms = rope.frequencies.norm(dim=0)
    expected = rope.spec.inverse_frequencies().float().expand(6, -1)
    torch.testing.assert_close(norms, expected, rtol=1e-6, atol=0)
    # Pairs of equal frequency on different axes stay at right angles.
    fastest = rope.frequencies[:, :, :: 12 // axis_count]
    gram = torch.einsum("ahi,ahj->hij", fastest, fastest)
    torch.testing.assert_close(gram, torch.eye(axis_count).expand(6, -1, -1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_random_rotations_are_rotations_and_uniform(size):
    drawn = random_rotations(4_000, size, torch.Generator().manual_seed(0))
    identity = torch.eye(size, dtype=torch.float64).expand_as(drawn)
    torch.testing.assert_close(drawn @ drawn.mT, identity, rtol=0, atol=1e-12)
    torch.testing.assert_close(torch.linalg.det(drawn), torch.ones(4_000).double())
    # Uniform: entries of mean 0 and mean square 1/n, within four standard errors.
    assert drawn.mean(0).abs().max() < 4 / math.sqrt(4_000 * size)
    assert (drawn.square().mean(0) - 1 / size).abs().max() < 4 * 0.5 / math.sqrt(4_000)


def test_a_generator_makes_the_start_reproducible():
    one, other = mixed(), mixed()
    assert not torch.equal(one.frequencies, other.frequencies)
    for rope in (one, other):
        rope.reset_parameters(torch.Generator().manual_seed(5))
    assert torch.equal(one.frequencies, other.frequencies)


# Learning


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("axis_count", [1, 2])
def test_gradients_reach_the_frequencies(pairing, axis_count):
    if axis_count == 1:
        rope = LearnedRotaryEmbedding(RotarySpec(8, rotary_dim=4, amplitude=1.3)).double()
    else:
        rope = mixed(2, 8, pairing).double()
    q, k, where = random(2, 4, 3, 8), random(2, 2, 3, 8), random(axis_count, 3) * 3
    where = where[0] if axis_count == 1 else where

    def rotated(frequencies: Tensor, q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
        return torch.func.functional_call(rope, {"frequencies": frequencies}, (q, k, where))

    inputs = [t.clone().detach().requires_grad_() for t in (rope.frequencies, q, k)]
    assert torch.autograd.gradcheck(rotated, inputs, fast_mode=True)


def test_a_step_of_an_optimizer_changes_the_next_rotation():
    rope, x = LearnedRotaryEmbedding(RotarySpec(8)), random(1, 2, 9, 8, dtype=torch.float32)
    optimizer = torch.optim.SGD(rope.parameters(), lr=0.1)
    before = rope.rotate(x)
    before[..., 0].sum().backward()
    optimizer.step()
    expected = turned_by_hand(x, rope.frequencies, torch.arange(9)[None], "half")
    torch.testing.assert_close(rope.rotate(x), expected, rtol=0, atol=1e-5)
    assert (rope.rotate(x) - before).abs().max() > 1e-2


# Tables with a head axis


@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("sets", [1, 2, 4])
def test_rotate_takes_tables_that_differ_from_head_to_head(pairing, batch, sets):
    x, angles = random(2, 4, 5, 10), random(batch, sets, 5, 3, seed=1)
    rotated = rotate(x, angles.cos(), angles.sin(), pairing=pairing, start=2)
    heads_last = rotate(
        x.transpose(1, 2), angles.cos(), angles.sin(), pairing=pairing, start=2, seq_dim=-3
    )
    for b in range(2):
        for h in range(4):
            own = angles[b % batch, h * sets // 4]
            alone = rotate(x[b, h], own.cos(), own.sin(), pairing=pairing, start=2)
            assert torch.equal(rotated[b, h], alone)
            assert torch.equal(heads_last[b, :, h], alone)


def test_rotate_says_which_tables_do_not_fit_the_heads():
    def call(x, table, seq_dim=-2):
        x, table = torch.zeros(x), torch.ones(table)
        return lambda: rotate(x, table, table, pairing="half", seq_dim=seq_dim)

    x = (2, 4, 5, 8)
    check_refused(
        ValueError,
        (call(x, (1, 3, 5, 4)), "divides x's heads, 4 for shape (2, 4, 5, 8)"),
        (call(x, (1, 0, 5, 4)), "seq_dim=-2, got N=0"),
        (call((2, 2, 5, 8), (1, 4, 5, 4)), "got N=4; if they also rotate fewer key heads (GQA)"),
        (call((2, 5, 4, 8), (1, 3, 5, 4), -3), "divides x's heads, 4 for shape (2, 5, 4, 8)"),
        (call(x, (3, 4, 5, 4)), "must have x's batch size or 1: x has 2"),
        (call((4, 5, 8), (1, 4, 5, 4)), "x must be (B, H, S, D), or (B, S, H, D) with seq_dim=-3"),
        (call(x, (1, 1, 4, 5, 4)), "both (B, N, S, R/2)"),
    )


# The module survives what is done to modules


@pytest.mark.parametrize(
    "change",
    [
        torch.nn.Module.half,
        torch.nn.Module.bfloat16,
        torch.nn.Module.double,
        lambda rope: rope.to(torch.bfloat16),
        lambda rope: torch.nn.Sequential(rope, torch.nn.Linear(2, 2)).half()[0],
        copy.deepcopy,
        lambda rope: pickle.loads(pickle.dumps(rope)),
    ],
)
def test_nothing_done_to_the_module_changes_its_results(change):
    rope, x = mixed(), random(1, 4, 300, 8, dtype=torch.float32)
    where = torch.arange(300).expand(2, -1)
    with torch.no_grad():
        expected = rope.rotate(x, where)
        assert torch.equal(change(rope).rotate(x, where), expected)
    assert rope.frequencies.dtype in (torch.float32, torch.float64)


def test_what_lies_beside_it_is_narrowed():
    both = torch.nn.Sequential(mixed(), torch.nn.Linear(2, 2)).bfloat16()
    assert both[0].frequencies.dtype == torch.float32
    assert both[1].weight.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_float32_rounded_once(dtype):
    rope, x = mixed(), random(2, 4, 6, 8, dtype=dtype)
    where = positions.grid(2, 3) * 50
    expected = rope.rotate(x.float(), where).to(dtype)
    assert torch.equal(rope.rotate(x, where), expected)
    with torch.autocast("cpu", dtype=dtype):
        assert torch.equal(rope.rotate(x, where), expected)
    # A checkpoint may bring narrow frequencies: their angles are formed in full all the same.
    rope.load_state_dict({"frequencies": rope.frequencies.detach().to(dtype)}, assign=True)
    cos, _ = rope.tables(where)
    assert cos.dtype == torch.float32
    assert torch.equal(cos, copy.deepcopy(rope).double().tables(where)[0].float())


def test_frequencies_are_the_state():
    rope, other = mixed(), mixed()
    assert {name: t.shape for name, t in rope.state_dict().items()} == {"frequencies": (2, 4, 4)}
    other.load_state_dict(rope.state_dict())
    assert torch.equal(other.frequencies, rope.frequencies)
    with torch.device("meta"):
        empty = LearnedRotaryEmbedding(rope.spec, heads=4, mixed=True)
        assert empty.rotate(torch.empty(1, 4, 3, 8)).is_meta
    empty.to_empty(device="cpu").reset_parameters()
    assert empty.frequencies.norm(dim=0).max() < 1.001


def test_errors_name_argument_rule_and_value():
    def rotated(heads, *where):
        return lambda: mixed().rotate(torch.zeros(1, heads, 3, 8), *where)

    learned, spec = LearnedRotaryEmbedding, RotarySpec(8)
    dynamic = RotarySpec(8, scaling=scaling.DynamicNTK(factor=2.0, original_length=64))
    check_refused(
        ValueError,
        (lambda: learned(spec, heads=0), "heads must be at least 1, got 0"),
        (lambda: learned(spec, mixed=True), "be False if positions have one axis, got True"),
        (lambda: learned(dynamic), "spec must have frequencies that do not depend"),
        (rotated(4, torch.zeros(3)), "be (2, S) or (2, B, S), got shape (3,)"),
        (rotated(6), "must have an N that divides x's heads, 6 for shape (1, 6, 3, 8)"),
    )
    check_refused(
        TypeError,
        (lambda: learned(8), "spec must be a RotarySpec, got 8"),
        (lambda: learned(spec, mixed=1), "mixed must be True or False, got 1"),
        (rotated(4, torch.zeros(2, 3).half()), "be float32 or float64, got torch.float16"),
    )
