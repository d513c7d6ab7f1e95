/* Parts of the room Stretch: the table of rules, two charts, the advice and the fragments. */

import { chart } from "../chart.js";
import { fixed, h, short, widthIn } from "../draw.js";
import { meanCosine } from "../scores.js";
import { distances, NEAR, smoothScore } from "../stretch.js";

/** @typedef {import("../stretch.js").Model} Model */
/** @typedef {import("../stretch.js").Result} Result */
/** @typedef {import("../stretch.js").Target} Target */
/** @typedef {import("../main.js").Change} Change */

const POINTS = 160, WIDEST = 620;
const RULES = ["none", "linear", "ntk", "dynamic", "yarn", "llama3", "longrope"]; // a rule looks the same in every model
/** @param {number} x */
const tokens = (x) => x.toLocaleString("en");

/** @param {Result[]} found @param {string} chosen @param {Model} model @param {number} to @param {Change} change */
export function rulesTable(found, chosen, { original }, to, change) {
  const near = [Math.min(NEAR, to), original, to];
  const titles = ["rule", "wavelengths grow", "pairs beyond training", "amplitude", ...near.map((each) => `score at ${tokens(each)}`)];
  const rows = found.map((each) => {
    const look = each.method === chosen ? "chosen" : undefined, count = each.leaving.length, all = each.growth.length;
    const name = h("button", { type: "button", "aria-pressed": String(each.method === chosen), click: () => change({ method: each.method }) }, each.method);
    const ends = [...new Set([Math.min(...each.growth), Math.max(...each.growth)].map((end) => short(end)))];
    const cells = [
      `${ends.join(" to ")} times`, `${count} of ${all} (${Math.round((100 * count) / all)} %)`, short(each.amplitude, 4),
      ...near.map((distance) => fixed(meanCosine(each.frequencies, distance), 3)),
    ];
    return h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader", class: look }, name), ...cells.map((text, i) => h("td", { role: "cell", class: look, "data-title": titles[i + 1] }, text)));
  });
  return h("div", {},
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rules at the new context" }, h("table", { class: "cards", role: "table" }, h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, ...titles.map((text) => h("th", { scope: "col", role: "columnheader" }, text)))), h("tbody", { role: "rowgroup" }, ...rows))),
    h("p", { class: "note" }, "A pair is beyond training if it made less than a full turn within the original length, and now turns further than it did there. The score is the mean of cos(distance · f) over all pairs, without the amplitude: what equal q and k reach, divided by their squared length (RoFormer, section 3.4.3)."));
}

/** Return why the model cannot have some rules. @param {Model} model */
export function whyNot({ methods }) {
  const refused = Object.entries(methods).filter(([, each]) => each.refused);
  return refused.map(([name, each]) => h("p", { class: "note" }, h("b", {}, `Not ${name}: `), `${each.refused}.`));
}

/** @param {HTMLElement} place @param {Result[]} found @param {string} chosen @param {Model} model @param {number} to */
export function wavelengthsChart(place, found, chosen, { original }, to) {
  const plain = found[0].wavelengths, known = found.flatMap((each) => each.wavelengths).filter(Number.isFinite);
  const lines = found.map((each) => ({ name: each.method, look: RULES.indexOf(each.method), thin: each.method !== chosen, points: points(each.wavelengths) }));
  const needed = plain.map((each) => (each > original && Number.isFinite(each) ? (each * to) / original : NaN));
  const least = { name: "least that keeps a slow pair within training", limit: true, thin: true, points: points(needed) };
  const { leaving, growth } = found.find(({ method }) => method === chosen) ?? found[0];
  return h("figure", {},
    chart({
      x: { min: 0, max: Math.max(1, plain.length - 1), label: "pair" },
      y: { min: Math.min(...known) / 1.2, max: 1.2 * Math.max(...known, to), log: true, label: "positions per turn" },
      lines: needed.some(Number.isFinite) ? [...lines, least] : lines,
      across: [{ at: original, name: `original ${tokens(original)}` }, { at: to, name: `new ${tokens(to)}` }],
      alt: `Wavelengths of ${plain.length} pairs under each rule. With ${chosen}, ${leaving.length} of ${growth.length} pairs are beyond training.`,
      width: widthIn(place, WIDEST),
    }),
    h("figcaption", {}, "The thick line is the rule in detail. Where it is below the gray dashed line, the pair reaches angles that training never had. Pairs below the original length made a full turn there, so no angle is new to them."));
}

