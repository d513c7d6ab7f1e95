/* Your model: attention of any head, with its scores split by rotary pair. */
"use strict";

import { plain } from "../attention.js";
import { ask } from "../ask.js";
import { chart } from "../chart.js";
import { controls, fitted } from "../controls.js";
import { facts, h, outside, widthIn } from "../draw.js";
import { meanByDistance, NONE, scores, strongest, unpackHead, weights } from "../head-scores.js";
import { heatMap } from "../heat.js";
import { latest } from "../later.js";
import { memo } from "../memo.js";
import { replace } from "../replace.js";
import { effect, grid, isOf, known, named, pairFacts, SPEEDS, steps, waveOf } from "./heads-parts.js";

/** @typedef {import("../fields.js").State} State */
/** @typedef {import("../head-scores.js").Answer} Answer */
/** @typedef {import("../head-scores.js").Band} Band */
/** @typedef {import("../head-scores.js").Head} Head */
/** @typedef {import("../later.js").Found} Found */
/** @typedef {import("./heads-parts.js").Layer} Layer */
/** @typedef {import("./heads-parts.js").Model} Model */
/** @typedef {{weights: Float32Array[], mean: [number, number][]}} Seen */

const MOST = 512, FEW = 48, WIDE = 560, STRONGEST = -1; // the cell of the head that has most weight
/** @type {import("../fields.js").Field} */
const SORT = { key: "sort", label: "sort the heads", kind: "choice", initial: "layer", choices: [["layer", "by layer"], ["positional", "by how positional they are"]] };
/** @type {(key: string, label: string, max: number, initial?: number, min?: number) => import("../fields.js").NumberField} */
const number = (key, label, max, initial = 0, min = 0) => ({ key, label, kind: "number", initial, min, max, whole: true });
const LAYER = number("layer", "layer", 999), HEAD = number("head", "head", 999), QUERY = number("query", "query", MOST - 1, STRONGEST, STRONGEST), KEY = number("key", "key", MOST - 1, STRONGEST, STRONGEST);
const FROM = number("from", "first pair left out", MOST, 1, 1), TO = number("to", "last pair left out", MOST);

