"""xPos: rotation, and a scale that makes scores decay with the distance.

These fail when scores come to depend on the center or on anything but the distance, when a decode
differs from its prefill, when the decay is another than the published one, and when positions are
served at which scales leave the range of the dtype.
"""

import copy
import math
import pickle
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import check_refused
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec, XPosEmbedding, axes, scaling

PAIRINGS = ["half", "interleaved"]

near = st.integers(-2_000, 2_000)
seeds = st.integers(0, 2**32 - 1)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def at(position: int) -> Tensor:
    return torch.tensor([position])


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT


@given(st.sampled_from(PAIRINGS), near, near, near, st.floats(-2_000, 2_000), seeds)
def test_scores_depend_on_the_distance_alone_and_not_on_the_center(
    pairing, m, n, shift, center, seed
):
    spec = RotarySpec(12, rotary_dim=8, start=1, pairing=pairing)
    q, k = random(2, 1, 1, 1, 12, seed=seed)
    xpos = XPosEmbedding(spec)
    expected = scores(xpos.rotate_queries(q, at(m)), xpos.rotate_keys(k, at(n)))
    other = XPosEmbedding(spec, center=center)
    received = scores(other.rotate_queries(q, at(m + shift)), other.rotate_keys(k, at(n + shift)))
    bound = 1e-6 * (q.norm() * k.norm()).item() * 3.5 ** (abs(m - n) / 512)
    torch.testing.assert_close(received, expected, rtol=0, atol=bound)


@pytest.mark.parametrize("offset", [0, 500, -700])
@pytest.mark.parametrize("center", [0.0, 256.0])
def test_a_cached_decode_equals_the_prefill(offset, center):
    spec = RotarySpec(16, rotary_dim=12)
    q, k = random(1, 4, 9, 16, dtype=torch.float32), random(1, 2, 9, 16, dtype=torch.float32)
    whole = XPosEmbedding(spec, center=center)(q, k, offset=offset)
    xpos = XPosEmbedding(spec, center=center)
    steps = [xpos(q[:, :, t : t + 1], k[:, :, t : t + 1], offset=offset + t) for t in range(9)]
    assert torch.equal(torch.cat([q for q, _ in steps], dim=-2), whole[0])
    assert torch.equal(torch.cat([k for _, k in steps], dim=-2), whole[1])
    given = xpos(q, k, torch.arange(offset, offset + 9).expand(1, -1))
    assert torch.equal(given[0], whole[0])
    assert torch.equal(given[1], whole[1])


# What was published


