"""The kernel in C gives the same bits with every instruction set that this processor has.

These fail when a set rounds otherwise than the portable code, reads or writes another element, or
is not the one that was asked for. Only the sets that the processor has can be tested on it.
"""

import itertools
import runpy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ropewalk.rotary.kernels import cpu
from ropewalk.rotary.reference import Layout

pytestmark = pytest.mark.skipif(
    not cpu.AVAILABLE, reason="needs the C extension: install ropewalk where there is a compiler"
)

SETS = ["portable", "avx2", "avx512", "avx512bf16"]
HERE = [name for name in SETS if cpu.AVAILABLE and cpu._limit(name) == name]
if cpu.AVAILABLE:
    cpu._limit(cpu.INSTRUCTIONS)
OTHERS = HERE[1:]
PAIRINGS = ["half", "interleaved"]
DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]
SIXTEEN_BITS = DTYPES[:2]

# Numbers of pairs that the loops by 16 take, and others.
PAIRS = st.one_of(st.sampled_from([16, 32, 48, 64]), st.integers(1, 70))


def rotated(instructions: str, x: Tensor, out: Tensor, *arguments) -> None:
    cpu._limit(instructions)
    try:
        assert cpu._rotate((x,), (out,), *arguments) is not None
    finally:
        cpu._limit(cpu.INSTRUCTIONS)


def bits(x: Tensor) -> Tensor:
    """The bits of x, with one NaN for all."""
    one_nan = torch.where(x.isnan(), torch.full_like(x, torch.nan), x)
    return one_nan.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.itemsize])


def any_bits(shape: tuple[int, ...], dtype: torch.dtype, draw: torch.Generator) -> Tensor:
    """Numbers of any size, of which one in eight has any bits: subnormal, infinite, NaN."""
    exponents = torch.randint(-12, 12, shape, generator=draw).double()
    x = (torch.randn(shape, generator=draw).double() * exponents.exp2()).to(dtype)
    size = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.itemsize]
    wild = torch.randint(-(2**63), 2**63 - 1, shape, generator=draw).to(size).view(dtype)
    return torch.where(torch.randint(0, 8, shape, generator=draw) == 0, wild, x)


# How (B, H, S, D) may lie in memory: the shape of the memory, and the view of it.
VIEWS = {
    "contiguous": (lambda b, h, s, d: (b, h, s, d), lambda memory: memory),
    "positions first": (lambda b, h, s, d: (b, s, h, d), lambda memory: memory.transpose(1, 2)),
    "part": (
        lambda b, h, s, d: (b, h + 1, s + 2, d + 3),
        lambda memory: memory[:, 1:, 1:-1, 2:-1],
    ),
}


@pytest.mark.parametrize("instructions", OTHERS)
@given(
    sizes=st.tuples(st.integers(1, 2), st.integers(1, 5), st.integers(1, 40)),
    pairs=PAIRS,
    around=st.sampled_from([(0, 0), (0, 3), (5, 0), (16, 16)]),
    dtype=st.sampled_from(DTYPES),
    views=st.tuples(*[st.sampled_from(sorted(VIEWS))] * 2),
    layout=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    in_place=st.booleans(),
    by_batch=st.booleans(),
    threads=st.tuples(st.integers(1, 3), st.sampled_from([1, 3000, 1 << 17])),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=100)
def test_gives_the_bits_of_the_portable_code(
    instructions, sizes, pairs, around, dtype, views, layout, in_place, by_batch, threads, seed
):
    """Also around what rotates: nothing else in the memory of out may change."""
    draw = torch.Generator().manual_seed(seed)
    (batch, heads, length), (before, after) = sizes, around
    read, write, adjoint = layout
    in_place = in_place and read == write
    shape = (batch, heads, length, before + 2 * pairs + after)
    (x_shape, view), (out_shape, out_view) = (VIEWS[name] for name in views)
    x_memory = any_bits(x_shape(*shape), dtype, draw)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    rows = (batch, length) if by_batch else (length,)
    cos, sin = (any_bits((*rows, pairs), wide, draw) for _ in range(2))
    kept = []
    for name in ("portable", instructions):
        if in_place:
            memory = x_memory.clone()
            x = out = view(memory)
        else:
            memory = torch.full(out_shape(*shape), 7, dtype=dtype)
            x, out = view(x_memory), out_view(memory)
        rotated(name, x, out, cos, sin, 0, (read, write, before, -2, adjoint), *threads)
        kept.append(memory)
    assert torch.equal(*map(bits, kept))


# Factors that put results between two numbers of 16 bits, and every kind of NaN in float32.
TIES = [1 + 2.0**-places for places in (7, 8, 9, 10, 11, 12)] + [0.5, 1.5, 3.0]
NANS = torch.tensor([0x7FFFFFFF, -1, 0x7F800001, 0x7FC00000, -(2**22)], dtype=torch.int32)


@pytest.mark.parametrize("instructions", OTHERS)
@pytest.mark.parametrize("pairing", PAIRINGS)
@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_rounds_what_is_rare_wherever_it_is(instructions, dtype, pairing):
    """A tie or a NaN in one result, among others that have neither."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    every = every[every.abs() < 1e4]  # no NaN but those of the factors
    every = every[torch.randperm(len(every), generator=torch.Generator().manual_seed(1))]
    x = every[:16384].reshape(1, 2, -1, 64)
    factors = [*TIES, *NANS.view(torch.float32).tolist()]
    for factor, lane in itertools.product(factors, (0, 5, 9, 15, 17, 31)):
        cos, sin = (torch.full((x.shape[2], 32), value) for value in (1.1, 0.0))
        (sin if factor != factor and lane % 2 else cos)[:, lane] = factor
        outs = [torch.empty_like(x) for _ in range(2)]
        for name, out in zip(("portable", instructions), outs, strict=True):
            rotated(name, x, out, cos, sin, 0, Layout.of(pairing), 1, 1 << 17)
        assert torch.equal(*map(bits, outs))


@pytest.mark.parametrize(
    ("capability", "most"), [("default", "portable"), ("avx2", "avx2"), ("avx512", SETS[-1])]
)
def test_torchs_switch_limits_the_kernel(capability, most):
    best = [name for name in HERE if SETS.index(name) <= SETS.index(most)][-1]
    try:
        assert cpu.limit_instructions(capability) == best
    finally:
        cpu._limit(cpu.INSTRUCTIONS)


def test_torchs_switch_is_read_at_import(monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    try:
        assert runpy.run_path(cpu.__file__)["INSTRUCTIONS"] == "portable"
    finally:
        cpu._limit(cpu.INSTRUCTIONS)


def test_a_set_that_is_unknown_or_absent_leaves_the_best():
    assert cpu._limit("avx3") == HERE[-1]
    with pytest.raises(TypeError, match="name of a set"):
        cpu._limit(2)
    assert cpu._limit(cpu.INSTRUCTIONS) == cpu.INSTRUCTIONS
