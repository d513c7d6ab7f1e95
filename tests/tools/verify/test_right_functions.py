"""`verify` of right ropes, in every layout and form that ports use: none has a fault.

It fails if a check names a fault that is not there: each row rotates exactly as its specification
says, as far as the precision of float32 angles goes.
"""

import pytest
import ropes_of_others as others
import torch
from ropes_of_others import by_angles, first, half, inverse, neighbors, rotate_half, xpos
from torch import nn

from ropewalk import RotaryEmbedding, RotarySpec, axes, scaling, tools

PLAIN, NEIGHBORS = RotarySpec(64), RotarySpec(64, pairing="interleaved")
QUARTER, LAST_QUARTER = RotarySpec(64, rotary_dim=16), RotarySpec(64, rotary_dim=16, start=48)
YARN = RotarySpec(64, scaling=scaling.YaRN(4.0, original_length=4_096))
LLAMA_3 = RotarySpec(64, theta=5e5, scaling=scaling.Llama3(8.0, 1.0, 4.0, original_length=8_192))
DEEPSEEK = RotarySpec(64, pairing="interleaved", write_pairing="half")
LONG = RotarySpec(
    64,
    scaling=scaling.LongRoPE([1.0] * 32, [2.0 + i for i in range(32)], 4_096, factor=4.0),
)
DYNAMIC = RotarySpec(64, scaling=scaling.DynamicNTK(4.0, original_length=4_096))
SECTIONS = RotarySpec(64, axes=axes.sectioned((8, 12, 12)))
TEXT = RotarySpec(64)  # what M-RoPE is for text


def of(spec, length=None):
    """Return f(x, positions) that rotates as a spec says."""
    rope = RotaryEmbedding(spec)
    return lambda x, positions: rope.rotate(x, positions, length=length)


def by_head(positions):
    """Positions (S,) or (B, S), with an axis for heads."""
    return positions if positions.ndim == 1 else positions[:, None]


def alone(x):
    return half(x, torch.arange(x.shape[-2]))


def alone_bshd(x):
    return alone(x.transpose(1, 2)).transpose(1, 2)


def bshd(x, positions):
    return half(x.transpose(1, 2), by_head(positions)).transpose(1, 2)


def rows(x, position_ids):
    """Positions (B, S) alone."""
    if position_ids.ndim != 2:
        raise ValueError("position_ids must be (B, S)")
    return half(x, position_ids[:, None])


def outer(x, positions):
    """Positions (S,) alone."""
    return by_angles(x, torch.outer(positions.float(), inverse(x.shape[-1])))


def grouped(q, k, positions):
    if q.shape[1] % k.shape[1]:
        raise ValueError("H must be a multiple of K")
    return half(q, by_head(positions)), half(k, by_head(positions))


def offset(x, offset=0):
    return half(x, torch.arange(offset, offset + x.shape[-2]))


def offset_bshd(x, start_pos):
    return offset(x.transpose(1, 2), start_pos).transpose(1, 2)