def every_two(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def torchscale(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The formula of torchscale's `XPOS`: interleaved pairs, center ceil(S/2)."""
    length, dim = q.shape[-2:]
    zeta = (torch.arange(0, dim, 2, dtype=q.dtype) + 0.4 * dim) / (1.4 * dim)
    power = (torch.arange(length, dtype=q.dtype) - math.ceil(length / 2)) / 512
    angles = torch.arange(length, dtype=q.dtype)[:, None] * 10_000 ** -(
        torch.arange(0, dim, 2, dtype=q.dtype) / dim
    )
    z = zeta ** power[:, None]
    z, cos, sin = (t.repeat_interleave(2, -1) for t in (z, angles.cos(), angles.sin()))
    return (q * cos + every_two(q) * sin) * z, (k * cos + every_two(k) * sin) / z


def lucidrains(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The formula of lucidrains' PaLM-rlhf-pytorch: halves, all twice by cat, center S//2."""
    length, dim = q.shape[-2:]
    scale = (torch.arange(0, dim, 2, dtype=q.dtype) + 0.4 * dim) / (1.4 * dim)
    t = torch.arange(length, dtype=q.dtype)
    freqs = torch.outer(t, 1.0 / 10_000 ** (torch.arange(0, dim, 2, dtype=q.dtype) / dim))
    freqs = torch.cat((freqs, freqs), -1)
    scale = scale ** ((t - length // 2) / 512)[:, None]
    scale = torch.cat((scale, scale), -1)

    def half(x: Tensor) -> Tensor:
        x1, x2 = x.chunk(2, -1)
        return torch.cat((-x2, x1), -1)

    return (
        q * freqs.cos() * scale + half(q) * freqs.sin() * scale,
        k * freqs.cos() / scale + half(k) * freqs.sin() / scale,
    )


@pytest.mark.parametrize("length", [1, 8, 301])
@pytest.mark.parametrize(
    ("formula", "pairing", "center"),
    [
        (torchscale, "interleaved", lambda length: math.ceil(length / 2)),
        (lucidrains, "half", lambda length: length // 2),
    ],
)
def test_equals_the_published_formula_at_its_center(formula, pairing, center, length):
    spec, (q, k) = RotarySpec(16, pairing=pairing), random(2, 2, 4, length, 16)
    expected = formula(q, k)
    received = XPosEmbedding(spec, center=center(length))(q, k)
    for one, other in zip(received, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    # A model trained there keeps its scores about any other center.
    moved = scores(*XPosEmbedding(spec, center=-77)(q, k))
    torch.testing.assert_close(moved, scores(*expected), rtol=0, atol=1e-5)


# Around it


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_is_float32_rounded_once(dtype):
    xpos, q, k = XPosEmbedding(RotarySpec(8)), *random(2, 1, 2, 300, 8, dtype=dtype)
    expected = xpos(q.float(), k.float())
    for one, other in zip(xpos(q, k), expected, strict=True):
        assert torch.equal(one, other.to(dtype))


def test_shapes_positions_and_lengths_as_the_rope_takes_them():
    rule = scaling.DynamicNTK(factor=2.0, original_length=64)
    xpos = XPosEmbedding(RotarySpec(8, scaling=rule, amplitude=1.5), center=3)
    q, k = random(2, 4, 5, 8), random(2, 2, 9, 8)
    q_positions, k_positions = torch.randint(0, 99, (2, 5)), torch.randint(0, 99, (9,))
    lengths = torch.tensor([50, 200])
    turned_q, turned_k = xpos(q, k, q_positions, k_positions, length=lengths)
    assert torch.equal(turned_q, xpos.rotate_queries(q, q_positions, length=lengths))
    assert torch.equal(turned_k, xpos.rotate_keys(k, k_positions, length=lengths))
    heads_last = xpos(
        q.transpose(1, 2), k.transpose(1, 2), q_positions, k_positions, 0, lengths, seq_dim=-3
    )
    assert torch.equal(heads_last[0].transpose(1, 2), turned_q)
    assert torch.equal(heads_last[1].transpose(1, 2), turned_k)
    for b in range(2):
        alone = xpos.rotate_queries(q[b], q_positions[b], length=lengths[b : b + 1])
        assert torch.equal(turned_q[b], alone)


def test_gradients_reach_queries_and_keys():
    xpos = XPosEmbedding(RotarySpec(6))
    q, k = random(1, 2, 3, 6).requires_grad_(), random(1, 1, 3, 6).requires_grad_()
    assert torch.autograd.gradcheck(lambda q, k: xpos(q, k, offset=400), (q, k))


@pytest.mark.parametrize(
    "change",
    [
        torch.nn.Module.half,
        torch.nn.Module.double,
        copy.deepcopy,
        lambda xpos: pickle.loads(pickle.dumps(xpos)),
        lambda xpos: xpos.to("meta").to_empty(device="cpu"),
    ],
)
def test_nothing_done_to_the_module_changes_its_results(change):
    xpos, x = XPosEmbedding(RotarySpec(8), center=7), random(1, 2, 30, 8)
    expected = xpos.rotate_queries(x)
    assert torch.equal(change(xpos).rotate_queries(x), expected)
    assert not xpos.state_dict()
    assert xpos.rotate_queries(x.to("meta")).is_meta


# Far from the center


@pytest.mark.parametrize(
    ("dtype", "reach"),
    [(torch.float32, 16_997), (torch.bfloat16, 16_997), (torch.float16, 1_133)],
)
@pytest.mark.parametrize("center", [0, 40_000])
def test_scores_are_finite_and_right_wherever_positions_are_served(dtype, reach, center):
    xpos = XPosEmbedding(RotarySpec(64), center=center)
    assert xpos.reach(dtype) == reach
    ends = center - reach, center + reach
    q, k = random(1, 1, 2, 64, dtype=dtype), random(1, 1, 2, 64, seed=1, dtype=dtype)
    received = scores(*xpos(q, k, torch.tensor(ends)))
    assert received.isfinite().all()
    # Where q and k stand together, nothing may have been lost to the scales.
    plain = scores(*RotaryEmbedding(xpos.spec)(q.double(), k.double(), torch.tensor(ends)))
    tolerance = 40 * torch.finfo(dtype).eps
    for i in range(2):
        assert abs(received[0, 0, i, i].item() - plain[0, 0, i, i].item()) < tolerance
    for beyond in (ends[0] - 1, ends[1] + 1):
        for call in (
            lambda beyond=beyond: xpos.rotate_keys(k, torch.tensor([beyond, center])),
            lambda beyond=beyond: xpos.rotate_queries(q[:, :, :1], offset=beyond),
        ):
            message = f"positions must be within {reach} of center={center} if x is {dtype}, "
            with pytest.raises(ValueError, match=re.escape(f"{message}got {beyond}")):
                call()


def test_errors_name_argument_rule_and_value():
    spec, q, five = RotarySpec(8), torch.zeros(2, 4, 5, 8), torch.arange(5)
    xpos, plane = XPosEmbedding(spec), RotarySpec(8, axes=axes.axial((2, 2)))
    check_refused(
        ValueError,
        (lambda: XPosEmbedding(plane), "one axis of positions, got 2 axes; xPos is defined for"),
        (lambda: XPosEmbedding(spec, scale_base=0), "above 0, got 0; published models use 512"),
        (lambda: XPosEmbedding(spec, center=math.inf), "finite position, got inf"),
        (lambda: XPosEmbedding(spec, center="0"), "finite position, got '0'"),
        (lambda: xpos(q, q[:, :, :3]), "got 3 keys and 5 queries; pass positions and key_"),
        (lambda: xpos(q, q, key_positions=five[:4]), "key_positions must be (5,) or (2, 5) for k"),
        (lambda: xpos(q, q, key_positions=five * 10_000), "within 16997 of center=0.0"),
        (lambda: xpos.rotate_queries(q, five, offset=2), "offset must be left at 0"),
    )
    check_refused(
        TypeError,
        (lambda: XPosEmbedding(8), "spec must be a RotarySpec, got 8"),
        (lambda: xpos.tables(five, q.dtype, keys="no"), "keys must be True or False, got 'no'"),
        (lambda: xpos.rotate_queries(q.long()), "x must have a floating point dtype, got"),
    )
