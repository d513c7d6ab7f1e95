"""Attention of few queries or to few keys: the kernel in C and torch's products, held to a formula.

These fail if a key is hidden that should not be, or the reverse; if a bias, a stride, a head or a
dimension is read from another place; if a number of keys that does not fill a vector loses one; if
exp is less exact than float32; if NaN gets lost; if threads or instruction sets change more than
the last digits; and if the kernel is called where torch must know of the call.
"""

import multiprocessing
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from ropewalk.model import Attention, short_attention

needs_kernel = pytest.mark.skipif(
    short_attention.INSTRUCTIONS is None,
    reason="needs the C extension: install ropewalk where there is a compiler",
)
SETS = ["portable", "avx2"]
LOWEST = torch.finfo(torch.float32).min


@pytest.fixture
def instructions():
    """Select an instruction set; afterwards the former one is in use again."""
    if short_attention.INSTRUCTIONS is None:
        pytest.skip("needs the C extension")
    yield short_attention._limit
    short_attention._limit(short_attention.INSTRUCTIONS)


def random(*shape: int, seed: int, spread: float = 1.0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * spread


def formula(
    q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, mask: Tensor | None
) -> Tensor:
    """The definition, in float64."""
    scores = q.double() @ k.double().mT * scale
    if bias is not None:
        scores = scores + bias.double()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v.double()  # no visible key: zeros


def kernel(q: Tensor, k: Tensor, v: Tensor, scale: float, added: Tensor | None) -> Tensor:
    found = short_attention._by_kernel(q, k, v, scale, added)
    assert found is not None
    return found


@needs_kernel
@settings(max_examples=100)
@given(
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 10),
    st.integers(1, 40),
    st.sampled_from([16, 32, 48, 64, 80, 128]),
    st.sampled_from([None, (1, 1, 1), (4, 1, 1), (4, 3, 10), (1, 1, 10)]),
    st.booleans(),
    st.sampled_from(SETS),
    st.integers(0, 2**31),
)
@torch.inference_mode()
def test_equals_the_formula(batch, heads, queries, keys, dim, masked, biased, name, seed):
    q = random(batch, queries, heads, dim, seed=seed, spread=3).transpose(1, 2)
    k = random(batch, heads, keys + 5, dim, seed=seed + 1)[:, :, 2 : keys + 2]  # as in a cache
    v = random(batch, heads, keys, 2 * dim, seed=seed + 2)[..., :dim]
    bias = random(heads, queries, keys, seed=seed + 3) if biased else None
    mask = None
    if masked is not None:
        axes = [min(size, most) for size, most in zip((batch, heads, queries), masked, strict=True)]
        mask = random(*axes, keys, seed=seed + 4) > 0.3
    short_attention._limit(name)
    try:
        found = short_attention.attend(q, k, v, dim**-0.5, bias, mask)
    finally:
        short_attention._limit(short_attention.INSTRUCTIONS)
    expected = formula(q, k, v, dim**-0.5, bias, mask).float()
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-5)
    assert found.transpose(1, 2).is_contiguous()


@needs_kernel
@torch.inference_mode()
def test_exp_is_exact_to_float32(instructions):
    """One dimension of the values counts the weight of one key."""
    q, k = torch.zeros(1, 1, 1, 16), torch.zeros(1, 1, 2, 16)
    v = torch.zeros(1, 1, 2, 16)
    v[0, 0, 1, 0] = 1
    for name in SETS:
        instructions(name)
        for gap in torch.linspace(0, 86, 2000).tolist():
            added = torch.tensor([0.0, -gap]).view(1, 1, 1, 2)
            weight = kernel(q, k, v, 1.0, added)[0, 0, 0, 0].double()
            x = torch.tensor(-gap).double().exp()
            assert abs(weight / (x / (1 + x)) - 1) < 3e-7


@needs_kernel
@torch.inference_mode()
def test_hidden_keys_are_not_read_and_nan_is_kept(instructions):
    q, k, v = (random(1, 1, n, 16, seed=n) for n in (1, 9, 9))
    added = torch.zeros(1, 1, 1, 9)
    added[..., 4] = LOWEST
    v[..., 4, :] = torch.nan
    k[..., 4, :] = torch.inf
    for name in SETS:
        instructions(name)
        assert kernel(q, k, v, 1.0, added).isfinite().all()
        assert not kernel(q, k, v, 1.0, torch.full_like(added, LOWEST)).any()
        for value in (torch.nan, torch.inf):
            wrong = k.clone()
            wrong[..., 7, :] = value * q.sign().squeeze(-2)
            assert kernel(q, wrong, v, 1.0, added).isnan().all()
        assert kernel(q, k, v, 1.0, torch.full_like(added, torch.nan)).isnan().all()