def with_pairs(x, cos, sin):
    """Tables (S, D/2)."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def with_halves(q, k, cos, sin):
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def with_repeated(q, k, cos, sin):
    turn = others.rotate_neighbors
    return q * cos + turn(q) * sin, k * cos + turn(k) * sin


def complex_numbers(q, k, positions):
    turns = torch.polar(*torch.broadcast_tensors(torch.ones(()), positions[:, None] * inverse()))

    def one(x):
        z = torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * turns
        return torch.view_as_real(z).flatten(-2).type_as(x)

    return one(q), one(k)


def llama_4(xq, xk, freqs_cis):
    """(B, S, H, D) as complex numbers, with turns (B, S, D/2)."""

    def one(x):
        z = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(z * freqs_cis[:, :, None, :]).flatten(3).type_as(x)

    return one(xq), one(xk)


def as_matrices(x, positions):
    """A block-diagonal matrix for each position."""
    angles = positions[:, None].float() * inverse()
    cos, sin = angles.cos(), angles.sin()
    blocks = torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -2)
    return torch.einsum("spij,bhspj->bhspi", blocks, x.float().unflatten(-1, (-1, 2))).flatten(-2)


def in_float64(x, positions):
    f = 10_000.0 ** -(torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    return by_angles(x.double(), by_head(positions)[..., None] * f).to(x.dtype)


def promoted(x, positions):
    """A result in float32 whatever the vectors."""
    return half(x.float(), positions)


def on_a_copy(q, k, v, positions):
    """In place, on copies; values as they are."""
    made = [x.clone() for x in (q, k)]
    for x in made:
        x.copy_(half(x, positions))
    return *made, v


def one_token_apart(x, positions):
    """Decoding has a path of its own."""
    if len(positions) > 1:
        return half(x, positions)
    angle = positions.float() * inverse(x.shape[-1])
    return with_pairs(x, angle.cos(), angle.sin())


def only_q_and_k(q, k, v):
    return alone(q), alone(k)


@torch.no_grad()
def for_inference(q, k, positions):
    return half(q, positions), half(k, positions)


def three_axes(x, positions):
    return RotaryEmbedding(SECTIONS).rotate(x, positions.expand(3, *positions.shape))


def angles_of(positions):
    return positions[..., None].float() * inverse()


def tables_of_x(x):
    angles = angles_of(torch.arange(x.shape[-2]))
    return angles.cos(), angles.sin()


def tables_interleaved(x, position_ids):
    angles = angles_of(position_ids).repeat_interleave(2, -1)
    return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def complex_tables(x, positions):
    return torch.polar(torch.ones(*positions.shape, 32), angles_of(positions))


class Table(nn.Module):
    """A table of 2^17 rows, which calls read from `start_pos` on; (B, S, H, D) if so asked."""

    def __init__(self, turn=lambda x: x) -> None:
        super().__init__()
        self.turn = turn
        angles = angles_of(torch.arange(2**17))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, q, k, start_pos=0):
        rows = slice(start_pos, start_pos + self.turn(q).shape[-2])
        q, k = (self.turn(with_pairs(self.turn(x), self.cos[rows], self.sin[rows])) for x in (q, k))
        return q, k


class Growing(nn.Module):
    """A table that grows as positions need it, and keeps the dtype of float32."""

    def __init__(self) -> None:
        super().__init__()
        self.angles = torch.empty(0, 32)

    def forward(self, x, positions):
        end = int(positions.max()) + 1
        if len(self.angles) < end:
            self.angles = angles_of(torch.arange(2 ** end.bit_length()))
        return by_angles(x, self.angles[positions])


class ServedTables(others.TransformersLlama):
    """Exact tables, in the dtype of the hidden states, with the factor of a rule."""

    def forward(self, x, position_ids):
        angles = position_ids[:, :, None].float() * YARN.inverse_frequencies().float()
        both = torch.cat((angles, angles), -1)
        return tuple((t * YARN.amplitude_at()).to(x.dtype) for t in (both.cos(), both.sin()))


def moved(spec):
    """Return f(k, old_positions, new_positions) that rotates keys by the distance."""
    rope = RotaryEmbedding(spec)
    return lambda k, old_positions, new_positions: rope.shift(k, new_positions - old_positions)


def moved_rows(k, old, new):
    """Undoes the old rotation, of rows with positions (B, S), and makes the new one."""
    if new.ndim != 2:
        raise ValueError("new must be (B, S)")
    rope = RotaryEmbedding(YARN)
    return rope.rotate(rope.unrotate(k, old), new)


def moved_by_length(k, old, new):
    """Each time with the frequencies of its own length, as `rerotate` does."""
    rope = RotaryEmbedding(DYNAMIC)
    plain = rope.unrotate(k, old, length=int(old.max()) + 1)
    return rope.rotate(plain, new, length=int(new.max()) + 1)


def moved_in_float32(k, old, new):
    return half(k, new - old)


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
    "lucidrains": (others.lucidrains_palm, PLAIN),
    "ropewalk": (RotaryEmbedding(YARN), YARN),
    "x alone": (alone, PLAIN),
    "x alone, (B, S, H, D)": (alone_bshd, PLAIN),
    "(B, S, H, D)": (bshd, PLAIN),
    "positions (S,)": (outer, PLAIN),
    "positions (B, S)": (rows, PLAIN),
    "grouped heads": (grouped, PLAIN),
    "offset": (offset, PLAIN),
    "offset, (B, S, H, D)": (offset_bshd, PLAIN),
    "a table from an offset on": (Table(), PLAIN),
    "that, (B, S, H, D)": (Table(lambda x: x.transpose(1, 2)), PLAIN),
    "a table that grows": (Growing(), PLAIN),
    "tables of pairs": (with_pairs, PLAIN),
    "tables of halves": (with_halves, PLAIN),
    "tables of neighbors": (with_repeated, NEIGHBORS),
    "complex numbers": (complex_numbers, NEIGHBORS),
    "Llama 4": (llama_4, NEIGHBORS),
    "matrices": (as_matrices, NEIGHBORS),
    "float64": (in_float64, PLAIN),
    "promoted to float32": (promoted, PLAIN),
    "copies in place, values": (on_a_copy, PLAIN),
    "q and k of three": (only_q_and_k, PLAIN),
    "a path for one token": (one_token_apart, PLAIN),
    "no gradient": (for_inference, PLAIN),
    "returns tables of x alone": (tables_of_x, PLAIN),
    "returns interleaved tables": (tables_interleaved, PLAIN),
    "returns complex tables": (complex_tables, PLAIN),
    "returns tables of YaRN": (ServedTables(), YARN),
    "the last quarter": (of(LAST_QUARTER), LAST_QUARTER),
    "the first three quarters": (lambda x, m: first(x, 48, m), RotarySpec(64, rotary_dim=48)),
    "another size": (of(RotarySpec(80, theta=1e6)), RotarySpec(80, theta=1e6)),
    "amplitude": (of(RotarySpec(64, amplitude=1.2)), RotarySpec(64, amplitude=1.2)),
    "Llama 3": (of(LLAMA_3), LLAMA_3),
    "linear": (lambda x, m: half(x, m / 4), RotarySpec(64, scaling=scaling.Linear(4.0))),
    "reads neighbors, writes halves": (of(DEEPSEEK), DEEPSEEK),
    "backwards": (lambda x, m: half(x, -m), RotarySpec(64, reverse=True)),
    "counts from 1": (lambda x, m: half(x, m + 1), PLAIN),
    "xPos": (xpos, PLAIN),
    "three axes, as text has them": (three_axes, TEXT),
    "LongRoPE, short": (of(LONG, 4_096), LONG, 4_096),
    "LongRoPE, long": (of(LONG, 131_072), LONG, 131_072),
    "moves keys": (moved(YARN), YARN),
    "moves keys that were written in halves": (moved(DEEPSEEK), DEEPSEEK),
    "moves keys of the last quarter": (moved(LAST_QUARTER), LAST_QUARTER),
    "moves rows of keys": (moved_rows, YARN),
    "moves keys, dynamic NTK": (moved_by_length, DYNAMIC),
    "moves keys by float32 angles": (moved_in_float32, PLAIN),
    "dynamic NTK at a length": (of(DYNAMIC, 1_048_576), DYNAMIC, 1_048_576),
}


#: Without a specification, a rotation that depends on the length of the call has a fault.
DEPENDS = {"moves keys, dynamic NTK"}
CASES = [(name, like) for name in RIGHT for like in (True, False) if like or name not in DEPENDS]


@pytest.mark.parametrize(("name", "specified"), CASES)
def test_right_code_has_no_fault(name, specified):
    function, spec, *length = RIGHT[name]
    given = {"like": spec, "length": length[0] if length else None} if specified else {}
    report = tools.verify(function, **given)
    assert report.right, [c for c in report.checks if c.fault]
    assert sum(check.verdict == "right" for check in report.checks) >= 8


def test_a_stated_layout_and_rounded_results_leave_right_code_right():
    """What transformers serves: exact angles, rounded tables, vectors in bfloat16."""
    assert tools.verify(bshd, axes="bshd", like=PLAIN).right
    assert tools.verify(neighbors, axes="bhsd", like=NEIGHBORS).right
    assert tools.verify(others.TransformersLlama(), like=PLAIN, head_dim=64).right
