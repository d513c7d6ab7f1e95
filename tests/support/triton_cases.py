"""The Triton kernel against the reference in torch, in every layout that it accepts.

tests/rotary/kernels/test_triton.py runs this file in a separate process: on a GPU if there is one,
or else in triton's interpreter, whose switch must be set before triton is imported. Manually:

    TRITON_INTERPRET=1 python -m pytest tests/support/triton_cases.py

The interpreter truncates float32 to bfloat16, while every GPU rounds; `once` accounts for that. It
has no subnormal bfloat16 numbers.
"""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec
from ropewalk.rotary.kernels import gpu
from ropewalk.rotary.reference import Layout, rotate_reference

pytest.importorskip("triton", reason="needs triton: pip install triton")

DEVICE = "cpu" if gpu.INTERPRETED else "cuda"
PAIRINGS = ["half", "interleaved"]
BOTH = list(itertools.product(PAIRINGS, PAIRINGS))
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
PLACES = [(8, 0, 4), (10, 3, 3), (7, 0, 3), (12, 2, 5), (24, 0, 11)]  # head_dim, start, pairs
BATCHES = [None, 1, 2]  # of the tables
on_gpu = pytest.mark.skipif(gpu.INTERPRETED, reason="needs a GPU: the interpreter has none")

# Views with contiguous rows, as they occur in practice: each of (B, H, S, D).
VIEWS = {
    "contiguous": lambda b, h, s, d: noise(b, h, s, d),
    "transposed": lambda b, h, s, d: noise(b, s, h, d).transpose(1, 2),
    "slice of fused qkv": lambda b, h, s, d: noise(b, s, 3, h, d)[:, :, 1].transpose(1, 2),
    "part of a cache": lambda b, h, s, d: noise(b, h, s + 5, d)[:, :, 2 : s + 2],
    "padded rows": lambda b, h, s, d: noise(b, h, s, d + 3)[..., 1:-2],
    "every second head and row": lambda b, h, s, d: noise(b, 2 * h, 2 * s, d)[:, ::2, ::2],
    "one head for all": lambda b, h, s, d: noise(b, 1, s, d).expand(-1, h, -1, -1),
    "one row for the batch": lambda b, h, s, d: noise(1, h, s, d).expand(b, -1, -1, -1),
}


@pytest.fixture(autouse=True)
def _no_fallback(monkeypatch):
    """A failing kernel must fail the test, whatever happened to an earlier kernel."""
    monkeypatch.setattr(gpu, "_failed", set())


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE)


def tables(length: int, pairs: int, batch: int | None = None) -> tuple[Tensor, Tensor]:
    angles = noise(*(() if batch is None else (batch,)), length, pairs)
    return 1.25 * angles.cos(), 1.25 * angles.sin()


def retyped(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x in another dtype, with x's strides."""
    if x.dtype == dtype:
        return x
    held = sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True)) + 1
    return torch.as_strided(x, (held,), (1,)).to(dtype).as_strided(x.shape, x.stride())


def once(x: Tensor, dtype: torch.dtype) -> Tensor:
    """float32 rounded as on the device that runs the kernel."""
    if gpu.INTERPRETED and dtype == torch.bfloat16:
        return (x.view(torch.int32) & -65536).view(torch.float32).to(dtype)
    return x.to(dtype)


def check(xs, cos, sin, read, write, start, seq_dim, adjoint, outs=None) -> None:
    """Fail unless the kernel returns the reference's numbers, and those are right."""
    in_place = outs is not None
    before = [x.clone() for x in xs]
    outs = outs if in_place else [torch.full_like(x, torch.nan) for x in xs]
    pairs = (write, read) if adjoint else (read, write)  # the kernel's caller swaps them
    gpu.rotate(xs, outs, cos, sin, Layout.of(*pairs, start, seq_dim, adjoint))
    plain = Layout.of(read, write, start, seq_dim, adjoint)
    for x, out in zip(before, outs, strict=True):
        single = rotate_reference(x.float(), cos, sin, plain)
        exact = rotate_reference(x.double(), cos.double(), sin.double(), plain)
        assert torch.equal(out, once(single, x.dtype)), (read, write, start, adjoint)
        assert (single - exact).abs().max() < 2e-6
        assert out.dtype == x.dtype
    if not in_place:
        assert all(torch.equal(x, old) for x, old in zip(xs, before, strict=True))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("read", "write"), BOTH)
