/* Rotary code that is wrong, next to the right one. Each turns a vector and its position into a vector. */

import { cosSin, dot, rotate } from "./rope.js";
import { roundTo } from "./rounding.js";
import { plus } from "./words.js";

/** @typedef {import("./rope.js").Rope} Rope */
/** @typedef {import("./rope.js").Pairing} Pairing */
/** @typedef {import("./rounding.js").Dtype} Dtype */
/** @typedef {(x: number[], position: number) => number[]} Placed */
/** @typedef {{q: Placed, k: Placed}} Code */
/** @typedef {"added" | "matrix" | "swapped" | "pairing" | "precision"} Mistake */

export const STEP = 0.01; // of the cosine matrix

/** Return the right code and the wrong one. @param {Mistake} mistake @param {Rope} rope @param {Dtype} dtype @returns {{right: Code, wrong: Code}} */
export function codesOf(mistake, rope, dtype) {
  const pairing = pairingOf(mistake), right = both(rotated(rope, pairing));
  switch (mistake) {
    case "added":
      return { right, wrong: both((x, m) => plus(x, halves(rope, m))) };
    case "matrix":
      return { right, wrong: both(cosineMatrix) };
    case "swapped":
      return { right, wrong: both((x, m) => swapped(x, m, rope)) };
    case "pairing":
      return { right, wrong: { q: rotated(rope, "half"), k: rotated(rope, "interleaved") } };
    case "precision":
      return { right, wrong: both((x, m) => rotate(x, roundedTables(m, rope, dtype), pairing)) };
  }
}

/** Return the pairing of the right code. @param {Mistake} mistake @returns {Pairing} */
export function pairingOf(mistake) {
  return mistake === "swapped" ? "interleaved" : "half";
}

/** @param {Placed} placed @returns {Code} */
const both = (placed) => ({ q: placed, k: placed });

/** @param {Rope} rope @param {Pairing} pairing @returns {Placed} */
const rotated = (rope, pairing) => (x, m) => rotate(x, cosSin(m, rope), pairing);

/** Return all cosines, then all sines. @param {Rope} rope @param {number} position */
function halves(rope, position) {
  const { cos, sin } = cosSin(position, rope);
  return [...cos, ...sin];
}

/** Return (x + cos(0.01·m·j)) · cos(0.01·i·j): a matrix that is the same for all positions. @type {Placed} */
export function cosineMatrix(x, position) {
  const sum = x.map((each, j) => each + Math.cos(position * j * STEP));
  return cosines(x.length).map((column) => dot(sum, column));
}

/** @type {Map<number, number[][]>} */
const matrices = new Map();

/** Return the matrix cos(0.01·i·j), computed once for each size. @param {number} size @returns {number[][]} */
export function cosines(size) {
  const places = Array.from({ length: size }, (_, i) => i);
  const found = matrices.get(size) ?? places.map((i) => places.map((j) => Math.cos(i * j * STEP)));
  matrices.set(size, found);
  return found;
}

/** Return each pair (a, b) as (a cos - b sin, b sin + a cos): cos and sin exchanged in odd columns.
    @param {number[]} x @param {number} position @param {Rope} rope */
export function swapped(x, position, rope) {
  const { cos, sin } = cosSin(position, rope);
  return cos.flatMap((c, i) => {
    const a = x[2 * i], b = x[2 * i + 1];
    return [a * c - b * sin[i], b * sin[i] + a * c];
  });
}

/** Return cos and sin if positions, frequencies, angles and results have a dtype.
    @param {number} position @param {Rope} rope @param {Dtype} dtype */
export function roundedTables(position, { frequencies }, dtype) {
  const round = (/** @type {number} */ x) => roundTo(x, dtype), p = round(position);
  const angles = frequencies.map((f) => round(p * round(f)));
  return { cos: angles.map((a) => round(Math.cos(a))), sin: angles.map((a) => round(Math.sin(a))) };
}

/** Return the absolute eigenvalues of a symmetric matrix, which are its singular values, largest first.
    Cyclic Jacobi rotations. @param {number[][]} matrix @returns {number[]} */
export function singularValues(matrix) {
  const a = matrix.map((row) => [...row]), n = a.length;
  for (let sweep = 0; sweep < 12; sweep += 1) {
    for (let p = 0; p < n - 1; p += 1) for (let q = p + 1; q < n; q += 1) if (Math.abs(a[p][q]) > 1e-300) zero(a, p, q);
  }
  return a.map((row, i) => Math.abs(row[i])).sort((x, y) => y - x);
}

/** Make a[p][q] zero by a rotation of rows and columns p and q. @param {number[][]} a @param {number} p @param {number} q */
function zero(a, p, q) {
  const half = (a[q][q] - a[p][p]) / (2 * a[p][q]);
  const t = (half < 0 ? -1 : 1) / (Math.abs(half) + Math.hypot(1, half)), c = 1 / Math.hypot(1, t), s = t * c;
  for (let i = 0; i < a.length; i += 1) {
    const [x, y] = [a[i][p], a[i][q]];
    a[i][p] = c * x - s * y;
    a[i][q] = s * x + c * y;
  }
  for (let i = 0; i < a.length; i += 1) {
    const [x, y] = [a[p][i], a[q][i]];
    a[p][i] = c * x - s * y;
    a[q][i] = s * x + c * y;
  }
}
