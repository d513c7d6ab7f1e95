/* Words, their vectors, and attention among them. The vectors are made from the letters of a word:
   a trained model learns its own, but what positions do to them is the same. */

import { dot, norm } from "./rope.js";

export const MOST_WORDS = 40;

/** Return all words of a sentence. @param {string} sentence @returns {string[]} */
export function allWordsOf(sentence) {
  return sentence.split(/\s+/u).filter(Boolean);
}

/** Return the words of a sentence, at most 40. @param {string} sentence @returns {string[]} */
export function wordsOf(sentence) {
  return allWordsOf(sentence).slice(0, MOST_WORDS);
}

/** Return a note on the words that a room does not use, or "". @param {string} sentence @param {number} most */
export function unused(sentence, most) {
  const count = allWordsOf(sentence).length;
  return count > most ? `Only the first ${most} of the ${count} words are used here.` : "";
}

/** Return a word in at most 11 characters. @param {string} word */
export function brief(word) {
  return word.length > 11 ? `${word.slice(0, 10)}…` : word;
}

/** Return a vector of a word for a role, such as its query. The numbers are normal with mean 0 and
    variance 1, and the same for the same word and role.
    @param {string} word @param {string} role @param {number} size @returns {number[]} */
export function vectorOf(word, role, size) {
  return normals(`${role} ${word.toLowerCase()}`, size);
}

/** Return normal numbers that depend on the text alone. @param {string} text @param {number} count @returns {number[]} */
export function normals(text, count) {
  const next = uniform(hash(text)), found = [];
  while (found.length < count) { // Box and Muller 1958
    const radius = Math.sqrt(-2 * Math.log(1 - next())), angle = 2 * Math.PI * next();
    found.push(radius * Math.cos(angle), radius * Math.sin(angle));
  }
  return found.slice(0, count);
}

/** Return 32 bits of a text (FNV-1a). @param {string} text */
function hash(text) {
  let found = 2166136261;
  for (const byte of new TextEncoder().encode(text)) found = Math.imul(found ^ byte, 16777619);
  return found >>> 0;
}

/** Return a generator of numbers from 0 to 1 (mulberry32). @param {number} seed */
function uniform(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Return weights that add up to 1. @param {number[]} scores */
export function softmax(scores) {
  const most = Math.max(...scores), powers = scores.map((each) => Math.exp(each - most));
  const total = powers.reduce((sum, each) => sum + each, 0);
  return powers.map((each) => each / total);
}

/** Return the sum of the values, each times its weight. @param {number[]} weights @param {number[][]} values */
export function weighted(weights, values) {
  return values[0].map((_, i) => weights.reduce((sum, weight, n) => sum + weight * values[n][i], 0));
}

/** Return a + b. @param {number[]} a @param {number[]} b */
export function plus(a, b) {
  return a.map((each, i) => each + b[i]);
}

/** Return the length of a - b. @param {number[]} a @param {number[]} b */
export function distanceOf(a, b) {
  return norm(a.map((each, i) => each - b[i]));
}

/** Return the cosine of the angle between two vectors. @param {number[]} a @param {number[]} b */
export function likeness(a, b) {
  return dot(a, b) / (norm(a) * norm(b));
}