def test_q_and_k_in_every_layout(view, dtype, read, write):
    # All combinations for float32; for other dtypes, which differ in loads and stores, each place.
    rotates = list(itertools.product(BATCHES, (False, True)))
    for (dim, start, pairs), (batch, adjoint) in (
        itertools.product(PLACES, rotates)
        if dtype == torch.float32
        else zip(PLACES, rotates, strict=False)
    ):
        q, k = (retyped(VIEWS[view](2, heads, 3, dim), dtype) for heads in (4, 2))
        check((q, k), *tables(3, pairs, batch), read, write, start, -2, adjoint)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_in_place_touches_nothing_beside(dtype, pairing):
    for (dim, start, pairs), batch, adjoint in itertools.product(PLACES, BATCHES, (False, True)):
        fused = noise(2, 3, 4 + 2 + 2, dim + 1).to(dtype)
        old = fused.clone()
        q, k = fused[:, :, :4, :-1].transpose(1, 2), fused[:, :, 4:6, :-1].transpose(1, 2)
        place = pairing, pairing, start, -2, adjoint
        check((q, k), *tables(3, pairs, batch), *place, outs=(q, k))
        old[:, :, :6, start : start + 2 * pairs] = fused[:, :, :6, start : start + 2 * pairs]
        assert torch.equal(fused, old)


@pytest.mark.parametrize(("read", "write"), BOTH)
@pytest.mark.parametrize(
    ("shape", "seq_dim"),
    [((5, 8), -2), ((3, 5, 8), -2), ((5, 3, 8), -3), ((2, 5, 3, 8), -3), ((2, 1, 5, 8), -2)],
)
def test_axes_in_either_order_and_absent(shape, seq_dim, read, write):
    batched = [None, 1] if len(shape) < 4 else [None, 1, 2]
    if shape == (3, 5, 8):
        batched = [None, 1, 3]
    for batch, adjoint in itertools.product(batched, (False, True)):
        check((noise(*shape),), *tables(5, 3, batch), read, write, 1, seq_dim, adjoint)


@settings(max_examples=60)
@given(data=st.data())
def test_any_sizes_in_any_blocks(data):
    """A program's tile ends within a row, a block of positions, a group of heads."""
    batch, length, q_heads, k_heads = (data.draw(st.integers(1, n)) for n in (3, 9, 9, 5))
    pairs, before, after = (data.draw(st.integers(least, 70)) for least in (1, 0, 0))
    read, write = data.draw(st.sampled_from(BOTH))
    dtype, adjoint = data.draw(st.sampled_from(DTYPES)), data.draw(st.booleans())
    seq_dim = data.draw(st.sampled_from((-2, -3)))
    dim = before + 2 * pairs + after
    q, k = (noise(batch, heads, length, dim).to(dtype) for heads in (q_heads, k_heads))
    if seq_dim == -3:
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    rotates = tables(length, pairs, data.draw(st.sampled_from((None, batch))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "PAIRS_PER_PROGRAM", data.draw(st.sampled_from((256, 1024))))
        patch.setattr(gpu, "HEADS_PER_PROGRAM", data.draw(st.sampled_from((1, 4, 8))))
        check((q, k), *rotates, read, write, before, seq_dim, adjoint)


def test_one_launch_serves_q_and_k_of_like_sizes(monkeypatch):
    from ropewalk.rotary.kernels import _rotate_triton

    launches, kernel = [], _rotate_triton.rotate

    class Counted:
        def __getitem__(self, grid):
            launches.append(grid)
            return kernel[grid]

    monkeypatch.setattr(_rotate_triton, "rotate", Counted())
    q, k = noise(2, 4, 3, 8), noise(2, 2, 3, 8)
    check((q, k), *tables(3, 4), "half", "half", 0, -2, False)
    assert len(launches) == 1
    check((q, noise(1, 2, 3, 8)), *tables(3, 4), "half", "half", 0, -2, False)
    assert len(launches) == 3
    check((q, k, noise(2, 1, 3, 10)), *tables(3, 4), "half", "half", 0, -2, False)
    assert len(launches) == 5
    check((q, k.to(torch.float16)), *tables(3, 4), "half", "half", 0, -2, False)
    assert len(launches) == 6
    empty = noise(2, 0, 3, 8)
    gpu.rotate((empty,), (empty,), *tables(3, 4), Layout.of("half"))
    assert len(launches) == 6


def test_takes_tables_of_any_form():
    x, (cos, sin) = noise(2, 3, 5, 8), tables(5, 4)
    wide = torch.stack((cos, sin), dim=-1)
    form = "half", "interleaved", 0, -2, False
    check((x,), wide[..., 0], wide[..., 1], *form)
    check((x,), *tables(9, 6)[0][2:7, 1:5].expand(2, 2, 5, 4).unbind(0), *form)
    check((x,), cos, torch._neg_view(sin), *form)
    out = torch.empty_like(x)
    gpu.rotate((torch._neg_view(x),), (out,), cos, sin, Layout.of("half"))
    assert torch.equal(out, rotate_reference(-x, cos, sin, Layout.of("half")))
    gpu.rotate((x,), (out,), cos.double(), sin.double(), Layout.of("half"))
    assert torch.equal(out, rotate_reference(x, cos, sin, Layout.of("half")))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the interpreter's NumPy warns about them
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_infinities_nan_and_tiny_numbers(dtype, pairing):
    least = torch.finfo(dtype).tiny * (64 if gpu.INTERPRETED and dtype == torch.bfloat16 else 1)
    values = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, least, -least, torch.finfo(dtype).max]
    x = torch.tensor(list(itertools.product(values, values)), device=DEVICE).to(dtype)
    x = x.reshape(1, 1, len(x), 2)
    cos, sin = tables(x.shape[2], 1)
    out = torch.empty_like(x)
    gpu.rotate((x,), (out,), cos, sin, Layout.of(pairing))
    expected = once(rotate_reference(x.float(), cos, sin, Layout.of(pairing)), dtype)
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out.nan_to_num(nan=0.0), expected.nan_to_num(nan=0.0))


