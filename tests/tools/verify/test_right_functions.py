"""`verify` of right ropes, in every layout and form that ports use: none has a fault.

It fails if a check names a fault that is not there: each row rotates exactly as its specification
says, as far as the precision of float32 angles goes.
"""

from functools import wraps

import pytest
import ropes_of_others as others
import torch
from ropes_of_others import by_angles, first, half, inverse, rotate_half, rotate_neighbors, xpos
from torch import nn

from ropewalk import RotaryEmbedding, RotarySpec, axes, scaling, tools

PLAIN, NEIGHBORS = RotarySpec(64), RotarySpec(64, pairing="interleaved")
QUARTER, LAST_QUARTER = RotarySpec(64, rotary_dim=16), RotarySpec(64, rotary_dim=16, start=48)
YARN = RotarySpec(64, scaling=scaling.YaRN(4.0, original_length=4_096))
LLAMA_3 = RotarySpec(64, theta=5e5, scaling=scaling.Llama3(8.0, 1.0, 4.0, original_length=8_192))
LINEAR, DEEPSEEK = (
    RotarySpec(64, scaling=scaling.Linear(4.0)),
    RotarySpec(64, pairing="interleaved", write_pairing="half"),
)
FACTORS = [1.0] * 32, [2.0 + i for i in range(32)]
LONG = RotarySpec(64, scaling=scaling.LongRoPE(*FACTORS, original_length=4_096, factor=4.0))
DYNAMIC = RotarySpec(64, scaling=scaling.DynamicNTK(4.0, original_length=4_096))
HALF_HEAD = RotarySpec(64, rotary_dim=32, amplitude=1.2)
LOUD, BACKWARDS = RotarySpec(64, amplitude=1.2), RotarySpec(64, reverse=True)
BIG, MOST = RotarySpec(80, theta=1e6), RotarySpec(64, rotary_dim=48)
STRETCHED, BY_LENGTH = RotaryEmbedding(YARN), RotaryEmbedding(DYNAMIC)
SECTIONED = RotaryEmbedding(RotarySpec(64, axes=axes.sectioned((8, 12, 12))))
F64 = 10_000.0 ** -(torch.arange(0, 64, 2, dtype=torch.float64) / 64)


def of(spec, length=None):
    rope = RotaryEmbedding(spec)
    return lambda x, positions: rope.rotate(x, positions, length=length)


def moved(spec):
    rope = RotaryEmbedding(spec)
    return lambda k, old_positions, new_positions: rope.shift(k, new_positions - old_positions)


def moved_by_length(k, old, new):
    """Each time with the frequencies of its own length, as `rerotate` does."""
    plain = BY_LENGTH.unrotate(k, old, length=int(old.max()) + 1)
    return BY_LENGTH.rotate(plain, new, length=int(new.max()) + 1)


def turned(f):
    """The same function of (B, S, H, D)."""

    @wraps(f)
    def of_bshd(x, *rest):
        return f(x.transpose(1, 2), *rest).transpose(1, 2)

    return of_bshd


def offset(x, start_pos=0):
    return half(x, torch.arange(start_pos, start_pos + x.shape[-2]))


def alone(x):
    return offset(x)


def by_head(q, k, positions):
    """Rows (B, S) get an axis for heads."""
    at = positions if positions.ndim == 1 else positions[:, None]
    return half(q, at), half(k, at)


def angles_of(positions):
    return positions[..., None].float() * inverse()


def cos_sin(angles):
    return angles.cos(), angles.sin()


