/* Mistakes: rotary code that circulates and is wrong, next to the right one. */

import { chart } from "../chart.js";
import { controls } from "../controls.js";
import { fixed, h, outside, short, widthIn } from "../draw.js";
import { choiceField, numberField } from "../fields.js";
import { codesOf, cosines, pairingOf, roundedTables, singularValues } from "../mistakes.js";
import { replace } from "../replace.js";
import { cosSin, dot, norm, pairs, rope } from "../rope.js";
import { specOf, THETA } from "../rope-fields.js";
import { roundTo } from "../rounding.js";
import { TEXTS } from "./mistakes-texts.js";

/** @typedef {import("../fields.js").State} State */
/** @typedef {import("../mistakes.js").Code} Code */
/** @typedef {import("../mistakes.js").Mistake} Mistake */
/** @typedef {import("../rope.js").Pairing} Pairing */
/** @typedef {{right: Code, wrong: Code}} Codes */

const FAR = 10_000_000, POINTS = 160;

const MISTAKE = choiceField({ key: "mistake", label: "mistake", initial: "added", choices: Object.entries(TEXTS).map(([name, { choice }]) => [name, choice]) });
const DTYPE = choiceField({ key: "dtype", label: "dtype of the angles", initial: "bfloat16", choices: [["bfloat16", "bfloat16"], ["float16", "float16"], ["float32", "float32"]] });
const KEY = numberField({ key: "key", label: "position of the key, n", initial: 102, min: 0, max: FAR, whole: true, log: true });
const DISTANCE = numberField({ key: "distance", label: "distance m − n", initial: 3, min: 0, max: 512, whole: true });
const REACH = numberField({ key: "reach", label: "charts reach to position", initial: 400, min: 16, max: FAR, whole: true, log: true });
const HEAD_DIM = choiceField({ key: "head_dim", label: "head_dim", initial: "64", choices: [["16", "16"], ["32", "32"], ["64", "64"], ["128", "128"]] });
const FIELDS = [MISTAKE, DTYPE, KEY, DISTANCE, REACH, HEAD_DIM, THETA];

/** @type {import("../main.js").Room} */
export const mistakes = {
  id: "mistakes",
  title: "Mistakes",
  fields: FIELDS,
  open(place, change) {
    const form = controls(FIELDS, change), text = h("div"), table = h("div"), charts = h("div", { class: "panels" }), code = h("div", { class: "panels" });
    place.append(
      h("p", {}, "Wrong rotary code often runs, trains and even gives fluent short answers. Choose a mistake, and move both words through the text at the same distance. With the right code, the score and the norms stay."),
      form.element, text, table, charts, code,
      h("p", { class: "note" }, "Number i of q is sin(1 + i²), number i of k is sin(2 + i²). The right rotation is equation 34 of RoFormer: ", outside("https://arxiv.org/abs/2104.09864", "arXiv 2104.09864"), "."));
    let described = "", told = "";
    /** @type {Series} */
    let series;
    return (state) => {
      const mistake = /** @type {Mistake} */ (state.mistake), found = rope(specOf(state)), size = Number(state.head_dim);
      const codes = codesOf(mistake, found, state.dtype), [q, k] = vectors(size);
      form.show(state);
      form.only(mistake === "precision" ? FIELDS : FIELDS.filter((each) => each !== DTYPE));
      if (mistake !== told) {
        replace(text, ...words(mistake));
        replace(code, codeOf("Right", TEXTS[mistake].right), codeOf("Wrong", TEXTS[mistake].wrong));
      }
      told = mistake;
      replace(table, tableOf(state, codes, q, k, extra(mistake, state, found)));
      const width = widthIn(charts, 1200), { key, ...others } = state, description = JSON.stringify(others);
      if (description !== described) series = seriesOf(state, codes, q, k); // the key only moves a mark
      described = description;
      charts.replaceChildren(...chartsOf(state, series, width < 800 ? Math.min(width, 640) : (width - 32) / 2));
    };
  },
};

/** @param {number} size @returns {[number[], number[]]} */
function vectors(size) {
  const places = Array.from({ length: size }, (_, i) => i);
  return [places.map((i) => Math.sin(1 + i * i)), places.map((i) => Math.sin(2 + i * i))];
}

/** @param {Mistake} mistake */
function words(mistake) {
  const { what, effect, fault } = TEXTS[mistake];
  return [h("p", {}, what), h("p", {}, h("strong", {}, effect)), h("p", { class: "note" }, h("code", {}, "ropewalk verify"), mistake === "precision" ? " reports bfloat16 and float16 angles as " : " reports it as ", h("code", {}, fault), ".")];
}

/** @param {string} name @param {string} text */
function codeOf(name, text) {
  return h("section", {}, h("h2", {}, name), h("pre", { tabindex: 0, role: "region", "aria-label": `${name} code` }, h("code", {}, text)));
}

