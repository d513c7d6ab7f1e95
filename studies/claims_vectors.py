"""The evidence of claims that need no training: decay, distances, bits."""

from __future__ import annotations

import math
from functools import cache

import torch
from claims_evidence import AGAINST, FOR, NEITHER, Evidence
from torch import Tensor

from ropewalk import RotaryEmbedding, RotarySpec
from ropewalk.encodings.absolute import sinusoids
from ropewalk.lab.report.formats import format_number

HEAD_DIM, LENGTH, PAIRS = 64, 256, 1000
ASKED = 200  # the distance at which the chosen key must score highest
HERE = "../studies/claims_vectors.py"


def rotated_scores(q: Tensor, k: Tensor) -> Tensor:
    """Return the score of each query with its key at each distance, `(pairs, LENGTH)`.

    q and k `(pairs, D)`: a query is 0, 1, … positions after its key.
    """
    rope = RotaryEmbedding(RotarySpec(head_dim=q.shape[-1]))
    columns = []
    for distance in range(LENGTH):
        rotated, _ = rope(q[None, None], q[None, None], torch.full((len(q),), distance))
        columns.append((rotated[0, 0] * k).sum(-1) / math.sqrt(q.shape[-1]))
    return torch.stack(columns, dim=-1)


def falls(scores: Tensor) -> Tensor:
    """Return how far each row falls from the nearest eighth of distances to the farthest."""
    part = scores.shape[-1] // 8
    return scores[..., 1 : 1 + part].mean(-1) - scores[..., -part:].mean(-1)


@cache
def decay_facts() -> dict[str, float]:
    """Measure the fall without training: random vectors, vectors of ones, and a far peak."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, PAIRS, HEAD_DIM, generator=generator).unbind()
    fall = falls(rotated_scores(q, k)).double()
    rope = RotaryEmbedding(RotarySpec(head_dim=HEAD_DIM))
    one = q[:1]
    far, _ = rope(one[None, None], one[None, None], torch.full((1,), ASKED))
    chosen = rotated_scores(one, far[0, 0])[0]
    return {
        "mean": fall.mean().item(),
        "error": (fall.std() / math.sqrt(PAIRS)).item(),
        "equal": falls(rotated_scores(torch.ones(1, HEAD_DIM), torch.ones(1, HEAD_DIM))).item(),
        "peak": int(chosen.argmax()),
        "chosen": falls(chosen).item(),
    }


def decay_of_rotation() -> list[Evidence]:
    """Return whether rotation alone makes scores fall with distance."""
    facts = decay_facts()
    random = (
        f"{PAIRS:,} pairs of random q and k (normal, {HEAD_DIM} dimensions, {LENGTH} distances): "
        f"nearest eighth minus farthest "
        f"{format_number(facts['mean'], 3, signed=True)} (standard error {facts['error']:.3f})"
    )
    equal = f"q and k of ones: {facts['equal']:+.2f}"
    peak = (
        f"a key chosen for this purpose scores highest at distance {facts['peak']}: nearest eighth "
        f"minus farthest {format_number(facts['chosen'], 2, signed=True)}"
    )
    return [
        Evidence(random, FOR if facts["mean"] > 3 * facts["error"] else NEITHER, HERE),
        Evidence(equal, FOR if facts["equal"] > 0 else AGAINST, HERE),
        Evidence(peak, AGAINST if facts["chosen"] < 0 else NEITHER, HERE),
    ]


def near_and_far() -> list[Evidence]:
    """Return how far apart the sinusoids of neighbors are, and of distant positions."""
    found = []
    for width in (128, 512):
        one, two, far = sinusoids(torch.tensor([1, 2, 500]), width).double()
        near, away = (two - one).norm().item(), (far - two).norm().item()
        ratio = away / near
        vote = FOR if ratio <= 1.1 else AGAINST if ratio >= 1.5 else NEITHER
        says = f"width {width}: {near:.2f} between 1 and 2, {away:.2f} between 2 and 500"
        found.append(Evidence(f"{says} (× {ratio:.1f})", vote, HERE))
    return found


def steps_of_bits() -> list[Evidence]:
    """Return how uneven the steps between neighbors are, with bits and with sinusoids."""
    positions = torch.arange(512)
    bits = (positions[:, None] >> torch.arange(9) & 1).double()
    found = {}
    for name, vectors in (("bits", bits), ("sinusoids", sinusoids(positions, 128).double())):
        steps = (vectors[1:] - vectors[:-1]).norm(dim=-1)
        found[name] = (steps.max() / steps.min()).item()
    changed = (bits[1:] != bits[:-1]).sum(-1)
    says = (
        f"up to {len(positions) - 1}, neighbors differ in {int(changed.min())} to "
        f"{int(changed.max())} bits: the largest step is {found['bits']:.1f} times the smallest, "
        f"with sinusoids {found['sinusoids']:.1f} times"
    )
    return [Evidence(says, FOR if found["bits"] >= 2 > found["sinusoids"] else NEITHER, HERE)]
