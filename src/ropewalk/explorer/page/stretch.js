/* What a scaling rule does to a rope when the context grows; the numbers of ropewalk.tools.extend. */

import { rope } from "./rope.js";

/** @typedef {import("./rules.js").Rule} Rule */
/** @typedef {{wavelengths: number[], amplitude: number}} Given  numbers of a rule that the page cannot compute */
/** @typedef {{layers: string, theta: number, rotaryDim: number, given: Record<string, Given>}} ModelRope */
/** @typedef {{rule: Partial<Rule> | null, refused: string | null}} Method */
/** @typedef {{method: string | null, reason: string, limits: string[]}} Recommendation */
/** @typedef {{engine: string, version: string, source: string, place: string, text: string | null,
      remove: string[], ignores: string[], warnings: string[], run: boolean}} Fragment */
/** @typedef {{recommendation: Recommendation, parameters: Record<string, string>, fragments: Record<string, Fragment[]>}} Target */
/** @typedef {{mistake: string | null, model_type: string | null, original: number, today: number, notes: string[],
      ropes: ModelRope[], methods: Record<string, Method>, targets: Record<string, Target>}} Model */
/** @typedef {{method: string, wavelengths: number[], growth: number[], leaving: number[], amplitude: number, frequencies: number[]}} Result */

export const NEAR = 16; // a near distance, in tokens
const ROUNDING = 1e-9; // a pair that is divided by exactly the factor does not leave its range

/** Return the numbers of every rule that can be computed for a rope, "none" first.
    @param {Model} model @param {ModelRope} part @param {number} to @returns {Result[]} */
export function results(model, part, to) {
  const plain = wavelengthsOf("none", model, part, to);
  const found = [];
  for (const [method, { rule, refused }] of Object.entries(model.methods)) {
    if (!rule || refused) continue;
    const { wavelengths, amplitude } = wavelengthsOf(method, model, part, to);
    found.push({
      method, wavelengths, amplitude,
      growth: wavelengths.map((each, i) => (Number.isFinite(plain.wavelengths[i]) ? each / plain.wavelengths[i] : 1)),
      leaving: leavingPairs(plain.wavelengths, wavelengths, model.original, to),
      frequencies: wavelengths.map((each) => (2 * Math.PI) / each),
    });
  }
  return found;
}

/** Return the positions per turn of each pair. @param {string} method @param {Model} model @param {ModelRope} part @param {number} to @returns {Given} */
function wavelengthsOf(method, { methods, original }, part, to) {
  if (part.given[method]) return part.given[method];
  /** @type {Rule} */
  const rule = { name: method, factor: to / original, original, ...methods[method].rule };
  const { theta, rotaryDim } = part;
  const { frequencies, amplitude } = rope({ headDim: rotaryDim, rotaryDim, theta, pairing: "half", rule }, to);
  return { wavelengths: frequencies.map((f) => (2 * Math.PI) / f), amplitude };
}

/** Return the pairs that reach angles beyond those in training: pair i reached original / plain[i]
    turns, and now reaches to / ruled[i]. @param {number[]} plain @param {number[]} ruled @param {number} original @param {number} to */
export function leavingPairs(plain, ruled, original, to) {
  return plain.flatMap((before, i) => {
    const seen = original / before;
    return seen < 1 && to / ruled[i] > seen * (1 + ROUNDING) ? [i] : [];
  });
}

/** Return `meanCosine` averaged over the distances from 0.75 to 1.25 of this one: the integral of the
    cosine, sin(distance · f) / f, between the ends. @param {number[]} frequencies @param {number} distance */
export function smoothScore(frequencies, distance) {
  const low = 0.75 * distance, high = 1.25 * distance;
  return frequencies.reduce((sum, f) => sum + (f === 0 ? 1 : (Math.sin(high * f) - Math.sin(low * f)) / ((high - low) * f)), 0) / frequencies.length;
}

/** Return about so many whole distances from 1 to `to`, equally far apart on a logarithmic axis. @param {number} to @param {number} count */
export function distances(to, count) {
  const steps = Array.from({ length: count }, (_, i) => Math.min(to, Math.round(to ** (i / (count - 1)))));
  return [...new Set(steps)];
}

/** Return the rule to show: the one that was chosen, or the recommended one. @param {Model} model @param {string} wanted @param {number} to */
export function chosenMethod({ methods, targets }, wanted, to) {
  if (wanted !== "recommended") return wanted;
  const target = targets[to] ?? Object.values(targets)[0];
  if (target) return target.recommendation.method ?? "none";
  return methods.yarn && !methods.yarn.refused ? "yarn" : "none";
}

/** Return why a rope cannot have a rule, or null. @param {Rule} rule @param {number} theta @param {number} rotaryDim */
function refusal(rule, theta, rotaryDim) {
  try {
    rope({ headDim: rotaryDim, rotaryDim, theta, pairing: "half", rule });
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Return the model that has one rope and follows every rule. @param {number} rotaryDim @param {number} theta @param {number} original @returns {Model} */
export function ownModel(rotaryDim, theta, original) {
  /** @type {Record<string, Method>} */
  const methods = {};
  for (const name of ["none", "linear", "ntk", "dynamic", "yarn", "llama3"]) {
    methods[name] = { rule: { name }, refused: refusal({ name, factor: 2, original }, theta, rotaryDim) };
  }
  if (rotaryDim === 2) delete methods.ntk, delete methods.dynamic;
  const ropes = [{ layers: "", theta, rotaryDim, given: {} }];
  return { mistake: null, model_type: null, original, today: original, notes: [], ropes, methods, targets: {} };
}
