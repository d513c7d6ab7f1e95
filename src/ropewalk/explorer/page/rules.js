/* The scaling rules, with the formulas of ropewalk.scaling. Each changes frequencies in fixed point. */

/** @typedef {{name: string, factor: number, original: number, betaFast?: number, betaSlow?: number,
      truncate?: boolean, lowFreq?: number, highFreq?: number, fraction?: number,
      attentionFactor?: number, mscale?: number, mscaleAllDim?: number}} Rule */
/** @typedef {import("./rope.js").Spec} Spec */

import { inverseRoot, ONE, powers, times, toFixed, toNumber } from "./fixed-point.js";

/** Return the frequencies of a rope under its rule. Throws an Error that names what is wrong.
    @param {Spec} spec @param {bigint[]} plain @param {number} [length] @returns {bigint[]} */
export function applyRule(spec, plain, length) {
  const { rule, rotaryDim } = spec;
  switch (rule.name) {
    case "none":
      return plain;
    case "linear":
      return plain.map((f) => (f * ONE) / toFixed(rule.factor));
    case "ntk":
      return withLargerBase(plain, rule.factor, rotaryDim);
    case "dynamic": {
      const n = Math.max(length ?? rule.original, rule.original);
      return withLargerBase(plain, (rule.factor * n) / rule.original - (rule.factor - 1), rotaryDim);
    }
    case "yarn":
      return blend(plain, rule.factor, yarnShares(spec));
    case "llama3":
      return blend(plain, rule.factor, plain.map((f) => toFixed(llamaShare(toNumber(f), rule))));
    case "proportional": {
      const kept = Math.floor(((rule.fraction ?? 1) * rotaryDim) / 2);
      return plain.map((f, i) => (i < kept ? (f * ONE) / toFixed(rule.factor) : 0n));
    }
    default:
      throw new Error(`there is no rule ${rule.name}`);
  }
}

/** Return the factor of cos and sin. @param {Rule} rule @param {number} [length] */
export function amplitudeOf(rule, length) {
  if (rule.name !== "yarn" || rule.factor <= 1) return 1;
  if (rule.attentionFactor !== undefined) return rule.attentionFactor;
  const sharper = (/** @type {number} */ k) => 0.1 * k * Math.log(rule.factor) + 1;
  return rule.mscale && rule.mscaleAllDim ? sharper(rule.mscale) / sharper(rule.mscaleAllDim) : sharper(1);
}

/** Return f_i · s^(-2i/(R-2)): the frequencies of theta · s^(R/(R-2)). @param {bigint[]} plain @param {number} s @param {number} rotaryDim */
function withLargerBase(plain, s, rotaryDim) {
  if (rotaryDim === 2) throw new Error("an NTK rule needs more than one pair: the fastest never changes");
  const slower = powers(inverseRoot(s, (rotaryDim - 2) / 2), plain.length);
  return plain.map((f, i) => times(f, slower[i]));
}

/** Return f · (1 - g) + f / s · g for each pair and its share g, in fixed point. @param {bigint[]} plain @param {number} s @param {bigint[]} shares */
function blend(plain, s, shares) {
  return plain.map((f, i) => {
    const g = shares[i];
    return times(f, ONE - g) + (times(f, g) * ONE) / toFixed(s);
  });
}

/** Return how much of each pair YaRN interpolates, from 0 (fast) to ONE (slow), in fixed point.
    @param {Spec} spec @returns {bigint[]} */
export function yarnShares({ rule, theta, rotaryDim }) {
  const { original, betaFast = 32, betaSlow = 1, truncate = true } = rule;
  /** The index of the pair that makes so many turns within the original length. @param {number} turns */
  const index = (turns) => (rotaryDim * Math.log(original / (2 * Math.PI * turns))) / (2 * Math.log(theta));
  let low = index(betaFast), high = index(betaSlow);
  if (truncate) [low, high] = [Math.floor(low), Math.ceil(high)];
  low = Math.max(low, 0);
  high = Math.min(high, rotaryDim - 1);
  if (!(high >= low)) {
    throw new Error("YaRN needs pairs that make between beta_slow and beta_fast turns within the original length");
  }
  const from = toFixed(low), width = low === high ? ONE / 1000n : toFixed(high) - from;
  return Array.from({ length: rotaryDim / 2 }, (_, i) => {
    const share = ((BigInt(i) * ONE - from) * ONE) / width;
    return share < 0n ? 0n : share > ONE ? ONE : share;
  });
}

/** Return how much of a pair Llama 3's rule interpolates. @param {number} frequency @param {Rule} rule */
function llamaShare(frequency, { original, lowFreq = 1, highFreq = 4 }) {
  const turns = (original * frequency) / (2 * Math.PI);
  if (turns > highFreq) return 0;
  if (turns < lowFreq) return 1;
  return lowFreq === highFreq ? 0 : 1 - (turns - lowFreq) / (highFreq - lowFreq);
}
