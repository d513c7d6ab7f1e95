"""x-transformers: its RotaryEmbedding and apply_rotary_pos_emb, as its attention layers call them.

Its pairs are interleaved, of the first dimensions, at given positions; it has the rules linear
(interpolation_factor) and NTK (base_rescale_factor); no vector has them interleaved, so that they
are asked at level 1 of any pairing.
"""

import torch
from offered import Offer, Result, Vector, asked, heads, joined
from x_transformers.x_transformers import RotaryEmbedding, apply_rotary_pos_emb

RULES = ("linear", "ntk-aware")
PLAIN = Offer(("interleaved",), ("all", "first"), ("default", *RULES))
SCALED = Offer(parts=("all", "first"), rules=RULES)


def angles(rope: Vector, positions: list[int]) -> Result:
    """Return the angles, (1, S, R), each twice, and the scale that goes with them."""
    module = RotaryEmbedding(
        rope["rotary_dim"],
        base=rope["theta"],
        interpolation_factor=rope["scaling"].get("factor", 1.0),
        base_rescale_factor=rope["scaling"].get("alpha", 1.0),
    )
    return module(torch.tensor(positions))


@asked(PLAIN, SCALED)
def frequencies(vector: Vector) -> Result:
    """Level 1: the angles of position 1."""
    return angles(vector["rope"], [1])[0][0, 0, ::2], 1.0


@asked(PLAIN)
def rotate(vector: Vector) -> Result:
    """Level 3."""
    found = angles(vector["rope"], vector["positions"])
    return joined(vector, [apply_rotary_pos_emb(x, *found) for x in heads(vector)])
