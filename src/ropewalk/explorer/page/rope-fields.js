/* The fields that describe a rope, and the spec that they mean; several rooms have them. */

import { choiceField, numberField } from "./fields.js";

/** @typedef {import("./fields.js").Field} Field */
/** @typedef {import("./fields.js").State} State */
/** @typedef {import("./rope.js").Spec} Spec */

/** @type {[string, string][]} */
export const RULES = [
  ["none", "none"], ["linear", "linear (position interpolation)"], ["ntk", "NTK-aware"],
  ["dynamic", "dynamic NTK"], ["yarn", "YaRN"], ["llama3", "Llama 3"],
];
export const MOST_POSITION = 2 ** 31;

/** Return a field for head_dim. @param {number} initial @returns {Field} */
export function headDimField(initial) {
  const choices = [8, 16, 32, 64, 96, 128, 256].map((n) => /** @type {[string, string]} */ ([String(n), String(n)]));
  return { key: "head_dim", label: "head_dim", kind: "choice", initial: String(initial), choices };
}

export const THETA = numberField({ key: "theta", label: "theta", initial: 10000, min: 2, max: 1e8, log: true });
export const PAIRING = choiceField({ key: "pairing", label: "pairing", initial: "half", choices: [["half", "half (Llama)"], ["interleaved", "interleaved (GPT-J)"]] });
export const RULE = choiceField({ key: "rule", label: "scaling rule", initial: "none", choices: RULES });
export const FACTOR = numberField({ key: "factor", label: "factor of the rule", initial: 4, min: 1, max: 128, log: true });
export const ORIGINAL = numberField({ key: "original", label: "original length", initial: 4096, min: 64, max: 1048576, whole: true, log: true, unit: "tokens" });

/** Return the spec that a state means; what a room has no field for is as usual. @param {State} state @returns {Spec} */
export function specOf({ head_dim: headDim = "64", theta = 10000, pairing = "half", rule = "none", factor = 4, original = 4096 }) {
  const size = Number(headDim);
  return { headDim: size, rotaryDim: size, theta, pairing, rule: { name: rule, factor, original } };
}