/** @param {State} state @param {Codes} codes @param {number[]} q @param {number[]} k @param {string[][]} more */
function tableOf({ mistake, key: n, distance }, codes, q, k, more) {
  const m = n + distance, pairing = pairingOf(mistake);
  /** @param {(code: Code) => number} of @param {string} name */
  const row = (name, of) => [name, ...[codes.right, codes.wrong].map((code) => shown(of(code)))];
  /** @param {Code} code @param {number} from */
  const score = (code, from) => dot(code.q(q, from + distance), code.k(k, from));
  const rows = [
    row(`score of q at ${distance} and k at 0`, (code) => score(code, 0)),
    row(`score of q at ${number(m)} and k at ${number(n)}`, (code) => score(code, n)),
    row("change of the score", (code) => score(code, n) - score(code, 0)),
    row(`norm of q at ${number(m)} (before: ${fixed(norm(q), 3)})`, (code) => norm(code.q(q, m))),
    row(`norm of k at ${number(n)} (before: ${fixed(norm(k), 3)})`, (code) => norm(code.k(k, n))),
    row(`most that a pair of q at ${number(m)} changes its norm`, (code) => pairChange(q, code.q(q, m), pairing)),
    ...more,
  ];
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Scores and norms" },
    h("table", {}, h("tr", {}, ...["what is computed", "right", "wrong"].map((name) => h("th", { scope: "col" }, name))),
      ...rows.map(([name, ...cells]) => h("tr", {}, h("th", { scope: "row" }, name), ...cells.map((cell) => h("td", {}, cell))))));
}

/** Return by how much the norm of a pair changes at most. @param {number[]} before @param {number[]} after @param {Pairing} pairing */
function pairChange(before, after, pairing) {
  const change = pairs(before.length, pairing).map(([a, b]) => Math.abs(Math.hypot(after[a], after[b]) - Math.hypot(before[a], before[b])));
  return Math.max(...change);
}

/** @param {number} x */
const number = (x) => x.toLocaleString("en");
/** @param {number} x */
const shown = (x) => (Number.isFinite(x) ? fixed(x, 4) : "not a number");

/** Return rows that only one mistake has. @param {Mistake} mistake @param {State} state @param {import("../rope.js").Rope} found @returns {string[][]} */
function extra(mistake, { key: n, distance, head_dim: size, dtype }, found) {
  if (mistake === "matrix") {
    const values = valuesOf(Number(size)), lost = values.filter((each) => each < 1e-4 * values[0]).length;
    return [[`directions of ${size} that shrink to less than a 10,000th of the largest`, "0", String(lost)]];
  }
  if (mistake !== "precision") return [];
  const m = n + distance, exact = cosSin(m, found).cos, rounded = roundedTables(m, found, dtype).cos;
  const off = Math.max(...exact.map((each, i) => Math.abs(each - rounded[i])));
  return [
    [`largest error of a cosine at ${number(m)}`, "below 1e-7", Number.isFinite(off) ? short(off) : "not a number"],
    [`positions ${number(m)} and ${number(m + 1)} as numbers`, "different", roundTo(m, dtype) === roundTo(m + 1, dtype) ? "the same" : "different"],
  ];
}

/** @type {Map<number, number[]>} */
const known = new Map();

/** Return the singular values of the cosine matrix, computed once for each size. @param {number} size */
function valuesOf(size) {
  const values = known.get(size) ?? singularValues(cosines(size));
  known.set(size, values);
  return values;
}

/** @typedef {{places: number[], scores: number[][], norms: number[][]}} Series  of each place, wrong and right */

/** Return scores and norms at up to 160 places. @param {State} state @param {Codes} codes @param {number[]} q @param {number[]} k @returns {Series} */
function seriesOf({ distance, reach }, codes, q, k) {
  const count = Math.min(POINTS, reach), places = Array.from({ length: count + 1 }, (_, i) => Math.round((i * reach) / count));
  /** @type {number[][]} */
  const scores = [], norms = [];
  for (const p of places) {
    const queries = [codes.wrong, codes.right].map((code) => code.q(q, p + distance));
    scores.push([dot(queries[0], codes.wrong.k(k, p)), dot(queries[1], codes.right.k(k, p))]);
    norms.push(queries.map(norm));
  }
  return { places, scores, norms };
}

/** @param {State} state @param {Series} series @param {number} width */
function chartsOf({ key: n, distance, reach }, { places, scores, norms }, width) {
  const skipped = reach / (places.length - 1), drawn = skipped > 1 ? ` About one in ${number(Math.ceil(skipped))} positions is drawn.` : "";
  return [
    h("section", {}, h("h2", {}, `Score at distance ${distance}`), pairOfLines(places, scores, "position of the key, n", "score", n, width), h("p", { class: "note" }, `The right one is flat: only the distance matters.${drawn}`)),
    h("section", {}, h("h2", {}, "Norm of q"), pairOfLines(places.map((p) => p + distance), norms, "position of the query, m", "norm", n + distance, width), h("p", { class: "note" }, "The right one is flat: a rotation keeps lengths.")),
  ];
}

/** @param {number[]} places @param {number[][]} values @param {string} label @param {string} what @param {number} mark @param {number} width */
function pairOfLines(places, values, label, what, mark, width) {
  const all = values.flat().filter(Number.isFinite), low = Math.min(...all), high = Math.max(...all), margin = Math.max((high - low) * 0.08, 0.5);
  /** @param {number} which @returns {[number, number][]} */
  const points = (which) => places.map((p, i) => [p, values[i][which]]);
  return chart({
    x: { min: places[0], max: places[places.length - 1], label }, y: { min: what === "norm" ? 0 : low - margin, max: high + margin, label: what }, width,
    lines: [{ name: "wrong", look: 1, points: points(0) }, { name: "right", look: 0, points: points(1) }],
    down: [{ at: mark, name: number(mark) }],
    alt: `${what} by position: right stays at ${shown(values[0][1])}; wrong is between ${shown(Math.min(...values.map(([w]) => w)))} and ${shown(Math.max(...values.map(([w]) => w)))}`,
  });
}
