"""Wrong arguments of specs, modules and `rotate`: the answer names argument, rule, value, way out.

These fail when a mistake passes, fails somewhere deeper, or is told in other words.
"""

import warnings

import pytest
import torch
from refusals import check_refused

from ropewalk import RotaryEmbedding, RotarySpec, XPosEmbedding, rerotate, rotate, scaling


def spec(**arguments):
    return lambda: RotarySpec(**{"head_dim": 64, **arguments})


def test_spec():
    pair = "at least 2, one pair of dimensions, got"
    check_refused(
        ValueError,
        (spec(head_dim=7), "head_dim must be even if all of it rotates, got 7; set rotary_dim=6"),
        (spec(head_dim=1), f"head_dim must be {pair} 1"),
        (spec(rotary_dim=7), "be even, since dimensions rotate in pairs, got 7; use 6 or 8"),
        (spec(rotary_dim=0), f"rotary_dim must be {pair} 0"),
        (spec(rotary_dim=66), "rotary_dim must be at most head_dim=64, got 66; leave it out"),
        (spec(theta=0), "theta must be finite and above 0, got 0"),
        (spec(theta=-1e4), "theta must be finite and above 0, got -10000.0"),
        (spec(theta=float("inf")), "theta must be finite and above 0, got inf"),
        (spec(theta=float("nan")), "theta must be finite and above 0, got nan"),
        (spec(head_dim=2**20), "head_dim must be at most 8,192, got 1048576"),
        (spec(start=63), "start must leave at least 2 of the head_dim=64 dimensions"),
        (spec(theta=10**400), "theta must be finite and above 0, got 1000"),
        (spec(pairing="neox"), 'pairing must be "half" (dimensions i and i + R/2'),
        (spec(pairing=["half"]), "got ['half']"),
    )
    whole, real = "head_dim must be an int, got", "theta must be a float, got"
    check_refused(
        TypeError,
        (spec(head_dim=64.0), f"{whole} 64.0 of type float"),
        (spec(head_dim=True), f"{whole} True of type bool"),
        (spec(head_dim="64"), f"{whole} '64' of type str"),
        (spec(head_dim=torch.tensor(64)), f"{whole} tensor(64) of type Tensor; write int(head_"),
        (spec(rotary_dim=32.0), "rotary_dim must be an int, got 32.0 of type float"),
        (spec(rotary_dim=True), "rotary_dim must be an int, got True of type bool"),
        (spec(theta=torch.tensor(1e4)), f"{real} tensor(10000.) of type Tensor; write float("),
        (spec(theta=True), f"{real} True of type bool"),
        (spec(theta="1e4"), f"{real} '1e4' of type str"),
    )


def test_a_spec_is_frozen_and_normal():
    spec = RotarySpec(64, theta=10_000)
    assert spec == RotarySpec(64, 64, 10_000.0, "half")
    assert isinstance(spec.theta, float)
    with pytest.raises(AttributeError):
        spec.theta = 1.0


ROPE = RotaryEmbedding(RotarySpec(8))
Q = torch.zeros(2, 4, 5, 8)
FIVE = torch.arange(5)
COS, SIN = ROPE.tables(FIVE)
META = Q.to("meta")
DYNAMIC = RotaryEmbedding(RotarySpec(8, scaling=scaling.DynamicNTK(2.0, 4)))


def turn(x=Q, *positions, **others):
    return lambda: ROPE.rotate(x, *positions, **others)


def both(q, k, *positions, **others):
    return lambda: ROPE(q, k, *positions, **others)


