/* The mistakes in words, and as code. */

/** @typedef {import("../mistakes.js").Mistake} Mistake */
/** @typedef {{choice: string, what: string, effect: string, wrong: string, right: string, fault: string}} Text
      what: what the code does. effect: what goes wrong. fault: the identifier in `ropewalk verify`. */

const ROPE = `def rope(x):  # x (S, R); cos, sin (S, R/2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

q, k = rope(q), rope(k)`;

const PAIRS = `turned = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
x = x * cos + turned * sin`;

/** @type {Record<Mistake, Text>} */
export const TEXTS = {
  added: {
    choice: "the tables are added",
    what: "Cosines and sines of the position are added to q and k, instead of rotating them.",
    effect: "Nothing rotates. The score depends on m and n, not on their distance alone, and the norm of a vector changes with its position.",
    wrong: `table = torch.cat((cos, sin), dim=-1)
q, k = q + table, k + table`,
    right: ROPE,
    fault: "not-a-rotation",
  },
  matrix: {
    choice: "a matrix of cos(i · j · 0.01)",
    what: "A tutorial that many have copied adds cos(0.01 · m · j) to column j. Then it multiplies the sum by a matrix with cos(0.01 · i · j) in row i and column j.",
    effect: "Nothing rotates: the matrix is the same for all positions. The score depends on m and n. The norms are wrong too, and what a vector has in many directions almost disappears.",
    wrong: `i = torch.arange(head_dim)
matrix = torch.cos(i[:, None] * i * 0.01)
place = torch.cos(positions[:, None] * i * 0.01)
q, k = (q + place) @ matrix, (k + place) @ matrix`,
    right: ROPE,
    fault: "not-a-rotation",
  },
  swapped: {
    choice: "cosines in odd columns of the sine table",
    what: "The tables of cos and sin have two columns for each pair. Both columns of a pair should be equal. Here they alternate, as in sinusoidal embeddings.",
    effect: "The pair (a, b) becomes (a cos φ − b sin φ, a cos φ + b sin φ). At position 0 this is (a, a): b is lost. The score depends on m + n too, and stays the same if m and n are exchanged.",
    wrong: `cos = torch.stack((angle.cos(), angle.sin()), -1).flatten(-2)
sin = torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)
${PAIRS}`,
    right: `cos = torch.stack((angle.cos(), angle.cos()), -1).flatten(-2)
sin = torch.stack((angle.sin(), angle.sin()), -1).flatten(-2)
${PAIRS}`,
    fault: "cos-sin-mixed",
  },
  pairing: {
    choice: "q and k have different pairs",
    what: "q pairs dimensions i and i + R/2 (half), k pairs 2i and 2i + 1 (interleaved). This happens if a fast kernel rotates q, and older code rotates the cached keys.",
    effect: "Both vectors keep their norms, so a test of norms passes. The score is right at position 0 only. Elsewhere it depends on m and n.",
    wrong: `q = ropewalk.rotate(q, cos, sin, pairing="half")
k = ropewalk.rotate(k, cos, sin, pairing="interleaved")`,
    right: `q = ropewalk.rotate(q, cos, sin, pairing="half")
k = ropewalk.rotate(k, cos, sin, pairing="half")`,
    fault: "pairing",
  },
  precision: {
    choice: "angles in few bits",
    what: "Positions and frequencies take the dtype of the model, so their product, the angle, is rounded. This happens if frequencies are a buffer and the model is cast by .to(dtype).",
    effect: "bfloat16 has 8 significant bits: 256 and 257 are the same position. float16 has 11, and no number from 65,520 on. float32 has 24: good in short prompts, wrong at millions of tokens.",
    wrong: `f, positions = f.to(dtype), positions.to(dtype)
angle = positions[:, None] * f
cos, sin = angle.cos(), angle.sin()`,
    right: `rope = ropewalk.RotaryEmbedding(spec)
cos, sin = rope.tables(positions)  # exact angles
cos, sin = cos.to(dtype), sin.to(dtype)`,
    fault: "half-precision-angles",
  },
};
