/* Parts of the room Your model: small maps of all heads, and the score of a query and a key by wavelength. */
"use strict";

import { plain } from "../attention.js";
import { scale, ticks } from "../chart.js";
import { facts, fixed, h, picture, s, short } from "../draw.js";
import { bytes, capped, grouped, parts, summary } from "../head-scores.js";
import { painted } from "../heat.js";

/** @typedef {import("../head-scores.js").Band} Band */
/** @typedef {import("../head-scores.js").Head} Head */
/** @typedef {import("../main.js").Change} Change */
/** @typedef {{share: number | null, distance: number | null, at_distance: number | null, at_first: number | null}} Found */
/** @typedef {{layer: number, layer_type: string | null, heads: number, waves: (number | null)[],
      unsplit: string | null, found: Found[], queries: [number, number], small: string[], side: number}} Layer
      waves: tokens per turn of each pair, the slowest first; null does not turn. queries: the first, and the one after the last, that `found` is measured at. small: a map of each head, a byte for each shade. */
/** @typedef {{model: string | null, source: string, random: boolean, tokens: string[], layers: Layer[]}} Model */

const HEIGHT = 320, LEFT = 44, TOP = 26, BOTTOM = 42, NARROWEST = 5, WIDE = 52;
const percent = (/** @type {number} */ share) => `${Math.round(100 * share)}%`;
/** Bands of pairs: a name, and from and to which part of the text's length its wavelengths are. A slow pair turns less than a quarter. */
export const SPEEDS = /** @type {[string, number, number][]} */ ([["Fast", 0, 1], ["Medium", 1, 4], ["Slow", 4, Infinity]]);
/** @type {(speed: [string, number, number], wave: number | null, count: number) => boolean} */
export const isOf = ([, least, most], wave, count) => wave !== null && wave > least * count && wave <= most * count;
/** @type {(speed: [string, number, number], count: number) => string} */
export const named = ([name, least, most], count) => `${name}: ${most === Infinity ? `over ${least * count}` : least ? `${least * count} to ${most * count}` : `up to ${most * count}`} tokens`;
export const signed = (/** @type {number} */ x) => `${x >= 0 ? "+" : ""}${fixed(x, 2)}`;
export const waveOf = (/** @type {number | null} */ wave) => (wave === null ? "does not turn" : `wavelength ${short(wave)} tokens`);

/** Return what is known about a head, in words. @param {Found} found */
export function known({ share, distance, at_distance: near, at_first: first }) {
  const told = [];
  if (share !== null) told.push(`distance alone explains ${percent(share)} of the variance of its scores`);
  if (distance !== null && near !== null) told.push(`${percent(near)} of its weight is at distance ${distance}`);
  if (first !== null) told.push(`${percent(first)} at the first token`);
  return told.join(", ");
}

/** Return a button with a small map for each head: a row for each layer, or all heads in one, the most positional first.
    @param {Layer[]} layers @param {string} sort @param {Change} change */
export function grid(layers, sort, change) {
  const rows = layers.map((layer) => layer.small.map((text, head) => ({ layer, head, text, share: layer.found[head].share })));
  const order = sort === "layer" ? rows : [rows.flat().sort((a, b) => (b.share ?? -1) - (a.share ?? -1))];
  return h("div", { class: "all-heads", role: "group", "aria-label": "All heads" }, ...order.map((row, i) => h("div", { class: "heads" },
    ...(sort === "layer" ? [h("span", { class: "note" }, `layer ${layers[i].layer}`)] : []),
    ...row.map(({ layer, head, text, share }) => {
      const all = bytes(text), values = Array.from({ length: layer.side }, (_, y) => all.subarray(y * layer.side, (y + 1) * layer.side));
      const map = painted(values, 255, false), name = sort === "layer" ? head : `${layer.layer}.${head}`;
      const label = `Layer ${layer.layer}, head ${head}: ${known(layer.found[head])}`;
      map.className = "shades";
      return h("button", {
        type: "button", class: "head", title: label, "aria-label": label, "data-head": `${layer.layer} ${head}`,
        click: () => change({ layer: layer.layer, head }),
      }, map, h("span", { class: "number", "aria-hidden": "true" }, `${name}${share === null ? "" : ` · ${percent(share)}`}`));
    }))));
}

