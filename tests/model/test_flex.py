"""Attention that computes biases inside its kernel: the same as in blocks, only where supported.

These fail if a bias, a mask or a position is read at the wrong pair, if heads that share keys are
confused, if a query that may not look at any key gets anything, if a compiled model gives another
result than uncompiled or fails at a second size, and if training or uncompiled inference uses it.
"""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.attention import flex_attention

from ropewalk.encodings import Placement, StackShape, build
from ropewalk.model import Attention, flex, softmax_attention

HEADS, DIM = 4, 16
BIASES = ["alibi", "alibi(symmetric=False)", "t5", "t5(buckets=8, distance=20)", "t5(scale=1)"]
# torch's compiler calls functions that torch has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
needs_kernel = pytest.mark.skipif(
    not flex.TRIED, reason="torch's flex_attention for CPU was tried on Linux, AVX-512, torch 2.13"
)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def attention_with(name: str, causal: bool, kv_heads: int = HEADS) -> Attention:
    shape = StackShape(1, HEADS, kv_heads, DIM, HEADS * DIM, causal)
    encoding = build(name, shape)
    for i, parameter in enumerate(encoding.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(i))
    torch.manual_seed(0)
    site = encoding.for_layer(0)
    return Attention(HEADS * DIM, HEADS, kv_heads=kv_heads, encoding=site).eval()


@pytest.mark.skipif(
    torch.__version__ < "2.10", reason="torch 2.9 takes a mask only where it is compiled"
)
@given(
    st.sampled_from(BIASES),
    st.booleans(),
    st.sampled_from([4, 2, 1]),
    st.sampled_from(
        [None, (14,), (9, 14), (2, 1, 1, 14), (1, 1, 9, 1), (2, 1, 9, 14), (2, 4, 9, 14)]
    ),
    st.sampled_from([((9,), (14,)), ((2, 9), (2, 14)), ((9,), (2, 14)), ((1, 9), (14,))]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=15)
@torch.no_grad()
def test_each_bias_is_that_of_its_pair(name, causal, kv_heads, mask, places, seed):
    """Uncompiled, flex_attention computes the same; 9 queries are the last of 14 keys."""
    site = attention_with(name, causal, kv_heads).encoding
    q = random(2, HEADS, 9, DIM, seed=seed)
    k, v = random(2, 2, kv_heads, 14, DIM, seed=seed + 1)
    generator = torch.Generator().manual_seed(seed)
    queries, keys = (torch.randint(0, 300, shape, generator=generator) for shape in places)
    placement = Placement(queries, keys)
    if mask is not None:
        mask = torch.rand(mask, generator=generator) < 0.6
        mask[(0,) * (mask.ndim - 1)] = False  # one query may not look at any key
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
        found = flex.attend(site, site.rows(q.device), q, k, v, placement, mask, causal)
    expected, p = softmax_attention.attend(site, q, k, v, placement, mask, causal, True)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert p is not None
    assert not found[p.sum(-1) == 0].any()


def compiled_to(
    attention: Attention, grad: bool = False, causal: bool = True, **asked: bool
) -> str:
    """Return the graph that a compiler sees for attention over 300 tokens."""
    graphs = []

    def keep(graph, inputs):
        graphs.append(graph.print_readable(print_output=False))
        return graph.forward

    torch.compiler.reset()
    x = random(1, 300, HEADS * DIM).to(attention.query.weight.dtype)
    with torch.set_grad_enabled(grad):
        torch.compile(attention, backend=keep, fullgraph=True)(x, causal=causal, **asked)
    return graphs[0]


@pytest.fixture
def small_blocks(monkeypatch):
    """Let queries attend in sixteens if pairs would be computed."""
    monkeypatch.setattr(softmax_attention, "LEAST", 16)
    monkeypatch.setattr(softmax_attention, "BLOCK", 1)


@pytest.mark.slow  # compiles for each size
@needs_kernel
def test_it_serves_compiled_inference_that_looks_back_alone(small_blocks):
    attention = attention_with("alibi", True)
    assert "flex_attention" in compiled_to(attention)
    assert "flex_attention" not in compiled_to(attention, grad=True)
    assert "flex_attention" not in compiled_to(attention, need_probabilities=True)
    assert "flex_attention" not in compiled_to(attention.double())
    assert "flex_attention" not in compiled_to(attention, causal=False)
    assert not flex.serves(*2 * [random(1, HEADS, 300, DIM)])


@pytest.mark.slow
@needs_kernel
@torch.no_grad()
def test_what_is_exported_or_mapped_needs_no_kernel(small_blocks, tmp_path):
    class Output(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention_with("alibi", True)

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, causal=True).output

    module, x = Output().eval(), random(2, 40, HEADS * DIM)
    torch.export.save(torch.export.export(module, (x,)), tmp_path / "attention.pt2")
    mapped = torch.compile(torch.vmap(module), backend="eager")
    torch.testing.assert_close(mapped(x[:, None])[:, 0], module(x), rtol=0, atol=1e-5)


@pytest.mark.slow
@needs_kernel
def test_where_no_pairs_are_formed_it_is_not_asked(small_blocks):
    """Nor if a stored bias is cheaper: a logarithm per pair, or a number per distance."""
    for name in ("rotary", "kerple", "t5(distance=1000000000)"):
        assert "flex_attention" not in compiled_to(attention_with(name, True)), name


@needs_kernel
def test_an_encoding_of_other_heads_is_refused(small_blocks):
    attention = attention_with("alibi", True)
    attention.encoding = build("alibi", StackShape(1, 2, 2, DIM, 64, True)).for_layer(0)
    with pytest.raises(
        Exception, match="built for the 4 heads of this attention, got a bias for 2"
    ):
        compiled_to(attention)


@torch.no_grad()
def check_compiled(attention: Attention, sizes, mask: str = "", batched: bool = False) -> None:
    torch.compiler.reset()
    dtype = attention.query.weight.dtype
    fast = torch.compile(attention, fullgraph=True)
    for batch, length in sizes:
        x = random(batch, length, HEADS * DIM, seed=length).to(dtype)
        generator = torch.Generator().manual_seed(length)
        shape = {"": None, "keys": (batch, 1, 1, length), "pairs": (batch, 1, length, length)}[mask]
        seen = None if shape is None else torch.rand(shape, generator=generator) < 0.6
        places = torch.randint(0, 400, (batch, length), generator=generator).sort().values
        placement = Placement(places) if batched else None
        found, expected = (
            way(x, mask=seen, causal=True, placement=placement).output for way in (fast, attention)
        )
        atol = 1e-5 if dtype == torch.float32 else 2e-2
        torch.testing.assert_close(found, expected, rtol=0, atol=atol)


longer = partial(pytest.param, marks=pytest.mark.longer)


@pytest.mark.slow  # compiles C++ for each size, 10 to 30 s of it where nothing is cached
@needs_kernel
@pytest.mark.parametrize(
    ("name", "mask", "batched", "dtype", "sizes"),
    [
        longer("alibi", "", False, torch.float32, [(2, 33)]),
        longer("alibi", "pairs", True, torch.bfloat16, [(2, 200)]),
        longer("t5(scale=1)", "pairs", False, torch.float16, [(2, 70)]),
        # The first size takes the kernel; at the second, sizes are left open, which takes blocks.
        ("t5", "keys", True, torch.float32, [(2, 20), (3, 24)]),
    ],
)
def test_compiled_it_answers_as_uncompiled(small_blocks, name, mask, batched, dtype, sizes):
    attention = attention_with(name, True, kv_heads=2).to(dtype)
    check_compiled(attention, sizes, mask, batched)