def with_pairs(x, cos, sin):
    """Tables (S, D/2)."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def with_pairs_of_some(x, cos, sin):
    """Twice as many dimensions as the tables have columns."""
    x, rest = x.tensor_split([2 * cos.shape[-1]], -1)
    return torch.cat((with_pairs(x, cos, sin), rest), -1)


def with_tables(turn):
    """Tables (S, D)."""
    return lambda q, k, cos, sin: tuple(x * cos + turn(x) * sin for x in (q, k))


def as_complex(turns, *vectors):
    numbers = (torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) for x in vectors)
    return tuple(torch.view_as_real(z * turns).flatten(-2).type_as(vectors[0]) for z in numbers)


def as_matrices(x, positions):
    cos, sin = cos_sin(angles_of(positions))
    blocks = torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -2)
    return torch.einsum("spij,bhspj->bhspi", blocks, x.float().unflatten(-1, (-1, 2))).flatten(-2)


class Table(nn.Module):
    """A table of 2^17 rows, which calls read from `start_pos` on."""

    def __init__(self) -> None:
        super().__init__()
        angles = angles_of(torch.arange(2**17))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, q, k, start_pos=0):
        rows = slice(start_pos, start_pos + q.shape[-2])
        return tuple(with_pairs(x, self.cos[rows], self.sin[rows]) for x in (q, k))


class Growing(nn.Module):
    """A table that grows as positions need it."""

    angles = torch.empty(0, 32)

    def forward(self, x, positions):
        if len(self.angles) <= (end := int(positions.max())):
            self.angles = angles_of(torch.arange(2 ** end.bit_length() + 1))
        return by_angles(x, self.angles[positions])


#: Function, specification, and the length that its rule assumes.
RIGHT = {
    "transformers' Llama, tables": (others.TransformersLlama(), PLAIN),
    "transformers' Llama, applied": (others.transformers_llama, PLAIN),
    "GPT-J": (others.gptj, NEIGHBORS),
    "GPT-NeoX": (others.GPTNeoX(), QUARTER),
    "torchtune": (others.Torchtune(), NEIGHBORS),
    "rotary-embedding-torch": (others.RotaryEmbeddingTorch().rotate_queries_or_keys, NEIGHBORS),
    "x-transformers": (others.x_transformers, NEIGHBORS),
    "Meta": (others.meta_llama, NEIGHBORS),
    "Llama 4": (lambda xq, xk, freqs_cis: as_complex(freqs_cis[:, :, None], xq, xk), NEIGHBORS),
    "lucidrains": (others.lucidrains_palm, PLAIN),
    "ropewalk": (RotaryEmbedding(YARN), YARN),
    "x alone": (alone, PLAIN),
    "x alone, (B, S, H, D)": (turned(alone), PLAIN),
    "(B, S, H, D)": (turned(half), PLAIN),
    "positions (S,)": (lambda x, pos: by_angles(x, torch.outer(pos.float(), inverse())), PLAIN),
    "positions (B, S)": (lambda x, position_ids: half(x, position_ids[:, None]), PLAIN),
    "both, grouped heads": (by_head, PLAIN),
    "offset": (offset, PLAIN),
    "a table from an offset on": (Table(), PLAIN),
    "a table that grows": (Growing(), PLAIN),
    "tables of pairs": (with_pairs, PLAIN),
    "tables of pairs, half a head": (with_pairs_of_some, HALF_HEAD),
    "tables of halves": (with_tables(rotate_half), PLAIN),
    "tables of neighbors": (with_tables(rotate_neighbors), NEIGHBORS),
    "complex": (lambda q, k, m: as_complex(torch.exp(1j * angles_of(m)), q, k), NEIGHBORS),
    "matrices": (as_matrices, NEIGHBORS),
    "float64": (lambda x, m: by_angles(x.double(), m[:, None] * F64).to(x.dtype), PLAIN),
    "promoted to float32": (lambda x, m: half(x.float(), m), PLAIN),
    "a copy in place": (lambda x, m: x.clone().copy_(half(x, m)), PLAIN),
    "values": (lambda q, k, v, m: (half(q, m), half(k, m), v), PLAIN),
    "q and k of three": (lambda q, k, v, m: (half(q, m), half(k, m)), PLAIN),
    "a path for one token": (
        lambda x, m: half(x, m) if len(m) > 1 else with_pairs(x, *cos_sin(angles_of(m))),
        PLAIN,
    ),
    "no gradient": (torch.no_grad()(lambda x, m: half(x, m)), PLAIN),
    "tables of x alone": (lambda x: cos_sin(angles_of(torch.arange(x.shape[-2]))), PLAIN),
    "repeated": (lambda x, pos: cos_sin(angles_of(pos).repeat_interleave(2, -1)), PLAIN),
    "complex tables": (lambda x, positions: torch.exp(1j * angles_of(positions)), PLAIN),
    "tables of a rule": (lambda x, m: tuple(t.to(x.dtype) for t in STRETCHED.tables(m)), YARN),
    "the last quarter": (of(LAST_QUARTER), LAST_QUARTER),
    "three quarters": (lambda x, m: first(x, 48, m), MOST),
    "another size": (of(BIG), BIG),
    "amplitude": (of(LOUD), LOUD),
    "Llama 3": (of(LLAMA_3), LLAMA_3),
    "linear": (lambda x, m: half(x, m / 4), LINEAR),
    "reads neighbors, writes halves": (of(DEEPSEEK), DEEPSEEK),
    "backwards": (lambda x, m: half(x, -m), BACKWARDS),
    "counts from 1": (lambda x, m: half(x, m + 1), PLAIN),
    "xPos": (xpos, PLAIN),
    "three axes, text": (lambda x, m: SECTIONED.rotate(x, m.expand(3, *m.shape)), PLAIN),
    "LongRoPE, short": (of(LONG, 4_096), LONG, 4_096),
    "LongRoPE, long": (of(LONG, 131_072), LONG, 131_072),
    "dynamic NTK at a length": (of(DYNAMIC, 1_048_576), DYNAMIC, 1_048_576),
    "moves keys": (moved(YARN), YARN),
    "moves keys that were written in halves": (moved(DEEPSEEK), DEEPSEEK),
    "moves keys of the last quarter": (moved(LAST_QUARTER), LAST_QUARTER),
    "moves back and forth": (
        lambda k, old, new: STRETCHED.rotate(STRETCHED.unrotate(k, old), new),
        YARN,
    ),
    "moves rows of keys": (lambda k, old, new: half(k, (new - old)[:, None]), PLAIN),
    "moves keys by float32 angles": (lambda k, old, new: half(k, new - old), PLAIN),
    "moves keys, dynamic NTK": (moved_by_length, DYNAMIC),
}
#: Without its specification one function of each is enough: it has no part in how one is called.
ALONE = {spec: name for name, (_, spec, *_) in reversed(RIGHT.items())}.values()
CASES = [*((name, True) for name in RIGHT), *((name, False) for name in [*ALONE, "moves keys"])]


@pytest.mark.parametrize(("name", "specified"), CASES)
def test_right_code_has_no_fault(name, specified):
    function, spec, *length = RIGHT[name]
    given = {"like": spec, "length": length[0] if length else None} if specified else {}
    report = tools.verify(function, **given)
    assert report.right, [c for c in report.checks if c.fault]
    assert sum(check.verdict == "right" for check in report.checks) >= 8


def test_a_stated_layout_leaves_right_code_right():
    assert tools.verify(turned(half), axes="bshd", like=PLAIN).right
    assert tools.verify(others.neighbors, axes="bhsd", like=NEIGHBORS).right
    assert tools.verify(others.TransformersLlama(), axes="bshd", like=PLAIN).right