@needs_kernel
@torch.inference_mode()
def test_threads_give_the_same_bits():
    q, k, v = (random(3, 7, n, 64, seed=n) for n in (5, 300, 301))
    v, mask = v[:, :, :300], random(3, 1, 5, 300, seed=9) > 0
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(short_attention.attend(q, k, v, 0.125, None, mask))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def _attend_in_fork(given: tuple[Tensor, ...], pipe) -> None:
    with torch.inference_mode():
        pipe.send(short_attention.attend(*given, 0.1, None, None).sum().item())


@needs_kernel
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_works_in_a_process_forked_after_threads_have_run():
    given = tuple(random(64, 8, n, 64, seed=n) for n in (1, 200, 200))
    context = multiprocessing.get_context("fork")
    with torch.inference_mode():
        expected = short_attention.attend(*given, 0.1, None, None).sum().item()
    ours, theirs = context.Pipe()
    process = context.Process(target=_attend_in_fork, args=(given, theirs))
    process.start()
    assert ours.poll(30), "the forked process hangs"
    assert ours.recv() == pytest.approx(expected, rel=1e-5)
    process.join()


@needs_kernel
@torch.inference_mode()
def test_what_the_kernel_cannot_read_goes_to_torch():
    q, k, v = (random(2, 2, n, 16, seed=n) for n in (1, 6, 6))

    class Subclass(Tensor):
        pass

    refused = {
        "float64": (q.double(), k.double(), v.double()),
        "one dimension too many": (q[..., :15], k[..., :15], v[..., :15]),
        "columns apart": (q, k.mT.contiguous().mT, v),
        "negated": (q, torch._neg_view(k), v),
        "a subclass": (q.as_subclass(Subclass), k, v),
        "no keys": (q, k[:, :, :0], v[:, :, :0]),
        "more keys than fit": (q, *(x.expand(2, 2, 6, 16).repeat(1, 1, 700, 1) for x in (k, v))),
        "other values": (q, k, v[:, :, :5]),
    }
    for name, wrong in refused.items():
        assert short_attention._by_kernel(*wrong, 1.0, None) is None, name
    assert short_attention._by_kernel(q, k, v, 1.0, torch.zeros(1, 1, 1, 5)) is None
    assert short_attention._by_kernel(q, k, v, 1.0, torch.zeros(3, 1, 1, 6)) is None
    for name in ("float64", "one dimension too many", "columns apart", "negated"):
        found = short_attention.attend(*refused[name], 0.5, None, None)
        expected = formula(*refused[name], 0.5, None, None)
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)


@needs_kernel
@torch.no_grad()
def test_transforms_and_compilers_see_torchs_operations():
    q, k, v = (random(2, 2, n, 16, seed=n) for n in (1, 6, 6))

    def attend(q: Tensor) -> Tensor:
        return short_attention.attend(q, k, v, 0.5, None, None)

    expected = attend(q)
    mapped = torch.func.vmap(attend)(q.expand(3, *q.shape))
    torch.testing.assert_close(mapped, expected.expand(3, *q.shape), rtol=0, atol=1e-6)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert attend(mode.from_tensor(q)).shape == q.shape  # it has no memory to read


@pytest.mark.parametrize("available", [True, False])
@torch.inference_mode()
def test_sentences_attend_alike_with_and_without_the_kernel(available, monkeypatch):
    if not available:
        monkeypatch.setattr(short_attention, "INSTRUCTIONS", None)
    attention = Attention(64, heads=4).eval()
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for parameter in attention.parameters():
            parameter.normal_(std=0.2)
    x, mask = random(3, 20, 64, seed=2), torch.ones(3, 20, dtype=torch.bool)
    mask[0, 15:] = False
    for causal in (False, True):
        found = attention(x, mask=mask[:, None, None], causal=causal).output
        wide = attention.double()(x.double(), mask=mask[:, None, None], causal=causal).output
        attention.float()
        torch.testing.assert_close(found, wide.float(), rtol=0, atol=1e-5)
