"""Dropout: which elements it keeps, how often, and only in training.

These fail if the share is wrong, if elements that share a random draw are dropped together, if
values that are kept are not scaled, if evaluation changes anything, or if a seed does not repeat.
"""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ropewalk.model.transformer import Dropout


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(
    st.lists(st.integers(0, 7), max_size=3),
    st.sampled_from([0.1, 0.5, 0.9, 1 - 2**-20]),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
)
def test_dropout_keeps_or_drops_each_element(shape, p, dtype):
    x = torch.full(shape, 3.0, dtype=dtype)
    out = Dropout(p)(x)
    assert out.shape == x.shape
    assert out.dtype == dtype
    kept = x * torch.tensor(1 / (1 - p), dtype=dtype)
    assert ((out == 0) | (out == kept)).all()


@pytest.mark.parametrize("p", [0.001, 0.1, 0.3, 0.5, 0.9, 0.9999999])
def test_dropout_drops_the_share_that_it_is_told(p):
    n = 1_000_001
    dropped = Dropout(p)(torch.ones(n)) == 0
    met = min(p, 1 - 2**-16)
    spread = (met * (1 - met) / n) ** 0.5
    assert abs(dropped.double().mean().item() - p) <= 5 * spread + 2**-16
    for apart in (1, 2, 3, 4):  # neighbors share a draw, and must not share their fate
        both = (dropped[apart:] & dropped[:-apart]).double().mean().item()
        assert abs(both - p * p) <= 5 * spread + 2**-15
    lanes = dropped[: n // 4 * 4].view(-1, 4).double().mean(0)
    assert ((lanes - p).abs() <= 10 * spread + 2**-16).all()


def test_dropout_keeps_the_mean():
    assert abs(Dropout(0.3)(torch.ones(1_000_000)).mean().item() - 1) < 0.005


@pytest.mark.parametrize("dropout", [Dropout(0.5).eval(), Dropout(0.0), Dropout(0).train()])
def test_dropout_does_nothing_out_of_training_or_at_zero(dropout):
    x, residual = random(2, 3), random(2, 3, seed=1)
    assert dropout(x) is x
    assert torch.equal(dropout.add(residual, x), residual + x)


def test_dropout_draws_anew_and_from_the_seed():
    dropout, x = Dropout(0.5), torch.ones(100)
    torch.manual_seed(3)
    first, second = dropout(x), dropout(x)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_is_added_in_the_dtype_of_the_residual(dtype):
    dropout, residual, x = Dropout(0.25), random(3, 7).float(), random(3, 7, seed=1).to(dtype)
    torch.manual_seed(1)
    out = dropout.add(residual, x)
    torch.manual_seed(1)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, residual + dropout(x.float()))


def test_the_gradient_passes_where_elements_do():
    x, residual = random(5, 7).requires_grad_(), random(5, 7, seed=1).requires_grad_()
    torch.manual_seed(1)
    Dropout(0.25).add(residual, x).sum().backward()
    torch.manual_seed(1)
    assert torch.equal(x.grad, Dropout(0.25)(torch.ones(5, 7, dtype=x.dtype)))
    assert torch.equal(residual.grad, torch.ones_like(residual))


@pytest.mark.parametrize("p", [-0.1, 1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(p):
    with pytest.raises(ValueError, match=re.escape(f"p must lie in [0, 1), got {p}")):
        Dropout(p)
