/* Encodings that add a vector of the position to the vector of a word. */

import { dot } from "./rope.js";
import { normals } from "./words.js";

/** Return the position in every column, divided by a length. @param {number} position @param {number} size @param {number} [length] @returns {number[]} */
export function integer(position, size, length = 1) {
  return Array.from({ length: size }, () => position / length);
}

/** Return bit i of the position in column i. @param {number} position @param {number} count @returns {number[]} */
export function bits(position, count) {
  return Array.from({ length: count }, (_, i) => Math.floor(position / 2 ** i) % 2);
}

/** Return f_i = theta^(-2i/size) for each pair of columns. @param {number} size @param {number} theta @returns {number[]} */
export function speeds(size, theta) {
  return Array.from({ length: size / 2 }, (_, i) => theta ** ((-2 * i) / size));
}

/** Return sin and cos of position · f_i in columns 2i and 2i + 1 (Vaswani et al. 2017, section 3.5).
    @param {number} position @param {number} size @param {number} theta @returns {number[]} */
export function sinusoids(position, size, theta) {
  return waves(position, speeds(size, theta));
}

/** Return sin and cos of position · f for each f, side by side. @param {number} position @param {number[]} found @returns {number[]} */
export function waves(position, found) {
  const values = [];
  for (const f of found) values.push(Math.sin(position * f), Math.cos(position * f));
  return values;
}

/** Return the row of a position in a table as it is before training: normal numbers. A model learns them.
    @param {number} position @param {number} size @returns {number[]} */
export function learned(position, size) {
  return normals(`row ${position}`, size);
}

/** Return the four parts of (q + a)·(k + b) (RoFormer, equation 6, without its matrices).
    @param {number[]} q @param {number[]} k @param {number[]} a @param {number[]} b */
export function partsOf(q, k, a, b) {
  return { words: dot(q, k), wordPlace: dot(q, b), placeWord: dot(a, k), places: dot(a, b) };
}
