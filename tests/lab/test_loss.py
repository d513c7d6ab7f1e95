"""The fused loss against torch's cross-entropy on the same logits.

These fail when the value or a gradient differs from cross_entropy(linear(hidden, table), target,
label_smoothing), at any chunk, smoothing, dtype or scale of what comes behind; when the table's
gradient is rounded to bfloat16; and when all tokens' scores are formed at once.
"""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from ropewalk.lab.loss import linear_cross_entropy

Results = tuple[Tensor, Tensor, Tensor]


def batch(n: int, vocabulary: int, width: int, seed: int = 0) -> Results:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(n, width, generator=generator, dtype=torch.float64)
    table = torch.randn(vocabulary, width, generator=generator, dtype=torch.float64)
    return hidden, table, torch.randint(vocabulary, (n,), generator=generator)


def results(
    loss_of, hidden: Tensor, table: Tensor, target: Tensor, scale: float = 1.0, **how
) -> Results:
    hidden, table = hidden.clone().requires_grad_(), table.clone().requires_grad_()
    loss = loss_of(hidden, table, target, **how)
    (loss * scale).backward()
    return loss.detach(), hidden.grad, table.grad


def plain_loss(hidden: Tensor, table: Tensor, target: Tensor, smoothing: float = 0.0) -> Tensor:
    return cross_entropy(linear(hidden, table), target, label_smoothing=smoothing)


fused, plain = partial(results, linear_cross_entropy), partial(results, plain_loss)


def assert_close(actual: Results, expected: Results, tolerance: float, scale: float = 1.0) -> None:
    """Nearer than the tolerance, relative to the tensor or, where that is nearly 0, the scale."""
    for a, e in zip(actual, expected, strict=True):
        size = max(1.0, abs(scale), e.double().norm())
        assert (a.double() - e.double()).norm() <= tolerance * size


@given(
    st.integers(1, 20),
    st.integers(1, 12),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.1, 0.9]),
    st.integers(1, 25),
    st.sampled_from([1.0, 0.0, -3.0, 1e4]),
    st.integers(0, 2**32 - 1),
)
def test_value_and_gradients_are_those_of_cross_entropy(n, v, width, smoothing, chunk, scale, seed):
    hidden, table, target = batch(n, v, width, seed)
    expected = plain(hidden, table, target, scale, smoothing=smoothing)
    exact = fused(hidden, table, target, scale, smoothing=smoothing, chunk=chunk)
    assert [x.dtype for x in exact] == [torch.float64] * 3
    assert_close(exact, expected, 1e-12, scale)
    single = fused(hidden.float(), table.float(), target, scale, smoothing=smoothing, chunk=chunk)
    assert [x.dtype for x in single] == [torch.float32] * 3
    assert_close(single, expected, 1e-5, scale)


@pytest.mark.parametrize("chunk", [64, 1000])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_bfloat16_hidden_states_give_float32_loss_and_table_gradient(smoothing, chunk):
    hidden, table, target = batch(300, 50, 16)
    hidden, table = hidden.bfloat16(), table.float()
    rough = fused(hidden, table, target, smoothing=smoothing, chunk=chunk)
    assert [x.dtype for x in rough] == [torch.float32, torch.bfloat16, torch.float32]
    assert_close(rough, plain(hidden.double(), table.double(), target, smoothing=smoothing), 0.02)
    assert not torch.equal(rough[2], rough[2].bfloat16().float())


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_under_autocast_is_close_to_float32(smoothing):
    hidden, table, target = (x.float() if x.is_floating_point() else x for x in batch(200, 40, 16))
    with torch.autocast("cpu", torch.bfloat16):
        rough = fused(hidden.bfloat16(), table, target, smoothing=smoothing)
    assert_close(rough, plain(hidden, table, target, smoothing=smoothing), 0.03)


def test_large_scores_stay_finite():
    hidden, table, target = batch(5, 7, 4)
    large = (1e3 * hidden).float(), table.float(), target
    found = fused(*large, smoothing=0.1)
    assert all(x.isfinite().all() for x in found)
    assert_close(found, plain(*large, smoothing=0.1), 1e-5)


def test_no_tensor_of_all_tokens_by_all_words_is_formed(monkeypatch):
    hidden, table, target = batch(100, 9, 4)
    rows = []

    def watched(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        rows.append(min(len(x), len(weight)))
        return linear(x, weight, bias)

    monkeypatch.setattr("ropewalk.lab.loss.product", watched)
    linear_cross_entropy(hidden, table, target, chunk=32)
    assert len(rows) == 3 * 4  # the scores and two gradients of each chunk
    assert max(rows) <= 32


def test_a_second_derivative_is_refused_rather_than_wrong():
    hidden, table, target = batch(3, 4, 2)
    loss = linear_cross_entropy(hidden.requires_grad_(), table.requires_grad_(), target)
    (gradient,) = torch.autograd.grad(loss.square(), hidden, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
