"""The mathematics of Why, Relative and Mistakes against the library and examples/faulty_rope.py.

These fail if a sinusoid, a score, an output or a mistake of the page is not what Python computes,
if rotary scores change when both words move, or if the rounding to a dtype is not torch's.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
import torch

import ropewalk as rw
from ropewalk.encodings import REGISTRY, StackShape
from ropewalk.encodings.absolute import Binary, Integer, Sinusoidal

SIZE, THETA = 64, 10_000.0
POSITIONS = [0, 1, 5, 102, 257, 4097]
SPEC = {
    "headDim": SIZE,
    "rotaryDim": SIZE,
    "theta": THETA,
    "pairing": "half",
    "rule": {"name": "none", "factor": 1, "original": 1},
}

PLACED = """async ([spec, mistake, dtype, q, k, positions]) => {
  const { codesOf } = await import("./mistakes.js");
  const { rope } = await import("./rope.js");
  const { right, wrong } = codesOf(mistake, rope(spec), dtype);
  const both = (code) => positions.map((p) => [code.q(q, p), code.k(k, p)]);
  return [both(right), both(wrong)];
}"""
ADDED = """async ([positions, size, theta]) => {
  const { bits, integer, sinusoids } = await import("./added.js");
  return positions.map((p) => [integer(p, size), bits(p, 16), sinusoids(p, size, theta)]);
}"""
RELATIVE = """async ([names, places]) => {
  const { scorer } = await import("./relative.js");
  return names.map((name) => {
    const score = scorer(name, "bites", "dog", 10000);
    return places.map(([m, n]) => score(m, n)).map((each) => (Number.isNaN(each) ? null : each));
  });
}"""
OUTPUTS = """async ([spec, q, ks, vs, starts, rotated]) => {
  const { output } = await import("./scores.js");
  const { rope } = await import("./rope.js");
  return starts.map((start) => output({ q, ks, vs }, start, rope(spec), rotated));
}"""


@pytest.fixture(scope="module")
def faulty():
    """The classes of the example, without their entries in the registry."""
    path = Path(__file__).parents[2] / "examples" / "faulty_rope.py"
    spec = importlib.util.spec_from_file_location("faulty_rope_of_page", path)
    module = importlib.util.module_from_spec(spec)
    before = dict(REGISTRY)
    spec.loader.exec_module(module)
    REGISTRY.clear()
    REGISTRY.update(before)
    return module


def vectors():
    generator = torch.Generator().manual_seed(3)
    return torch.randn(2, SIZE, generator=generator, dtype=torch.float64)


def computed(page, mistake, dtype="bfloat16"):
    """Right and wrong q and k, `(2, positions, 2, SIZE)`."""
    q, k = vectors()
    asked = [SPEC, mistake, dtype, q.tolist(), k.tolist(), POSITIONS]
    return torch.tensor(page.evaluate(PLACED, asked))


def close(found, wanted, error=2e-5):
    assert (found.double() - wanted.double()).abs().max() < error


@pytest.mark.parametrize("mistake", ["added", "matrix", "swapped", "pairing", "precision"])
def test_the_right_code_is_the_library_s(page, mistake):
    pairing = "interleaved" if mistake == "swapped" else "half"
    rope = rw.RotaryEmbedding(rw.RotarySpec(SIZE, theta=THETA, pairing=pairing))
    right, _ = computed(page, mistake)
    for which, x in enumerate(vectors().float()):
        close(right[:, which], rope.rotate(x.expand(len(POSITIONS), -1), torch.tensor(POSITIONS)))


@pytest.mark.parametrize(
    ("mistake", "name"),
    [("swapped", "SwappedTable"), ("pairing", "MixedPairing"), ("precision", "Bfloat16Angles")],
)
def test_the_wrong_code_is_that_of_the_example(page, faulty, mistake, name):
    site = getattr(faulty, name)(StackShape(1, 1, 1, SIZE, SIZE, True)).for_layer(0)
    q, k = (x.float().expand(1, 1, len(POSITIONS), -1) for x in vectors())
    tables = site.tables(torch.tensor(POSITIONS))
    _, wrong = computed(page, mistake)
    close(wrong[:, 0], site.rotate_query(q, tables)[0, 0])
    close(wrong[:, 1], site.rotate_key(k, tables)[0, 0])


@pytest.mark.parametrize("mistake", ["added", "matrix", "swapped", "pairing", "precision"])
def test_the_code_that_is_shown_computes_what_is_drawn(page, mistake):
    text = page.evaluate(
        "async (name) => (await import('./rooms/mistakes-texts.js')).TEXTS[name]", mistake
    )
    drawn = dict(zip(("right", "wrong"), computed(page, mistake), strict=True))
    for side, found in drawn.items():
        for which, x in enumerate(vectors()):
            names = surroundings(x)
            exec(text[side], names)
            if mistake == "precision":
                tables = names["cos"].float(), names["sin"].float()
                result = rw.rotate(names["x"], *tables, pairing="half")
                error = 0.05 if side == "right" else 1e-5  # the cast to bfloat16 is no fault
            else:
                result, error = names["x" if mistake == "swapped" else "qk"[which]], 5e-3
            close(found[:, which], result, error)


def surroundings(x):
    """What the code on the page finds: x of every position, as q, k and x."""
    spec = rw.RotarySpec(SIZE, theta=THETA)
    positions, f = torch.tensor(POSITIONS), spec.inverse_frequencies()
    angle, each = positions[:, None] * f, x.float().expand(len(POSITIONS), -1)
    tables = {"angle": angle, "cos": angle.cos().float(), "sin": angle.sin().float()}
    same = {"positions": positions, "f": f, "spec": spec, "dtype": torch.bfloat16}
    own = {"torch": torch, "ropewalk": rw, "head_dim": SIZE, "x": each, "q": each, "k": each}
    return own | tables | same


def test_the_cosine_matrix_is_that_of_the_example(page, faulty):
    encoding = faulty.CosineMatrix(StackShape(1, 1, 1, SIZE, SIZE, True))
    _, wrong = computed(page, "matrix")
    for which, x in enumerate(vectors()):
        x = x.expand(1, len(POSITIONS), -1)
        close(wrong[:, which], encoding.embed(x, torch.tensor(POSITIONS))[0], error=1e-3)
    found = page.evaluate(
        """async (size) => {
          const { cosines, singularValues } = await import("./mistakes.js");
          return singularValues(cosines(size));
        }""",
        SIZE,
    )
    i = torch.arange(SIZE, dtype=torch.float64)
    close(
        torch.tensor(found, dtype=torch.float64),
        torch.linalg.svdvals((i[:, None] * i * 0.01).cos()),
        error=1e-9,
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_numbers_are_rounded_as_in_torch(page, dtype):
    generator = torch.Generator().manual_seed(5)
    spread = torch.randn(4000, generator=generator) * 10 ** torch.linspace(-9, 6, 4000)
    exact = [*spread.tolist(), 0.0, 1.0, 256.0, 257.0, 259.0, 2049.0, 2051.0, 65519.0, 65520.0]
    found = page.evaluate(
        """async ([numbers, dtype]) => {
          const { roundTo } = await import("./rounding.js");
          return numbers.map((x) => String(roundTo(x, dtype)));
        }""",
        [exact, dtype],
    )
    wanted = torch.tensor(exact).to(getattr(torch, dtype)).double()
    assert [float(x.replace("Infinity", "inf")) for x in found] == wanted.tolist()


def test_what_is_added_is_what_the_encodings_add(page):
    shape = StackShape(1, 1, 1, SIZE, SIZE, True)
    nothing, positions = torch.zeros(1, len(POSITIONS), SIZE), torch.tensor([POSITIONS])
    found = page.evaluate(ADDED, [POSITIONS, SIZE, THETA])
    for which, encoding in enumerate((Integer(shape), Binary(shape, bits=16), Sinusoidal(shape))):
        wanted = encoding.embed(nothing, positions)[0]
        of_page = torch.tensor([each[which] for each in found], dtype=torch.float64)
        close(of_page, wanted[:, : of_page.shape[1]], error=1e-6)


def test_only_rotary_scores_stay_if_both_words_move(page):
    places = [[4, 3], [104, 103], [511, 510], [600, 599], [6, 3]]
    names = ["rotary", "sinusoidal", "learned"]
    rotary, sinusoidal, learned = page.evaluate(RELATIVE, [names, places])
    assert max(rotary[:4]) - min(rotary[:4]) < 1e-9
    assert abs(rotary[4] - rotary[0]) > 1e-3
    for scores in (sinusoidal, learned):
        assert max(scores[:3]) - min(scores[:3]) > 1e-3
    assert learned[3] is None  # the table ends at 512
    assert all(map(math.isfinite, sinusoidal))


@pytest.mark.parametrize(("rotated", "stays"), [("qk", True), ("q", False), ("qkv", False)])
def test_outputs_depend_on_the_place_of_a_sentence_unless_q_and_k_alone_rotate(
    page, rotated, stays
):
    generator = torch.Generator().manual_seed(7)
    q, ks, vs = (torch.randn(n, SIZE, generator=generator) for n in (1, 3, 3))
    rope = rw.RotaryEmbedding(rw.RotarySpec(SIZE, theta=THETA, pairing="interleaved"))
    starts = [0, 1000]
    asked = [SPEC, q[0].tolist(), ks.tolist(), vs.tolist(), starts, rotated]
    found = torch.tensor(page.evaluate(OUTPUTS, asked))
    for start, of_page in zip(starts, found, strict=True):
        at = start + torch.arange(3)
        query = rope.rotate(q, at[-1:])
        keys = rope.rotate(ks, at) if "k" in rotated else ks
        values = rope.rotate(vs, at) if "v" in rotated else vs
        weights = (query @ keys.T / SIZE**0.5).softmax(-1)
        close(of_page, (weights @ values)[0])
    assert ((found[0] - found[1]).abs().max() < 1e-6) == stays