def test_module():
    narrow = Q[..., :6]
    wide, keys = (
        "last axis must be head_dim=8, got shape (2, 4, 5, 6)",
        "pass positions and key_pos",
    )
    shape = "positions must be (S,) or (B, S), got shape"
    check_refused(
        ValueError,
        (turn(narrow), f"x's {wide}"),
        (both(Q, narrow), f"k's {wide}"),
        (both(narrow, Q), f"q's {wide}"),
        (turn(Q[0, 0, 0]), "x must have at least 2 axes if seq_dim=-2, got shape (8,)"),
        (turn(seq_dim=1), "seq_dim must be -2, for x of (B, H, S, D), or -3"),
        (turn(Q, FIVE[:4]), "positions must be (5,) or (2, 5) for x of shape (2, 4, 5, 8)"),
        (turn(Q, FIVE.expand(3, 5)), "with seq_dim=-2, got shape (3, 5)"),
        (turn(Q, FIVE.expand(2, 1, 5)), f"{shape} (2, 1, 5)"),
        (turn(Q, FIVE[0]), f"{shape} ()"),
        (both(Q, Q[:1], FIVE.expand(2, 5)), "be (5,) or (1, 5) for k of shape (1, 4"),
        (both(Q, Q, FIVE, FIVE[:4]), "key_positions must be (5,) or (2, 5) for k of shape (2,"),
        (turn(Q, FIVE, offset=3), "offset must be left at 0 if positions are given, got 3"),
        (both(Q, Q[:, :, :3]), f"got 3 keys and 5 queries; {keys}"),
        (both(Q[:, :, :3], Q, FIVE[:3]), f"got 5 keys and 3 queries; {keys}"),
    )
    whole = "positions must have an integer dtype"
    check_refused(
        TypeError,
        (turn(Q.long()), "x must have a floating point dtype, got torch.int64"),
        (turn(Q, FIVE.float()), f"{whole}, got torch.float32"),
        (lambda: ROPE.tables(FIVE.bfloat16()), f"{whole}, got torch.bfloat16"),
        (turn(Q, FIVE > 2), f"{whole}, got torch.bool"),
        (both(Q, Q, key_positions=FIVE.half()), f"key_{whole}"),
        (turn(Q, [0, 1, 2]), "positions must be an integer tensor, got [0, 1, 2]"),
        (turn(offset=3.0), "offset must be an int, got 3.0"),
        (turn(offset=True), "offset must be an int, got True"),
        (turn(offset=FIVE[:1]), "offset must be an int, got tensor([0]); if it differs"),
        (lambda: RotaryEmbedding(64), "spec must be a RotarySpec, got 64"),
        (lambda: rerotate(Q, FIVE, 64, ROPE.spec), "old must be a RotarySpec, got 64; pass a modu"),
        (lambda: rerotate(Q, FIVE, ROPE.spec, ROPE), "new must be a RotarySpec, got RotaryEmb"),
    )


def rotated(x=Q, cos=COS, sin=SIN, pairing="half", **others):
    return lambda: rotate(x, cos, sin, pairing=pairing, **others)


