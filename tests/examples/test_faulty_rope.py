"""Faulty rotary code: each encoding has the fault that it says, and no other.

These fail when one differs from its formula written anew, when it keeps what it is said to break or
breaks what it is said to keep, and when a cache, chunks, beams or padding change a result.
"""

import itertools
import math
from pathlib import Path

import encoding_cases as cases
import pytest
import torch
from encoding_cases import BACK, BOTH, close, random

from ropewalk.encodings import REGISTRY, Placement, StackShape, build, import_encodings, outside

FILE = Path(__file__).parents[2] / "examples" / "faulty_rope.py"
ROTATING = ["swapped_table", "mixed_pairing", "bfloat16_angles"]
FAULTY = [*ROTATING, "cosine_matrix"]
D = 8
HEADS_OF_64 = StackShape(1, heads=1, kv_heads=1, head_dim=64, width=64, causal=True)


@pytest.fixture(autouse=True)
def _imported(monkeypatch):
    known = dict(REGISTRY)
    monkeypatch.setattr(outside, "_imported", {})
    import_encodings(str(FILE))
    yield
    REGISTRY.clear()
    REGISTRY.update(known)


def rotated(name, q, k, m, n):
    """What is left of vectors q at m and k at n, both (D,)."""
    shape = StackShape(1, 1, 1, len(q), len(q), causal=True)
    placement = Placement(torch.tensor([m]), torch.tensor([n]))
    q, k = (
        build(name, shape).for_layer(0).rotate(q.view(1, 1, 1, -1), k.view(1, 1, 1, -1), placement)
    )
    return q.flatten(), k.flatten()


def score(name, q, k, m, n):
    """The score of q at m and k at n, of heads or, where it acts there, of embeddings."""
    if name == "cosine_matrix":
        encoding = build(name, StackShape(1, 1, 1, len(q), len(q), causal=True))
        q, k = (encoding.embed(x.view(1, 1, -1), torch.tensor([p])) for x, p in ((q, m), (k, n)))
        return float(q.flatten() @ k.flatten())
    q, k = rotated(name, q, k, m, n)
    return float(q @ k)


def turned(x, angles, pairs, matrix):
    """Multiply each pair of x, whose indices are given, by the matrix of its angle."""
    y = torch.zeros_like(x)
    for (i, j), angle in zip(pairs, angles, strict=True):
        (p, q), (r, s) = matrix(math.cos(angle), math.sin(angle))
        y[i], y[j] = p * x[i] + q * x[j], r * x[i] + s * x[j]
    return y


def rotation(cos, sin):
    return (cos, -sin), (sin, cos)


def rounded(x):
    """Round to 8 significant bits, ties to even, as bfloat16 does."""
    if x == 0:
        return 0.0
    unit = 2.0 ** (math.floor(math.log2(abs(x))) - 7)
    return round(x / unit) * unit


HALF = [(i, i + D // 2) for i in range(D // 2)]
INTERLEAVED = [(2 * i, 2 * i + 1) for i in range(D // 2)]
FREQUENCIES = [10_000 ** (-2 * i / D) for i in range(D // 2)]


def expected(name, x, position, is_key):
    angles = [position * f for f in FREQUENCIES]
    if name == "swapped_table":
        return turned(x, angles, INTERLEAVED, lambda cos, sin: ((cos, -sin), (cos, sin)))
    if name == "mixed_pairing":
        return turned(x, angles, INTERLEAVED if is_key else HALF, rotation)
    angles = [rounded(rounded(position) * rounded(f)) for f in FREQUENCIES]
    return turned(x, angles, HALF, lambda cos, sin: rotation(rounded(cos), rounded(sin)))


class TestFormulas:
    @pytest.mark.parametrize("name", ROTATING)
    @pytest.mark.parametrize("position", [0, 1, 7, 255, 257, 1030, 5001])
    def test_each_is_its_formula(self, name, position):
        q, k = random(D), random(D, seed=1)
        got_q, got_k = rotated(name, q, k, position, position + 3)
        close(got_q, expected(name, q, position, is_key=False))
        close(got_k, expected(name, k, position + 3, is_key=True))

    def test_a_cosine_matrix_is_its_formula(self):
        x, width = random(2, 3, 32), 32
        places = torch.tensor([[0, 4, 5], [900, 2, 1]])
        got = build("cosine_matrix", BACK).embed(x, places)
        for b, s, j in itertools.product(range(2), range(3), range(width)):
            m = int(places[b, s])
            y = sum(
                (float(x[b, s, i]) + math.cos(m * i * 0.01)) * math.cos(i * j * 0.01)
                for i in range(width)
            )
            assert float(got[b, s, j]) == pytest.approx(y, abs=1e-9)

    def test_theta_is_rotary_s(self):
        q, k = random(D), random(D, seed=1)
        ours, other = rotated("mixed_pairing(theta=50)", q, k, 9, 9)
        close(ours, rotated("rotary(theta=50)", q, k, 9, 9)[0])
        close(other, rotated("rotary(theta=50, pairing=interleaved)", q, k, 9, 9)[1])

    @pytest.mark.parametrize("name", ROTATING)
    def test_dtypes_stay_and_gradients_flow(self, name):
        site = build(name, BACK).for_layer(0)
        for dtype in (torch.float32, torch.bfloat16):
            q = random(2, 4, 3, D, dtype=dtype).requires_grad_()
            got, _ = site.rotate(q, None, Placement(torch.arange(3)))
            assert got.dtype == dtype
            got.float().square().sum().backward()
            assert q.grad.abs().sum() > 0


class TestWhatTheyBreak:
    """Of rotary: scores by the distance alone."""

    @pytest.mark.parametrize("name", ["rotary", *FAULTY])
    def test_scores_by_the_distance_alone(self, name):
        q, k = random(64), random(64, seed=1)
        scores = [score(name, q, k, start + 3, start) for start in (0, 5, 60, 254, 700)]
        spread = max(scores) - min(scores)
        assert spread <= 1e-6 if name == "rotary" else spread >= 0.1


@pytest.mark.parametrize("name", FAULTY)
class TestOneResult:
    def test_however_it_is_decoded_and_padded(self, name):
        cases.check_transformer(name)

    def test_in_chunks(self, name):
        cases.check_chunks(name, [1, 4, 2, 1], seed=0)

    @pytest.mark.parametrize("shape", [BACK, BOTH], ids=["causal", "both ways"])
    def test_packed(self, name, shape):
        cases.check_packing(name, shape)

    @torch.no_grad()
    def test_order_is_told_without_a_causal_mask(self, name):
        """Fails if the encoding acts nowhere: an encoder is a bag of words then."""
        model, words = cases.transformer(name), cases.words(1, 6)
        there, back = model.encode(words), model.encode(words.flip(1)).flip(1)
        assert float((there - back).abs().max()) > 1e-3


def test_rows_do_not_depend_on_their_neighbors():
    site = build("bfloat16_angles", HEADS_OF_64).for_layer(0)
    together = site.tables(torch.arange(2000))
    for place in range(0, 2000, 7):
        for table, row in zip(together, site.tables(torch.tensor([place])), strict=True):
            assert torch.equal(table[place], row[0])
