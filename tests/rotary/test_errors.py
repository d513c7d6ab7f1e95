"""What a wrong argument is answered with: its name, the rule, the value received, the way out.

These fail when a mistake passes, fails somewhere deeper, or is told in other words.
"""

import re
import warnings

import pytest
import torch

from ropewalk import RotaryEmbedding, RotarySpec, rotate, scaling


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"head_dim": 7},
            ValueError,
            "head_dim must be even if all of it rotates, got 7; set rotary_dim=6",
        ),
        ({"head_dim": 1}, ValueError, "head_dim must be at least 2, one pair of dimensions, got 1"),
        ({"head_dim": 64.0}, TypeError, "head_dim must be an int, got 64.0 of type float"),
        ({"head_dim": True}, TypeError, "head_dim must be an int, got True of type bool"),
        ({"head_dim": "64"}, TypeError, "head_dim must be an int, got '64' of type str"),
        (
            {"rotary_dim": 7},
            ValueError,
            "rotary_dim must be even, since dimensions rotate in pairs, got 7; use 6 or 8",
        ),
        (
            {"rotary_dim": 0},
            ValueError,
            "rotary_dim must be at least 2, one pair of dimensions, got 0",
        ),
        (
            {"rotary_dim": 66},
            ValueError,
            "rotary_dim must be at most head_dim=64, got 66; leave it out",
        ),
        ({"rotary_dim": 32.0}, TypeError, "rotary_dim must be an int, got 32.0 of type float"),
        ({"rotary_dim": True}, TypeError, "rotary_dim must be an int, got True of type bool"),
        (
            {"head_dim": torch.tensor(64)},
            TypeError,
            "head_dim must be an int, got tensor(64) of type Tensor; write int(head_dim)",
        ),
        (
            {"theta": torch.tensor(1e4)},
            TypeError,
            "theta must be a float, got tensor(10000.) of type Tensor; write float(theta)",
        ),
        ({"theta": 0}, ValueError, "theta must be finite and above 0, got 0"),
        ({"theta": -1e4}, ValueError, "theta must be finite and above 0, got -10000.0"),
        ({"theta": float("inf")}, ValueError, "theta must be finite and above 0, got inf"),
        ({"theta": float("nan")}, ValueError, "theta must be finite and above 0, got nan"),
        ({"theta": 10**400}, ValueError, "theta must be finite and above 0, got 1000"),
        ({"theta": True}, TypeError, "theta must be a float, got True of type bool"),
        ({"theta": "1e4"}, TypeError, "theta must be a float, got '1e4' of type str"),
        ({"pairing": "neox"}, ValueError, 'pairing must be "half" (dimensions i and i + R/2'),
        ({"pairing": ["half"]}, ValueError, "got ['half']"),
    ],
)
def test_spec(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        RotarySpec(**{"head_dim": 64, **arguments})


def test_a_spec_is_frozen_and_normal():
    spec = RotarySpec(64, theta=10_000)
    assert spec == RotarySpec(64, 64, 10_000.0, "half")
    assert isinstance(spec.theta, float)
    with pytest.raises(AttributeError):
        spec.theta = 1.0


ROPE = RotaryEmbedding(RotarySpec(8))
Q = torch.zeros(2, 4, 5, 8)
FIVE = torch.arange(5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: ROPE.rotate(Q[..., :6]),
            ValueError,
            "x's last axis must be head_dim=8, got shape (2, 4, 5, 6)",
        ),
        (
            lambda: ROPE(Q, Q[..., :6]),
            ValueError,
            "k's last axis must be head_dim=8, got shape (2, 4, 5, 6)",
        ),
        (
            lambda: ROPE(Q[..., :6], Q),
            ValueError,
            "q's last axis must be head_dim=8, got shape (2, 4, 5, 6)",
        ),
        (
            lambda: ROPE.rotate(Q[0, 0, 0]),
            ValueError,
            "x must have at least 2 axes if seq_dim=-2, got shape (8,)",
        ),
        (
            lambda: ROPE.rotate(Q, seq_dim=1),
            ValueError,
            "seq_dim must be -2, for x of (B, H, S, D), or -3",
        ),
        (
            lambda: ROPE.rotate(Q.long()),
            TypeError,
            "x must have a floating point dtype, got torch.int64",
        ),
        (
            lambda: ROPE.rotate(Q, FIVE.float()),
            TypeError,
            "positions must have an integer dtype, got torch.float32",
        ),
        (
            lambda: ROPE.tables(FIVE.bfloat16()),
            TypeError,
            "positions must have an integer dtype, got torch.bfloat16",
        ),
        (
            lambda: ROPE.rotate(Q, FIVE > 2),
            TypeError,
            "positions must have an integer dtype, got torch.bool",
        ),
        (
            lambda: ROPE.rotate(Q, [0, 1, 2]),
            TypeError,
            "positions must be an integer tensor, got [0, 1, 2]",
        ),
        (
            lambda: ROPE.rotate(Q, FIVE[:4]),
            ValueError,
            "positions must be (5,) or (2, 5) for x of shape (2, 4, 5, 8)",
        ),
        (
            lambda: ROPE.rotate(Q, FIVE.expand(3, 5)),
            ValueError,
            "with seq_dim=-2, got shape (3, 5)",
        ),
        (
            lambda: ROPE.rotate(Q, FIVE.expand(2, 1, 5)),
            ValueError,
            "positions must be (S,) or (B, S), got shape (2, 1, 5)",
        ),
        (
            lambda: ROPE.rotate(Q, FIVE[0]),
            ValueError,
            "positions must be (S,) or (B, S), got shape ()",
        ),
        (
            lambda: ROPE(Q, Q[:1], FIVE.expand(2, 5)),
            ValueError,
            "positions must be (5,) or (1, 5) for k of shape (1, 4",
        ),
        (
            lambda: ROPE(Q, Q, FIVE, key_positions=FIVE[:4]),
            ValueError,
            "key_positions must be (5,) or (2, 5) for k of shape (2, 4, 5, 8)",
        ),
        (
            lambda: ROPE(Q, Q, key_positions=FIVE.half()),
            TypeError,
            "key_positions must have an integer dtype",
        ),
        (
            lambda: ROPE.rotate(Q, FIVE, offset=3),
            ValueError,
            "offset must be left at 0 if positions are given, got 3",
        ),
        (lambda: ROPE.rotate(Q, offset=3.0), TypeError, "offset must be an int, got 3.0"),
        (lambda: ROPE.rotate(Q, offset=True), TypeError, "offset must be an int, got True"),
        (
            lambda: ROPE.rotate(Q, offset=FIVE[:1]),
            TypeError,
            "offset must be an int, got tensor([0]); if it differs",
        ),
        (
            lambda: ROPE(Q, Q[:, :, :3]),
            ValueError,
            "got 3 keys and 5 queries; pass positions and key_positions",
        ),
        (
            lambda: ROPE(Q[:, :, :3], Q, FIVE[:3]),
            ValueError,
            "got 5 keys and 3 queries; pass positions and key_pos",
        ),
        (lambda: RotaryEmbedding(64), TypeError, "spec must be a RotarySpec, got 64"),
    ],
)
def test_module(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


COS, SIN = ROPE.tables(FIVE)
META = Q.to("meta")
DYNAMIC = RotaryEmbedding(RotarySpec(8, scaling=scaling.DynamicNTK(2.0, 4)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ROPE(META, Q), "k must be on the device of q, meta, got cpu; move"),
        (lambda: ROPE(Q, META), "k must be on the device of q, cpu, got meta; move"),
        (lambda: ROPE(Q, META, FIVE), "k must be on the device of q, cpu, got meta; move"),
        (lambda: rotate(Q, COS.to("meta"), SIN, pairing="half"), "cos must be on the device of x"),
        (lambda: rotate(Q, COS, SIN.to("meta"), pairing="half"), "sin must be on the device of x"),
        (
            lambda: rotate(Q, COS, SIN, pairing="half", out=META),
            "out must be on the device of x, cpu, got meta",
        ),
        (
            lambda: ROPE.rotate(Q, FIVE.to("meta")),
            "positions must have numbers, got a tensor on the meta device next to a tensor on cpu",
        ),
        (
            lambda: ROPE(Q, Q, FIVE, FIVE.to("meta")),
            "key_positions must have numbers, got a tensor on the meta device",
        ),
        (lambda: ROPE.shift(Q, FIVE.to("meta")), "by must have numbers, got a tensor on the meta"),
        (
            lambda: DYNAMIC(Q, Q, length=torch.tensor([9, 9], device="meta")),
            "length must have numbers, got a tensor on the meta device",
        ),
    ],
)
def test_devices_that_differ(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_what_is_all_on_the_meta_device_stays_there():
    for where in (None, FIVE, FIVE.to("meta")):
        assert all(x.is_meta for x in ROPE(META, META, where))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Q.to_sparse(),
        lambda: Q[0, 0].to_sparse_csr(),
        lambda: Q.to_mkldnn(),
        lambda: torch.nested.nested_tensor([Q[0], Q[1]]),
        lambda: torch.nested.nested_tensor([Q[0], Q[1]], layout=torch.jagged),
    ],
    ids=["sparse", "csr", "mkldnn", "nested", "jagged"],
)
def test_a_tensor_that_is_not_dense(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls some of them a beta or a prototype
        x = make()
    ROPE(Q, Q)  # rows are cached, so that the short way is tried first
    for name, call in {
        "x": lambda: ROPE.rotate(x),
        "q": lambda: ROPE(x, x),
        "k": lambda: ROPE(Q, x),
    }.items():
        with pytest.raises(TypeError, match=f"^{name} must be a dense tensor, got"):
            call()
    with pytest.raises(TypeError, match=r"^x must be a dense tensor, got"):
        rotate(x, COS, SIN, pairing="half")
    with pytest.raises(TypeError, match=r"^out must be a dense tensor, got"):
        rotate(Q, COS, SIN, pairing="half", out=x)


def test_steps_beyond_64_bits():
    for by in (2**63, -(2**63) - 1, 10**5000):
        with pytest.raises(ValueError, match=r"by must lie between -2\^63 and 2\^63 - 1, got"):
            ROPE.shift(Q, by)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"pairing": "neox"}, ValueError, "(2i and 2i + 1), got 'neox'"),
        (
            {"seq_dim": 2},
            ValueError,
            "seq_dim must be -2, for x of (B, H, S, D), or -3, for (B, S, H, D), got 2",
        ),
        (
            {"x": Q[0, 0], "seq_dim": -3},
            ValueError,
            "x must have at least 3 axes if seq_dim=-3, got shape (5, 8)",
        ),
        (
            {"seq_dim": -3},
            ValueError,
            "a row for each position of x, 4 on axis -3 of shape (2, 4, 5, 8), got 5 rows",
        ),
        ({"cos": COS[:4]}, ValueError, "both (B, S, R/2), got shapes (4, 4) and (5, 4)"),
        ({"cos": COS[0], "sin": SIN[0]}, ValueError, "both (B, S, R/2), got shapes (4,) and (4,)"),
        (
            {"cos": COS.bfloat16()},
            TypeError,
            "cos must be float32 or float64 whatever x is, got torch.bfloat16",
        ),
        (
            {"sin": SIN.half()},
            TypeError,
            "sin must be float32 or float64 whatever x is, got torch.float16",
        ),
        (
            {"cos": COS.expand(3, 5, 4), "sin": SIN.expand(3, 5, 4)},
            ValueError,
            "batch size or 1: x has 2 for shape (2, 4, 5, 8) with seq_dim=-2, got shape (3",
        ),
        (
            {"start": 1},
            ValueError,
            "must lie within x's last axis, of 8 dimensions, got start=1 and R=8",
        ),
        (
            {"start": -1},
            ValueError,
            "must lie within x's last axis, of 8 dimensions, got start=-1 and R=8",
        ),
        (
            {"x": Q[..., :6]},
            ValueError,
            "must lie within x's last axis, of 6 dimensions, got start=0 and R=8",
        ),
        (
            {"out": Q.half()},
            ValueError,
            "out must have x's shape and dtype, (2, 4, 5, 8) and torch.float32",
        ),
        ({"out": [1]}, TypeError, "out must be a tensor, got list"),
        ({"out": Q[:1].clone()}, ValueError, "got (1, 4, 5, 8) and torch.float32"),
        (
            {"x": Q.clone().requires_grad_(), "out": Q.clone()},
            ValueError,
            "out must be None if a gradient is needed, got requires_grad=True",
        ),
    ],
)
def test_rotate(arguments, error, message):
    with pytest.raises(error, match=re.escape(message)):
        rotate(**{"x": Q, "cos": COS, "sin": SIN, "pairing": "half", **arguments})


def test_out_is_allowed_where_no_gradient_is_asked_for():
    x = Q.clone().requires_grad_()
    with torch.no_grad():
        rotate(x, COS, SIN, pairing="half", out=Q.clone())