/** Return the score of a query and a key in numbers. @param {Head} head @param {Layer} layer @param {number} i @param {number} j
    @param {Float32Array[]} weights @param {string[]} tokens */
export function pairFacts(head, { waves }, i, j, weights, tokens) {
  const found = parts(head, i, j), total = found.reduce((sum, each) => sum + each, 0), weight = weights[i][j];
  /** @param {(wave: number | null) => boolean} has */
  const sum = (has) => signed(found.reduce((sum, each, p) => sum + (has(waves[p] ?? null) ? each : 0), 0));
  const name = `${plain(tokens[i])} (position ${i}) → ${plain(tokens[j])} (position ${j})`;
  if (!(weight >= 0)) return [h("p", {}, `${name}. This query does not see this key, so they have no score.`)];
  return [h("p", {}, name), facts([
    ["weight", fixed(weight, 3)], ["distance", String(i - j)], ["score", signed(total)],
    ...(head.cap === null ? [] : [/** @type {[string, string]} */ (["score after the cap", signed(capped(total, head.cap))])]),
    ...(head.pairs ? SPEEDS.map((speed) => /** @type {[string, string]} */ ([named(speed, tokens.length), sum((wave) => isOf(speed, wave, tokens.length))])) : []),
    ...(head.pairs && rests(head, waves) ? [/** @type {[string, string]} */ (["what does not turn", sum((wave) => wave === null)])] : []),
  ])];
}

/** Return whether some dimensions do not turn. @param {Head} head @param {(number | null)[]} waves */
const rests = ({ width, pairs }, waves) => width > 2 * pairs || waves.includes(null);

/** Return what a band changes: the weight at the head's distance and at the first token, and one score.
    @param {Head} head @param {Layer} layer @param {number} distance @param {[number, number]} cell @param {Band} band @param {Float32Array[][]} maps with all pairs, and without the band */
export function effect(head, { queries }, distance, [i, j], band, maps) {
  const each = maps.map((weights) => summary(weights, queries, distance)), found = parts(head, i, j);
  const sums = [found, found.map((part, p) => (p >= band.from && p <= band.to ? 0 : part))].map((all) => all.reduce((sum, part) => sum + part, 0));
  const rows = [
    [`mean weight at distance ${distance}`, ...each.map(({ there }) => percent(there))],
    [`queries with most weight there, of ${each[0].queries}`, ...each.map(({ most }) => String(most))],
    ["mean weight at the first token", ...each.map(({ first }) => percent(first))],
    ...(maps[0][i][j] >= 0 ? [["score of the chosen cell", ...sums.map(signed)], ["weight of the chosen cell", ...maps.map((weights) => fixed(weights[i][j], 3))]] : []),
  ];
  return h("table", {}, h("tr", {}, ...["measure", "all pairs", "without the band"].map((text) => h("th", { scope: "col" }, text))),
    ...rows.map(([name, ...values]) => h("tr", {}, h("th", { scope: "row" }, name), ...values.map((value) => h("td", {}, value)))));
}

/** Return the score of a query and a key as steps: each pair begins where the one before ended.
    @param {Head} head @param {Layer} layer @param {number} i @param {number} j @param {Band} band @param {number} width */