def test_devices_that_differ():
    there, numbers = FIVE.to("meta"), "must have numbers, got a tensor on the meta device"
    lengths = torch.tensor([9, 9], device="meta")
    check_refused(
        ValueError,
        (both(META, Q), "k must be on the device of q, meta, got cpu; move"),
        (both(Q, META), "k must be on the device of q, cpu, got meta; move"),
        (both(Q, META, FIVE), "k must be on the device of q, cpu, got meta; move"),
        (rotated(cos=COS.to("meta")), "cos must be on the device of x"),
        (rotated(sin=SIN.to("meta")), "sin must be on the device of x"),
        (rotated(out=META), "out must be on the device of x, cpu, got meta"),
        (turn(Q, there), f"positions {numbers} next to a tensor on cpu"),
        (both(Q, Q, FIVE, there), f"key_positions {numbers}"),
        (lambda: ROPE.shift(Q, there), f"by {numbers}"),
        (lambda: DYNAMIC(Q, Q, length=lengths), f"length {numbers}"),
    )
    for where in (None, FIVE, there):
        assert all(x.is_meta for x in ROPE(META, META, where))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Q.to_sparse(),
        lambda: Q[0, 0].to_sparse_csr(),
        lambda: Q.to_mkldnn(),
        lambda: torch.nested.nested_tensor([Q[0], Q[1]]),
    ],
    ids=["sparse", "csr", "mkldnn", "nested"],
)
def test_a_tensor_that_is_not_dense(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls some of them a beta or a prototype
        x = make()
    ROPE(Q, Q)  # rows are cached, so that the short way is tried first
    check_refused(
        TypeError,
        (turn(x), "x must be a dense tensor, got"),
        (both(x, x), "q must be a dense tensor, got"),
        (both(Q, x), "k must be a dense tensor, got"),
        (rotated(x), "x must be a dense tensor, got"),
        (rotated(out=x), "out must be a dense tensor, got"),
    )


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor():
    x, p = (torch.nested.nested_tensor([*of], layout=torch.jagged) for of in (Q, (FIVE, FIVE)))
    dense = "must be a dense tensor, got a nested one of layout torch."
    check_refused(
        (TypeError, ValueError),
        (turn(x), "seq_dim must be -2, for x of (B, H, S, D), or -3, for (B, S, H, D), got -2 for"),
        (rotated(x, seq_dim=-3), f"x {dense}"),
        (rotated(out=x), f"out {dense}"),
        (lambda: XPosEmbedding(ROPE.spec).rotate_keys(x, seq_dim=-3), f"k {dense}"),
        (turn(Q, torch.nested.nested_tensor([FIVE])), f"positions {dense}"),
        (lambda: ROPE.rotate(x, FIVE, seq_dim=-3), "positions must be (8,) or (1, 8) for x of"),
        (lambda: ROPE.rotate(x, p, seq_dim=-3), "positions must be (j"),
    )


def test_numbers_beyond_64_bits():
    x = Q[:1, :1, :2]
    for offset in (2**63 - 3, -(2**63)):
        ROPE.rotate(x, offset=offset)
    check_refused(
        ValueError,
        *(
            (turn(x, offset=offset), "offset must leave all 2 positions within ±2^63")
            for offset in (2**63 - 1, 10**5000, -(2**63) - 1)
        ),
        *(
            (lambda by=by: ROPE.shift(Q, by), "by must lie between -2^63 and 2^63 - 1, got")
            for by in (2**63, -(2**63) - 1, 10**5000)
        ),
        most=200,
    )


def test_rotate():
    inside, leaf = "must lie within x's last axis, of", Q.clone().requires_grad_()
    three = {"cos": COS.expand(3, 5, 4), "sin": SIN.expand(3, 5, 4)}
    with torch.inference_mode():
        frozen = torch.zeros_like(Q)
    check_refused(
        ValueError,
        (rotated(pairing="neox"), 'pairing must be "half" (dimensions i and i + R/2'),
        (rotated(write_pairing="neox"), 'write_pairing must be "half" (dimensions i and i + R/2'),
        (rotated(seq_dim=2), "seq_dim must be -2, for x of (B, H, S, D), or -3, for (B, S, H,"),
        (rotated(Q[0, 0], seq_dim=-3), "at least 3 axes if seq_dim=-3, got shape (5, 8)"),
        (rotated(seq_dim=-3), "x, 4 on axis -3 of shape (2, 4, 5, 8), got 5 rows"),
        (rotated(cos=COS[:4]), "both (B, S, R/2), got shapes (4, 4) and (5, 4)"),
        (rotated(cos=COS[0], sin=SIN[0]), "both (B, S, R/2), got shapes (4,) and (4,)"),
        (rotated(**three), "x has 2 for shape (2, 4, 5, 8) with seq_dim=-2, got shape (3"),
        *(  # no axis of a batch
            (rotated(Q[0, 0], COS.expand(b, 5, 4), SIN.expand(b, 5, 4)), "x has 1 for shape (5, 8)")
            for b in (2, 5)
        ),
        (rotated(start=1), f"{inside} 8 dimensions, got start=1 and R=8"),
        (rotated(start=-1), f"{inside} 8 dimensions, got start=-1 and R=8"),
        (rotated(Q[..., :6]), f"{inside} 6 dimensions, got start=0 and R=8"),
        (rotated(out=Q.half()), "x's shape and dtype, (2, 4, 5, 8) and torch.float32"),
        (rotated(out=Q[:1].clone()), "got (1, 4, 5, 8) and torch.float32"),
        (rotated(out=frozen), "out must not be made in inference mode, got one that is; clone it"),
        (rotated(leaf, out=Q.clone()), "None if a gradient is needed, got requires_grad=True"),
    )
    check_refused(
        TypeError,
        (rotated(cos=COS.bfloat16()), "cos must be float32 or float64 whatever x is, got torch.b"),
        (rotated(sin=SIN.half()), "sin must be float32 or float64 whatever x is, got torch.fl"),
        (rotated([1]), "x must be a tensor, got list"),
        (rotated(cos=[1]), "cos must be a tensor, got list"),
        (rotated(sin=[1]), "sin must be a tensor, got list"),
        (rotated(out=[1]), "out must be a tensor, got list"),
        (rotated(adjoint="no"), "adjoint must be True or False, got 'no'"),
        (rotated(start=0.0), "start must be an int, got 0.0 of type float"),
        (lambda: ROPE.tables(torch.arange(5), extrapolate="no"), "extrapolate must be True or Fa"),
    )
    with torch.no_grad():
        rotate(leaf, COS, SIN, pairing="half", out=Q.clone())