/** @param {number[]} values @returns {[number, number][]} */
const points = (values) => values.map((each, i) => [i, each]);

/** @param {HTMLElement} place @param {Result[]} found @param {string} chosen @param {Model} model @param {number} to */
export function scoresChart(place, found, chosen, { original }, to) {
  const at = distances(to, POINTS);
  const lines = found.map((each) => ({
    name: each.method, look: RULES.indexOf(each.method), thin: each.method !== chosen,
    points: at.map((distance) => /** @type {[number, number]} */ ([distance, smoothScore(each.frequencies, distance)])),
  }));
  const least = Math.min(0, ...lines.flatMap((line) => line.points.map(([, score]) => score)));
  return h("figure", {},
    chart({
      x: { min: 1, max: to, log: true, label: "distance in tokens" },
      y: { min: least, max: 1, label: "mean of cos(distance · f)" },
      lines, down: [{ at: original, name: "original length" }],
      alt: `The mean score by distance from 1 to ${tokens(to)} tokens, under each rule`,
      width: widthIn(place, WIDEST),
    }),
    h("figcaption", {}, "Each point is the mean over distances from three quarters to five quarters of its own, since single distances differ too much to be seen. A rule that slows fast pairs too raises the scores of near distances: neighbors become harder to tell apart."));
}

/** @param {Target} target @param {number} to @param {string} chosen */
export function advice({ recommendation: { method, reason, limits }, parameters }, to, chosen) {
  const rows = Object.entries(parameters).map(([name, text]) => h("li", {}, h("b", {}, name), `: ${text}`));
  return [
    h("p", {}, h("b", {}, `${method ?? "no rule"}, for ${tokens(to)} tokens. `), reason),
    h("ul", {}, ...limits.map((each) => h("li", {}, each))),
    h("details", {}, h("summary", {}, "Parameters of each rule"), h("ul", {}, ...rows)),
    ...(method !== chosen ? [h("p", { class: "note" }, `In detail here: ${chosen}.`)] : []),
  ];
}

/** @param {Model} model */
export function notesOf({ notes }) {
  return notes.map((each) => h("p", { class: "note" }, `Note: ${each}.`));
}

/** @param {Target} target @param {string} chosen @param {string} engine */
export function fragmentOf({ fragments }, chosen, engine) {
  const found = (fragments[chosen] ?? []).find((each) => each.engine === engine);
  if (!found) return [h("p", {}, chosen === "none" ? "Without a rule there is nothing to paste. Choose a rule above." : `The code of this model does not follow ${chosen}, so there is nothing to paste.`)];
  const tested = found.run ? "run by ropewalk's tests" : "from its documentation, not run";
  /** @type {[string, string[]][]} */
  const lists = [["Remove from the same section", found.remove], ["It ignores", found.ignores], ["Warning", found.warnings]];
  return [
    h("p", {}, h("b", {}, `${engine} ${found.version}, ${chosen}`), `: ${tested}. Where: ${found.place}.`),
    ...lists.flatMap(([title, texts]) => texts.map((text) => h("p", { class: title === "Warning" ? "mistake" : "note" }, `${title}: ${text}.`))),
    ...(found.text === null ? [h("p", {}, "There is nothing to paste for this engine.")] : copied(found.text)),
    h("p", { class: "note" }, `Source of the names: ${found.source}.`),
  ];
}

/** @param {string} text */
function copied(text) {
  const said = h("span", { role: "status" });
  const button = h("button", {
    type: "button",
    click: () => navigator.clipboard.writeText(text).then(
      () => { said.textContent = " Copied."; },
      () => { said.textContent = " The browser does not allow it; select the text instead."; },
    ),
  }, "Copy");
  return [h("pre", { tabindex: 0, role: "region", "aria-label": "Text to paste" }, text), h("p", {}, button, said)];
}
