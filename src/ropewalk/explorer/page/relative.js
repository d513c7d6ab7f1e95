/* Scores of two words of a sentence under three encodings, as attention computes them. */

import { learned, speeds, waves } from "./added.js";
import { memo } from "./memo.js";
import { dot, rope } from "./rope.js";
import { at } from "./scores.js";
import { normals, plus, vectorOf } from "./words.js";

export const SIZE = 32;
export const ROWS = 512; // of the learned table

/** @typedef {"rotary" | "sinusoidal" | "learned"} Name */
/** @type {Name[]} */
export const NAMES = ["rotary", "sinusoidal", "learned"];

/** A matrix of normal numbers, the same at every visit; it keeps the length of a vector on average.
    @param {string} name @returns {number[][]} */
function matrixOf(name) {
  return Array.from({ length: SIZE }, (_, i) => normals(`row ${i} of ${name}`, SIZE).map((each) => each / Math.sqrt(SIZE)));
}

const WQ = matrixOf("W_q"), WK = matrixOf("W_k");

/** @param {number[][]} matrix @param {number[]} x */
const times = (matrix, x) => matrix.map((row) => dot(row, x));

/* The learned rows depend on nothing that can be moved, so they are computed once. */
const rowsOf = memo((/** @type {number[][]} */ matrix) => remembering((p) => times(matrix, learned(p, SIZE))));

/** Return a function of m and n: the score of a query word at m and a key word at n, or NaN if the
    encoding has no vector for one of the positions. It remembers the vectors that it has computed.
    @param {Name} name @param {string} query @param {string} key @param {number} theta
    @returns {(m: number, n: number) => number} */
export function scorer(name, query, key, theta) {
  const x = vectorOf(query, "embedding of", SIZE), y = vectorOf(key, "embedding of", SIZE);
  const q = remembering(placer(name, WQ, x, theta)), k = remembering(placer(name, WK, y, theta));
  return (m, n) => (name === "learned" && Math.max(m, n) >= ROWS ? NaN : dot(q(m), k(n)) / Math.sqrt(SIZE));
}

/** Return a function of the position: the vector that attention gets there. @param {Name} name @param {number[][]} matrix @param {number[]} x @param {number} theta
    @returns {(position: number) => number[]} */
function placer(name, matrix, x, theta) {
  const plain = times(matrix, x);
  if (name === "learned") return (p) => plus(plain, rowsOf(matrix)(p));
  if (name === "sinusoidal") {
    const each = speeds(SIZE, theta);
    return (p) => plus(plain, times(matrix, waves(p, each)));
  }
  const found = rope({ headDim: SIZE, rotaryDim: SIZE, theta, pairing: "interleaved", rule: { name: "none", factor: 1, original: 1 } });
  return (p) => at(plain, p, found);
}

/** @param {(position: number) => number[]} compute @returns {(position: number) => number[]} */
function remembering(compute) {
  /** @type {Map<number, number[]>} */
  const known = new Map();
  return (position) => {
    const found = known.get(position) ?? compute(position);
    known.set(position, found);
    return found;
  };
}

/** Return the positions of the query and the key in the sentence, and with words inserted.
    @param {number} query @param {number} key @param {number} before @param {number} between */
export function placesOf(query, key, before, between) {
  const later = Math.max(query, key);
  /** @param {number} i */
  const moved = (i) => i + before + (i === later && query !== key ? between : 0);
  return { was: { m: query, n: key }, is: { m: moved(query), n: moved(key) } };
}
