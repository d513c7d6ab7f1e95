/* Frequencies, angles and rotation, as in the library: cos and sin are within float32 rounding up to
   position 2^37.

   A frequency is a fixed-point number (BigInt) with 192 bits after the point, so that a rule can
   multiply it without rounding. Its angle is stored as a fraction of a turn, w = f / 2π · 2^64, and
   position · w modulo 2^64 drops exactly the full turns.

   YaRN without rounded limits is the exception: its limits are logarithms in float64, so at position
   2^31 its angles may be off by 1e-6. */

/** @typedef {import("./rules.js").Rule} Rule */
/** @typedef {"half" | "interleaved"} Pairing */
/** @typedef {{headDim: number, rotaryDim: number, theta: number, pairing: Pairing, rule: Rule}} Spec */
/** @typedef {{frequencies: number[], turns: bigint[], amplitude: number}} Rope */

import { BITS, inverseRoot, ONE, powers, toNumber } from "./fixed-point.js";
import { amplitudeOf, applyRule } from "./rules.js";

/* round(2^192 / 2π) */
const PER_RADIAN = 999031769477504631556283515717616693813654938713089696784n;
const RADIANS = (2 * Math.PI) / 2 ** 64;

/** Return the frequencies of a spec in radians per position, fastest first, and their turns.
    length: tokens that are served, for rules that depend on it. @param {Spec} spec @param {number} [length] @returns {Rope} */
export function rope(spec, length) {
  const plain = powers(inverseRoot(spec.theta, spec.rotaryDim / 2), spec.rotaryDim / 2);
  const scaled = applyRule(spec, plain, length);
  return {
    frequencies: scaled.map(toNumber),
    turns: scaled.map((f) => ((f * PER_RADIAN >> BITS) + (ONE >> 65n)) >> (BITS - 64n)),
    amplitude: amplitudeOf(spec.rule, length),
  };
}

/** Return the angle of a pair at a position, in -π to π. @param {number} position @param {bigint} turns */
export function angle(position, turns) {
  return Number(BigInt.asIntN(64, BigInt(position) * turns)) * RADIANS;
}

/** Return amplitude · cos and amplitude · sin of each pair. @param {number} position @param {Rope} rope */
export function cosSin(position, { turns, amplitude }) {
  const angles = turns.map((each) => angle(position, each));
  return { cos: angles.map((a) => amplitude * Math.cos(a)), sin: angles.map((a) => amplitude * Math.sin(a)) };
}

/** Return the two dimensions of each pair. @param {number} rotaryDim @param {Pairing} pairing @returns {[number, number][]} */
export function pairs(rotaryDim, pairing) {
  const count = rotaryDim / 2;
  return Array.from({ length: count }, (_, i) => (pairing === "half" ? [i, i + count] : [2 * i, 2 * i + 1]));
}

/** Return x rotated: each pair (a, b) becomes (a cos - b sin, b cos + a sin); other dimensions stay.
    @param {number[]} x @param {{cos: number[], sin: number[]}} tables @param {Pairing} pairing */
export function rotate(x, { cos, sin }, pairing) {
  const found = [...x], count = cos.length, [step, apart] = pairing === "half" ? [1, count] : [2, 1];
  for (let i = 0, a = 0, b = apart; i < count; i += 1, a += step, b += step) {
    found[a] = x[a] * cos[i] - x[b] * sin[i];
    found[b] = x[b] * cos[i] + x[a] * sin[i];
  }
  return found;
}

/** Return the scalar product. @param {number[]} a @param {number[]} b */
export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i += 1) sum += a[i] * b[i];
  return sum;
}

/** Return the Euclidean norm. @param {number[]} x */
export function norm(x) {
  return Math.sqrt(dot(x, x));
}
