// The functions that ropewalk's page in the browser computes with: ropes of one axis without
// attention_factor's LongRoPE, whose first dimensions rotate, or all.
import { cosSin, rope, rotate as turn } from "../../src/ropewalk/explorer/page/rope.js";

const NAMES = {
  factor: "factor",
  alpha: "factor",
  original_max_position_embeddings: "original",
  beta_fast: "betaFast",
  beta_slow: "betaSlow",
  truncate: "truncate",
  low_freq_factor: "lowFreq",
  high_freq_factor: "highFreq",
  partial_rotary_factor: "fraction",
  attention_factor: "attentionFactor",
  mscale: "mscale",
  mscale_all_dim: "mscaleAllDim",
};
const RULES = { default: "none", linear: "linear", dynamic: "dynamic", yarn: "yarn", llama3: "llama3", proportional: "proportional" };

function made(vector) {
  const { rope: given, length } = vector;
  const rule = { name: RULES[given.scaling.rope_type] };
  for (const [key, value] of Object.entries(given.scaling))
    if (NAMES[key] && value !== null && !(key === "factor" && "alpha" in given.scaling))
      rule[NAMES[key]] = value;
  if ("alpha" in given.scaling) rule.name = "ntk";
  const offered =
    rule.name && !given.axes && !given.start && !given.reverse && !vector.cached &&
    given.amplitude === 1 && given.pairing === given.write_pairing && !("seq_length" in given.scaling);
  if (!offered) return null;
  const spec = { headDim: given.head_dim, rotaryDim: given.rotary_dim, theta: given.theta, pairing: given.pairing, rule };
  return rope(spec, length ?? undefined);
}

export function frequencies(vector) {
  const found = made(vector);
  return found && [found.frequencies, found.amplitude];
}

export function tables(vector) {
  const found = made(vector);
  if (!found) return null;
  const rows = vector.positions.map((position) => cosSin(position, found));
  return [rows.map((row) => row.cos), rows.map((row) => row.sin)];
}

export function rotate(vector) {
  const found = made(vector);
  if (!found) return null;
  return ["q", "k"].filter((name) => vector[name].length).map((name) =>
    vector[name].map((x, i) => turn(x, cosSin(vector.positions[i], found), vector.rope.pairing)));
}