def test_where_the_kernel_cannot_be_compiled_torch_rotates(monkeypatch):
    from ropewalk.rotary.kernels import _rotate_triton

    class Broken:
        def __getitem__(self, grid):
            raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(_rotate_triton, "rotate", Broken())
    q, k, (cos, sin) = noise(2, 4, 3, 8), noise(2, 2, 3, 8), tables(3, 3)
    words = f"does not run for torch.float32 on {q.device}.*RuntimeError: Failed to find C compiler"
    for read, write in BOTH:
        for adjoint in (False, True):
            gpu._failed.clear()
            with pytest.warns(UserWarning, match=words):
                check((q, k), cos, sin, read, write, 1, -2, adjoint)
            check((q, k), cos, sin, read, write, 1, -2, adjoint)  # it warns once


# On a GPU only


@on_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize(("length", "dim", "rotary"), [(1, 128, 128), (777, 128, 128), (9, 80, 40)])
def test_realistic_sizes(dtype, pairing, length, dim, rotary):
    q, k = (noise(3, length, heads, dim).to(dtype).transpose(1, 2) for heads in (40, 8))
    for batch, adjoint in itertools.product((None, 3), (False, True)):
        check((q, k), *tables(length, rotary // 2, batch), pairing, pairing, 0, -2, adjoint)
        place = pairing, pairing, 0, -2, adjoint
        check((q.clone(), k), *tables(length, rotary // 2, batch), *place, outs=(q, k))


@on_gpu
@pytest.mark.parametrize("pairing", PAIRINGS)
def test_the_module_and_its_gradient_use_it(pairing, monkeypatch):
    calls, kernel = [], gpu.rotate
    monkeypatch.setattr(gpu, "rotate", lambda *a: calls.append(a) or kernel(*a))
    rope = RotaryEmbedding(RotarySpec(12, 8, pairing=pairing))
    found = []
    for device in ("cuda", "cpu"):
        torch.manual_seed(0)
        leaves = [torch.randn(2, heads, 5, 12).to(device).requires_grad_() for heads in (4, 2)]
        q, k = rope(*leaves, positions=torch.arange(5, device=device) * 1000)
        (q.square().sum() + k.pow(3).sum()).backward()
        found.append([t.cpu() for t in (q, k, *(leaf.grad for leaf in leaves))])
        assert len(calls) >= 2
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


@on_gpu
def test_the_module_compiles_whole():
    rope = RotaryEmbedding(RotarySpec(64))
    q, k = noise(2, 4, 33, 64).bfloat16(), noise(2, 2, 33, 64).bfloat16()
    compiled = torch.compile(lambda q, k: rope(q, k), fullgraph=True)
    for ours, expected in zip(compiled(q, k), rope(q, k), strict=True):
        torch.testing.assert_close(ours, expected)


@on_gpu
def test_beyond_what_32_bits_count():
    x = torch.empty(2, 1, 2**23 + 5, 128, dtype=torch.bfloat16, device=DEVICE)
    tail = torch.randn(2, 1, 3, 128, device=DEVICE).bfloat16()
    x[:, :, -3:] = tail
    cos, sin = tables(x.shape[2], 64)
    gpu.rotate((x,), (x,), cos, sin, Layout.of("half"))
    expected = rotate_reference(tail, cos[-3:], sin[-3:], Layout.of("half"))
    assert torch.equal(x[:, :, -3:], expected)