/** @type {import("../main.js").Room} */
export const heads = {
  id: "heads",
  title: "Your model",
  fields: [SORT, LAYER, HEAD, QUERY, KEY, FROM, TO],
  open(place, change) {
    const about = h("div"), all = h("section", { hidden: true }), sorts = controls([SORT], change), map = h("div");
    const chosen = fitted(change), pair = h("div"), whole = h("div"), band = fitted(setBand), left = h("div"), details = h("div", { class: "panels" });
    const choices = h("div", { class: "choices" }), split = h("div", {}, band.element, choices), title = h("h2"), note = h("p", { class: "note" }), trouble = h("p", { class: "mistake", role: "alert", hidden: true });
    const maps = h("div", { class: "panels level" }, h("section", {}, h("h3", {}, "With all pairs"), pair, whole), h("section", {}, h("h3", {}, "Leave out a band of frequencies"), split, left));
    const body = h("div", { hidden: true }, note, maps, details), one = h("div", { hidden: true }, title, chosen.element, trouble, body);
    all.append(h("h2", {}, "All heads"), h("p", { class: "note" }, "Rows are queries, columns are keys; the shade grows with the weight. Under each map is the head (layer.head when sorted), and how positional it is: the share of the variance of its scores that distance alone explains."), sorts.element, map);
    place.append(about, all, one);
    let last = /** @type {State} */ ({}), model = /** @type {Found} */ ({ key: "", value: null, error: "" }), answer = model;
    const learn = latest((found) => { model = found; draw(last); }), open = latest((found) => { answer = found; draw(last); }, 0);
    const headOf = memo((/** @type {Answer} */ given) => unpackHead(given, model.value.tokens.length));
    const wholeOf = memo((/** @type {Head} */ head) => seen(head, NONE));
    let remains = { key: "", value: /** @type {Seen | null} */ (null) }, drawnGrid = "", cell = [0, 0];

    /** Keep the two ends of the band in order. @param {State} part */
    function setBand(part) {
      const { from = last.from, to = last.to } = part;
      change("from" in part ? { from, to: to ? Math.max(from, to) : from } : { to, from: to ? Math.min(from, to) : from });
    }

    /** @param {State} state */
    function draw(state) {
      last = state;
      learn("model", () => ask("model", {}));
      const opened = /** @type {Model | null} */ (model.value);
      replace(about, ...aboutModel(opened, model.error));
      all.hidden = one.hidden = !opened?.model;
      if (!opened?.model) return;
      const layer = opened.layers.find((each) => each.layer === state.layer) ?? opened.layers[0], head = Math.min(state.head, layer.heads - 1);
      const at = /** @type {State} */ ({ ...state, layer: layer.layer, head });
      showGrid(opened, at);
      const key = `${layer.layer} ${head}`;
      open(key, () => ask("head", { layer: layer.layer, head }));
      if (answer.key === key && answer.value) cell = cellOf(headOf(answer.value), layer.queries, state);
      [at.query, at.key] = cell;
      chosen.show(fieldsOf(opened, layer), at);
      one.setAttribute("aria-busy", String(answer.key !== key));
      if (answer.key !== key) return; // the earlier head stays until the answer arrives
      title.textContent = `Layer ${layer.layer}, head ${head}`;
      note.textContent = known(layer.found[head]).replace(/.+/, "In this head, $&.");
      trouble.textContent = answer.error.replace(/\.?$/, ".");
      trouble.hidden = !answer.error;
      body.hidden = !answer.value;
      if (answer.value) show(opened, layer, headOf(answer.value), at);
    }

    /** @param {Head} head @param {[number, number]} queries @param {State} state */
    function cellOf(head, queries, { query, key }) {
      const initial = strongest(wholeOf(head).weights, queries);
      return [query, key].map((place, n) => (place === STRONGEST ? initial[n] : Math.min(place, head.count - 1)));
    }

    /** Move the chosen cell by an arrow key. @param {KeyboardEvent} event */
    function step(event) {
      const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!by) return;
      event.preventDefault();
      cell = cell.map((place, n) => Math.max(0, Math.min(model.value.tokens.length - 1, place + by[n])));
      change({ query: cell[0], key: cell[1] });
    }

    /** @param {Model} opened @param {State} at */
    function showGrid(opened, at) {
      sorts.show(at);
      const now = `${at.sort} ${matchMedia("(prefers-color-scheme: dark)").matches}`;
      if (now !== drawnGrid) replace(map, grid(opened.layers, at.sort, change));
      drawnGrid = now;
      for (const button of map.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.head === `${at.layer} ${at.head}`));
    }

    /** @param {Model} opened @param {Layer} layer @param {Head} head @param {State} at */
    function show(opened, layer, head, at) {
      const { query, key } = at, out = { from: at.from - 1, to: Math.min(at.to, head.pairs) - 1 }, none = out.to < out.from, before = wholeOf(head);
      const cut = `${answer.key} ${out.from} ${out.to}`;
      if (remains.key !== cut) remains = { key: cut, value: none ? before : seen(head, out) };
      const after = remains.value ?? before, names = opened.tokens.map(plain);
      const mapOf = (/** @type {Float32Array[]} */ values, /** @type {string} */ label, /** @type {HTMLElement} */ where) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label, keydown: step }, heatMap({
        values, most: 1, root: true, rows: names, columns: names, mark: [query, key], pick: (row, column) => change({ query: row, key: column }),
        smallest: names.length > FEW ? 1 : 10, width: widthIn(where, WIDE), label: `${label}: ${names.length} queries by ${names.length} keys; shades grow with the square root of the weight`,
      }));
      replace(pair, ...pairFacts(head, layer, query, key, before.weights, opened.tokens));
      replace(whole, h("p", { class: "note" }, "Click a cell, or press the arrow keys on the map, to choose a query and a key."), mapOf(before.weights, "All weights", whole));
      split.hidden = !head.pairs;
      if (head.pairs) showBand(layer, head, at, out);
      replace(left, ...(head.pairs ? [
        h("p", { class: "note" }, none ? "Nothing is left out, so this map is the same. A fast pair turns at least once in this text; a slow one less than a quarter of a turn, so its part hardly depends on the distance. An end of the band that passes the other takes it along." : `The other pairs remain, and what does not turn; softmax once more. Means are over queries ${layer.queries[0]} to ${layer.queries[1] - 1}, as in the numbers above.`),
        ...(none ? [] : [effect(head, layer, layer.found[at.head].distance ?? 1, [query, key], out, [before.weights, after.weights])]), mapOf(after.weights, "Weights without the band", left)] : [h("p", {}, `The scores of this layer cannot be split by pair: ${layer.unsplit ?? "the reason is not known"}.`)]));
      const lines = [{ name: "all pairs", points: before.mean }, ...(none ? [] : [{ name: "without the band", points: after.mean }])], heights = lines.flatMap(({ points }) => points.map(([, mean]) => mean));
      replace(details,
        ...(head.pairs && before.weights[query][key] >= 0 ? [h("section", {}, h("h3", {}, "The score, pair by pair"), h("p", { class: "note" }, `From ${names[query]} to ${names[key]}: the slowest pair first, and each step begins where the one before ended. Blue raises the score, orange lowers it. The part of a pair is |query pair| × |key pair| × cos(angle); the angle depends on the two tokens, and turns with their distance.`), ...steps(head, layer, query, key, out, widthIn(details, WIDE)))] : []),
        h("section", {}, h("h3", {}, "Mean score by distance"), h("p", { class: "note" }, `Over all queries that see a key at this distance${head.cap === null ? "" : ", before the cap"}. Each point averages all pairs of tokens at that distance, so the content shows too: a text whose tokens alternate gives a zigzag, and far to the right there are few pairs.`), chart({
          x: { min: before.mean[0]?.[0] ?? 0, max: before.mean[before.mean.length - 1]?.[0] ?? 1, label: "tokens from the key to the query" },
          y: { min: Math.min(...heights), max: Math.max(...heights), label: "mean score" }, lines, width: widthIn(details, WIDE), alt: "Mean score by distance of query and key",
        })));
    }

    /** @param {Layer} layer @param {Head} head @param {State} at @param {Band} out */
    function showBand({ waves }, { pairs, count }, at, out) {
      const names = waves.map(waveOf);
      band.show([{ ...FROM, max: pairs, names }, { ...TO, max: pairs, names: ["nothing is left out", ...names] }], at);
      /** @param {string} words @param {(wave: number) => boolean} has */
      const button = (words, has) => {
        const found = waves.flatMap((wave, i) => (wave !== null && has(wave) ? [i] : [])), [from, to] = [found[0] ?? 0, found[found.length - 1] ?? -1];
        return h("button", { type: "button", "aria-pressed": String(from === out.from && to === out.to), click: () => change({ from: from + 1, to: to + 1 }) }, words);
      };
      replace(choices, button("Nothing", () => false), ...SPEEDS.filter((speed) => waves.some((wave) => isOf(speed, wave, count))).map((speed) => button(named(speed, count), (wave) => isOf(speed, wave, count))));
    }
    return draw;
  },
};

