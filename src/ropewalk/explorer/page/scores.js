/* Scores and outputs of attention whose vectors are rotated by their positions. */

import { cosSin, dot, rotate } from "./rope.js";
import { softmax, weighted } from "./words.js";

/** @typedef {import("./rope.js").Rope} Rope */
/** @typedef {"q" | "k" | "v"} Kind */

/** Return x rotated to a position. @param {number[]} x @param {number} position @param {Rope} rope */
export function at(x, position, rope) {
  return rotate(x, cosSin(position, rope), "interleaved");
}

/** Return the score of q at m and k at n. rotated: which of q and k rotate.
    @param {number[]} q @param {number[]} k @param {number} m @param {number} n @param {Rope} rope @param {string} [rotated] */
export function score(q, k, m, n, rope, rotated = "qk") {
  const query = rotated.includes("q") ? at(q, m, rope) : q, key = rotated.includes("k") ? at(k, n, rope) : k;
  return dot(query, key) / Math.sqrt(q.length);
}

/** Return the scores of q at m and k at n, for m and n below count; rows are m.
    @param {number[]} q @param {number[]} k @param {number} count @param {Rope} rope @param {string} rotated */
export function allScores(q, k, count, rope, rotated) {
  const places = Array.from({ length: count }, (_, i) => i), size = Math.sqrt(q.length);
  const queries = places.map((m) => (rotated.includes("q") ? at(q, m, rope) : q));
  const keys = places.map((n) => (rotated.includes("k") ? at(k, n, rope) : k));
  return queries.map((query) => keys.map((key) => dot(query, key) / size));
}

/** Return the output of attention at the last word of a sentence that begins at a position.
    @param {{q: number[], ks: number[][], vs: number[][]}} vectors @param {number} start @param {Rope} rope @param {string} rotated */
export function output({ q, ks, vs }, start, rope, rotated) {
  const scores = ks.map((k, i) => score(q, k, start + ks.length - 1, start + i, rope, rotated));
  return weighted(softmax(scores), vs.map((v, i) => (rotated.includes("v") ? at(v, start + i, rope) : v)));
}

/** Return the score at a distance, relative to distance 0, of a q and a k that are equal in every pair.
    @param {number[]} frequencies @param {number} distance */
export function meanCosine(frequencies, distance) {
  return frequencies.reduce((sum, f) => sum + Math.cos(distance * f), 0) / frequencies.length;
}