export function steps(head, { waves }, i, j, band, width) {
  const found = parts(head, i, j), rest = head.width > 2 * head.pairs ? 1 : 0, cut = band.to >= band.from ? 1 : 0, turning = width - LEFT - (rest + 1 + cut) * WIDE;
  const groups = grouped(found.slice(0, -1), Math.floor(turning / NARROWEST)), side = turning / groups.length;
  const bars = rest ? [...groups, { from: head.pairs, to: head.pairs, value: found[head.pairs] }] : groups, sums = [0];
  for (const { value } of bars) sums.push(sums[sums.length - 1] + value);
  const total = sums[bars.length], remains = total - found.slice(band.from, band.to + 1).reduce((sum, each) => sum + each, 0), y = { min: Math.min(remains, ...sums), max: Math.max(remains, ...sums), label: "" }, up = scale(y, HEIGHT - BOTTOM, TOP);
  const left = (/** @type {number} */ n) => LEFT + side * Math.min(n, groups.length) + WIDE * Math.max(0, n - groups.length);
  const bar = (/** @type {number} */ n, /** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ look) => s("rect", {
    class: look, x: left(n) + 0.5, width: left(n + 1) - left(n) - 1, y: Math.min(up(from), up(to)), height: Math.max(1, Math.abs(up(from) - up(to))),
  });
  const below = (/** @type {number} */ n, /** @type {string} */ text) => s("text", { x: (left(n) + left(n + 1)) / 2, y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, text);
  const every = Math.ceil(56 / side), out = groups.flatMap(({ from, to }, n) => (to >= band.from && from <= band.to ? [n] : []));
  const told = [...bars].sort((a, b) => Math.abs(b.value) - Math.abs(a.value)).slice(0, 3).map(({ from, to, value }) => `${signed(value)} (${nameOf(waves.slice(from, to + 1))})`).join("; ");
  return [
    picture(width, HEIGHT, `The score ${signed(total)} as a sum over pairs. Largest parts: ${told}`,
      ...(out.length ? [
        s("rect", { class: "left-out", x: left(out[0]), y: TOP, width: side * out.length, height: HEIGHT - BOTTOM - TOP }),
        s("text", { x: left(out[0]), y: TOP - 8 }, "left out")] : []),
      ...ticks(y).flatMap((at) => [s("path", { class: "grid", d: `M${LEFT} ${up(at)}H${width}` }), s("text", { x: LEFT - 6, y: up(at) + 4, "text-anchor": "end" }, fixed(at, y.max - y.min < 3 ? 2 : 1))]),
      s("path", { class: "axis", d: `M${LEFT} ${up(0)}H${width}` }),
      ...bars.map(({ value }, n) => bar(n, sums[n], sums[n + 1], value < 0 ? "below" : "above")),
      s("path", { class: "quiet", d: bars.map((_, n) => `M${left(n)} ${up(sums[n + 1])}H${left(n + 2)}`).join("") }),
      bar(bars.length, 0, total, "total"), ...(cut ? [bar(bars.length + 1, 0, remains, "total"), below(bars.length + 1, "without")] : []),
      ...groups.flatMap(({ to }, n) => ((groups.length - 1 - n) % every ? [] : [below(n, short(waves[to] ?? Infinity))])),
      ...(rest ? [below(groups.length, "no turn")] : []), below(bars.length, "score"),
      s("text", { x: LEFT + turning / 2, y: HEIGHT - 4, "text-anchor": "middle" }, "wavelength of the pair in tokens, pair 1 first")),
    h("p", { class: "note" }, `Largest parts of the whole score: ${told}.`),
    h("details", {}, h("summary", {}, "All parts in numbers"), h("table", {},
      h("tr", {}, ...["pair", "part", "sum so far"].map((text) => h("th", { scope: "col" }, text))),
      ...found.slice(0, head.pairs + rest).map((value, n) => h("tr", {}, ...[n < head.pairs ? `${n + 1}: ${waveOf(waves[n])}` : waveOf(null), signed(value), signed(found.slice(0, n + 1).reduce((sum, each) => sum + each, 0))].map((text) => h("td", {}, text)))))),
  ];
}

/** Return the name of neighboring pairs, or of what does not turn. @param {(number | null)[]} waves */
function nameOf(waves) {
  const [first, last] = [waves[0] ?? null, waves[waves.length - 1] ?? null];
  return first === last ? waveOf(first) : `wavelengths ${short(first ?? Infinity)} to ${short(last ?? Infinity)} tokens`;
}
