"""Linear maps: oneDNN's product where possible, torch's own everywhere else, the same numbers.

These fail if the kernels or their gradients differ by more than float32's rounding, if a gradient
of a gradient differs from torch's, if oneDNN is called for what it misreads, or although autocast,
a transform, a mode or a compiler must see torch's product, or not called although it is possible.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import linear as torch_linear
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import ropewalk.model.linear as module
from ropewalk.model.linear import FEWEST, TrainedLinear, linear, product


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
@pytest.mark.parametrize("bias", ["strided", "expanded", "double", "short", "narrow x"])
def test_what_onednn_misreads_is_left_to_torch(bias):
    """Fails if memory outside the bias is read, or a mistake gives another message."""
    x, weight = _large()
    values = torch.randn(2 * len(weight))
    made = {
        "strided": values[::2],
        "expanded": values[:1].expand(len(weight)),
        "double": values[: len(weight)].double(),
        "short": values[:3],
        "narrow x": values[: len(weight)],
    }[bias]
    x = x[:, :-1] if bias == "narrow x" else x
    expected = _outcome(torch_linear, x, weight, made)
    assert _outcome(product, x, weight, made) == expected
    with torch.inference_mode():
        assert _outcome(linear, x, weight, made) == expected


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


# Training


def by_onednn(out: Tensor) -> bool:
    """Whether the output of a layer comes from the Function, behind a view."""
    node, names = out.grad_fn, []
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    return "_LinearBackward" in names


def large_layer() -> tuple[Tensor, TrainedLinear]:
    torch.manual_seed(0)
    layer = TrainedLinear(64, 64)
    return torch.randn(2, FEWEST // 64**2 // 2, 64), layer


@needs_onednn
@given(
    rows=st.sampled_from([(5,), (3, 7), (2, 3, 4), (2, 0), (0,)]),
    sizes=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    bias=st.booleans(),
    strided=st.booleans(),
    of_x=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=80)
def test_products_and_gradients_are_those_in_float64(rows, sizes, bias, strided, of_x, seed):
    torch.manual_seed(seed)
    read, written = sizes
    layer = TrainedLinear(read, written, bias=bias)
    x = torch.randn(*rows, read * (1 + strided))[..., :: 1 + strided].requires_grad_(of_x)
    back = torch.randn(*rows, written)
    exact, x64 = nn.Linear(read, written, bias=bias).double(), x.detach().double().requires_grad_()
    exact.load_state_dict(layer.state_dict())
    expected = exact(x64)
    expected.backward(back.double())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEWEST", 0)
        with torch.inference_mode(), _Called() as called:
            inferred = layer(x)
        assert called.onednn
        torch.testing.assert_close(inferred.double(), expected.detach(), rtol=1e-5, atol=1e-5)
        if not x.numel():
            return
        found = layer(x)
        assert by_onednn(found)
        found.backward(back)
    assert found.shape == expected.shape
    pairs = [
        (found, expected),
        *zip(
            (p.grad for p in layer.parameters()), (p.grad for p in exact.parameters()), strict=True
        ),
    ]
    if of_x:
        pairs.append((x.grad, x64.grad))
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=5e-5)


@needs_onednn
def test_a_gradient_of_a_gradient_is_torchs():
    x, ours = large_layer()
    theirs = nn.Linear(64, 64)
    theirs.load_state_dict(ours.state_dict())
    found = []
    for layer in (ours, theirs):
        at = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(layer(at).sin().sum(), at, create_graph=True)
        first.square().sum().backward()
        found.append((at.grad, layer.weight.grad))
    for own, other in zip(*found, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-3)


@needs_onednn
def test_a_trained_layer_is_onednns_in_training_alone():
    x, layer = large_layer()
    assert by_onednn(layer(x))
    assert layer(x).relu_().shape == x.shape
    assert not by_onednn(layer(x[:, :-1]))  # too small
    assert not by_onednn(TrainedLinear(64, 64).double()(x.double()))
    with torch.autocast("cpu", torch.bfloat16):
        assert not by_onednn(layer(x))
    with torch.no_grad():
        assert torch.equal(layer(x), torch_linear(x, layer.weight, layer.bias))
    with FlopCounterMode(display=False) as counter:  # a mode that knows torch's products
        assert not by_onednn(layer(x))
    assert counter.get_total_flops() == 2 * x.numel() * 64
    found = torch.func.vmap(layer)(x)
    torch.testing.assert_close(found, torch_linear(x, layer.weight, layer.bias))
