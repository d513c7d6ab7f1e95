"""Tables that differ from head to head, and the module of learned frequencies as a module.

These fail when a head rotates by another's angles, when tables pass that do not fit the heads, when
a change of dtype, a copy or a checkpoint leaves angles other than those of the parameter, and when
a mistake is told in other words.
"""

import copy
import pickle
import re

import pytest
import torch
from torch import Tensor

from ropewalk import LearnedRotaryEmbedding, RotarySpec, axes, positions, rotate, scaling

PAIRINGS = ["half", "interleaved"]


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def mixed() -> LearnedRotaryEmbedding:
    spec = RotarySpec(8, theta=10.0, pairing="interleaved", axes=axes.axial((2, 2)))
    return LearnedRotaryEmbedding(spec, heads=4, mixed=True)


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


@pytest.mark.parametrize(
    ("x", "tables", "seq_dim", "message"),
    [
        ((2, 4, 5, 8), (1, 3, 5, 4), -2, "divides x's heads, 4 for shape (2, 4, 5, 8)"),
        ((2, 4, 5, 8), (1, 0, 5, 4), -2, "seq_dim=-2, got N=0"),
        ((2, 2, 5, 8), (1, 4, 5, 4), -2, "got N=4; if they also rotate fewer key heads (GQA)"),
        ((2, 5, 4, 8), (1, 3, 5, 4), -3, "divides x's heads, 4 for shape (2, 5, 4, 8)"),
        ((2, 4, 5, 8), (3, 4, 5, 4), -2, "must have x's batch size or 1: x has 2"),
        ((4, 5, 8), (1, 4, 5, 4), -2, "x must be (B, H, S, D), or (B, S, H, D) with seq_dim=-3"),
        ((2, 4, 5, 8), (1, 1, 4, 5, 4), -2, "both (B, N, S, R/2)"),
    ],
)
def test_rotate_says_which_tables_do_not_fit_the_heads(x, tables, seq_dim, message):
    table = torch.ones(tables)
    with pytest.raises(ValueError, match=re.escape(message)):
        rotate(torch.zeros(x), table, table, pairing="half", seq_dim=seq_dim)


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


def test_rows_are_not_cached():
    rope = LearnedRotaryEmbedding(RotarySpec(8))
    rope.rotate(random(1, 1, 50, 8))
    assert rope._tables.cached_rows(None) is None


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LearnedRotaryEmbedding(8), TypeError, "spec must be a RotarySpec, got 8"),
        (
            lambda: LearnedRotaryEmbedding(RotarySpec(8), heads=0),
            ValueError,
            "heads must be at least 1, got 0",
        ),
        (
            lambda: LearnedRotaryEmbedding(RotarySpec(8), mixed=True),
            ValueError,
            "mixed must be False if positions have one axis, got True",
        ),
        (
            lambda: LearnedRotaryEmbedding(RotarySpec(8), mixed=1),
            TypeError,
            "mixed must be True or False, got 1",
        ),
        (
            lambda: mixed().rotate(torch.zeros(1, 4, 3, 8), torch.zeros(3)),
            ValueError,
            "positions must be (2, S) or (2, B, S), got shape (3,)",
        ),
        (
            lambda: mixed().rotate(torch.zeros(1, 4, 3, 8), torch.zeros(2, 3).half()),
            TypeError,
            "positions must be float32 or float64, got torch.float16",
        ),
        (
            lambda: mixed().rotate(torch.zeros(1, 6, 3, 8)),
            ValueError,
            "must have an N that divides x's heads, 6 for shape (1, 6, 3, 8)",
        ),
    ],
)
def test_errors_name_argument_rule_and_value(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


def test_a_rule_that_depends_on_the_length_is_refused():
    spec = RotarySpec(8, scaling=scaling.DynamicNTK(factor=2.0, original_length=64))
    with pytest.raises(ValueError, match="spec must have frequencies that do not depend"):
        LearnedRotaryEmbedding(spec)
