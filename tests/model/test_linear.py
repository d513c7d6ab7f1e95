"""Linear maps: oneDNN's product where possible, torch's own everywhere else, the same numbers.

These fail if the kernels differ by more than float32's rounding, or if oneDNN is called although
autograd, autocast or a compiler is involved, or not called although it is possible.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import linear as torch_linear
from torch.utils._python_dispatch import TorchDispatchMode

import ropewalk.model.linear as module
from ropewalk.model.linear import FEWEST, Linear, linear


class _Called(TorchDispatchMode):
    """Hears the names of the operators that are called within."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.add(str(function))
        return function(*args, **(kwargs or {}))

    @property
    def onednn(self):
        return any("mkldnn" in name for name in self.names)


needs_onednn = pytest.mark.skipif(not module.ONEDNN_IS_FASTER, reason="MKL is as fast here")


@needs_onednn
@given(
    rows=st.sampled_from([(5,), (3, 7), (2, 0), (0,), (2, 3, 4)]),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    bias=st.booleans(),
    strided=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=50)
def test_every_product_is_the_one_in_float64(rows, sizes, bias, strided, seed):
    generator = torch.Generator().manual_seed(seed)
    read, written = sizes
    x = torch.randn(*rows, read * (1 + strided), generator=generator)[..., :: 1 + strided]
    weight = torch.randn(written, read, generator=generator)
    offset = torch.randn(written, generator=generator) if bias else None
    expected = torch_linear(
        x.double(), weight.double(), None if offset is None else offset.double()
    )
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(module, "FEWEST", 0)
        with _Called() as called:
            found = linear(x, weight, offset)
    assert called.onednn
    assert found.shape == (*rows, written)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=2e-5)


@needs_onednn
@pytest.mark.parametrize("bias", ["strided", "expanded", "double", "short", "narrow x"])
def test_what_onednn_misreads_is_left_to_torch(bias):
    """Fails if memory outside the bias is read, or a mistake gives another message."""
    x, weight = _large()
    held = torch.randn(2 * len(weight))
    made = {
        "strided": held[::2],
        "expanded": held[:1].expand(len(weight)),
        "double": held[: len(weight)].double(),
        "short": held[:3],
        "narrow x": held[: len(weight)],
    }[bias]
    x = x[:, :-1] if bias == "narrow x" else x
    with torch.inference_mode():
        assert _outcome(linear, x, weight, made) == _outcome(torch_linear, x, weight, made)


def _outcome(product, *tensors):
    """The numbers, or the error message."""
    try:
        return product(*tensors).tolist()
    except RuntimeError as error:
        return str(error)


def _large():
    weight = torch.randn(64, 64)
    return torch.randn(FEWEST // weight.numel(), 64), weight


@needs_onednn
def test_onednn_multiplies_in_generation_alone():
    x, weight = _large()
    with torch.inference_mode():
        assert _asks_onednn(x, weight)
        assert not _asks_onednn(x[:-1], weight)  # too small
        assert not _asks_onednn(x.double(), weight.double())
        with torch.autocast("cpu", torch.bfloat16):
            assert not _asks_onednn(x, weight)
    assert not _asks_onednn(x, weight)
    with torch.no_grad():  # transforms of torch.func may be at work there
        assert not _asks_onednn(x, weight)


def _asks_onednn(x: Tensor, weight: Tensor) -> bool:
    with _Called() as called:
        linear(x, weight)
    return called.onednn


def test_a_layer_is_torchs_own_in_parameters_and_gradients():
    torch.manual_seed(0)
    ours, theirs = Linear(64, 64), nn.Linear(64, 64)
    theirs.load_state_dict(ours.state_dict())
    x, _ = _large()
    for layer in (ours, theirs):
        layer(x).square().mean().backward()
    assert torch.equal(ours.weight.grad, theirs.weight.grad)
    with torch.inference_mode():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
