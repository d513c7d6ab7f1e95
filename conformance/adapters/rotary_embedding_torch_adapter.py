"""rotary-embedding-torch: its RotaryEmbedding and apply_rotary_emb.

Its pairs are interleaved. A sequence is rotated by rotate_queries_or_keys with an offset, other
positions one token after the other, as with a cache of keys. Axes of as many pairs each are rotated
by get_axial_freqs: a grid from 0, or offsets for positions between. It has the rules linear
(interpolate_factor) and NTK (theta_rescale_factor); no vector has them interleaved, so that they
are asked at level 1 of any pairing.
"""

import torch
from offered import EVERY, Offer, Result, Vector, asked, heads, joined, sections
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from torch import Tensor

RULES = ("linear", "ntk-aware")
PLAIN = Offer(("interleaved",), EVERY, ("default", *RULES), end=2**31)
SCALED = Offer(parts=EVERY, rules=RULES)
AXIAL = Offer(("interleaved",), orders=("axial",))


def rope_of(rope: Vector, axes: int = 1) -> RotaryEmbedding:
    """Return the library's module for one of the axes."""
    return RotaryEmbedding(
        rope["rotary_dim"] // axes,
        theta=rope["theta"],
        interpolate_factor=rope["scaling"].get("factor", 1.0),
        theta_rescale_factor=rope["scaling"].get("alpha", 1.0),
    )


@asked(PLAIN, SCALED)
def frequencies(vector: Vector) -> Result:
    """Level 1: the angles of the second of two positions, in which the rules show."""
    rope = rope_of(vector["rope"])
    return rope(rope.get_seq_pos(2))[1, ::2].detach(), 1.0


def one_axis(rope: RotaryEmbedding, x: Tensor, at: list[int], start: int) -> Tensor:
    """Return x rotated, (1, 1, S, D)."""
    if start:
        return apply_rotary_emb(rope(torch.tensor(at)), x, start_index=start)
    if at == list(range(at[0], at[0] + len(at))):
        return rope.rotate_queries_or_keys(x, offset=at[0])
    rows = zip(at, x.split(1, -2), strict=True)
    return torch.cat([rope.rotate_queries_or_keys(row, offset=p) for p, row in rows], -2)


@asked(PLAIN, AXIAL)
def rotate(vector: Vector) -> Result:
    """Level 3."""
    given, at = vector["rope"], vector["positions"]
    if vector in PLAIN:
        rope = rope_of(given)
        return joined(vector, [one_axis(rope, x, at, given["start"]) for x in heads(vector)])
    if len(set(sections(given)[: len(at)])) > 1:
        return None
    rope = rope_of(given, len(at))
    if given["continuous"]:
        rows = [rope.get_axial_freqs(1, 1, offsets=each)[0] for each in zip(*at, strict=True)]
        angles = torch.cat(rows)
    else:
        angles = rope.get_axial_freqs(*(max(axis) + 1 for axis in at))[tuple(at)]
    return joined(vector, [apply_rotary_emb(angles, x) for x in heads(vector)])