/** @param {Head} head @param {Band} band @returns {Seen} */
function seen(head, band) {
  const found = scores(head, band);
  return { weights: weights(head, found), mean: meanByDistance(head, found) };
}

/** @param {Model} opened @param {Layer} layer @returns {import("../fields.js").Field[]} */
function fieldsOf({ layers, tokens }, layer) {
  const max = tokens.length - 1, names = tokens.map(plain);
  const choices = layers.map((each) => /** @type {[string, string]} */ ([String(each.layer), `${each.layer}${each.layer_type ? `: ${each.layer_type.replaceAll("_", " ")}` : ""}`]));
  return [{ key: LAYER.key, label: LAYER.label, kind: "choice", initial: "0", choices }, { ...HEAD, max: layer.heads - 1 }, { ...QUERY, min: 0, max, names }, { ...KEY, min: 0, max, names }];
}

/** @param {Model | null} opened @param {string} error */
function aboutModel(opened, error) {
  if (error) return [h("p", { class: "mistake", role: "alert" }, error.replace(/\.?$/, "."))];
  if (!opened) return [h("p", { "aria-busy": "true" }, "The model reads the text …")];
  if (!opened.model) {
    return [h("p", {}, "See what the heads of a model attend to, and which rotary pairs make their scores. Start with a transformers model and a text:"),
      h("pre", {}, 'ropewalk explore --model FOLDER --text "The cat sat on the mat."')];
  }
  const { model, source, random, tokens, layers } = opened;
  return [
    h("p", {}, "A score is a sum: each rotary pair adds a part, and so do the dimensions that do not turn. Fast pairs can tell neighbors apart, slow pairs carry what hardly depends on the distance: ", outside("https://arxiv.org/abs/2410.06205", "Barbero et al. 2024"), " found both kinds of heads. Choose a head, and leave out fast or slow pairs."),
    facts([["model", model], ["from", source], ["tokens", String(tokens.length)], ["layers", String(layers.length)]]),
    ...(random ? [h("p", { class: "mistake" }, "The weights are random, because the folder has none: these maps show how the model computes, not what it learned.")] : []),
    h("p", { class: "note" }, "Layers, heads and positions are counted from 0. A token that begins a word has a · before it."),
  ];
}
