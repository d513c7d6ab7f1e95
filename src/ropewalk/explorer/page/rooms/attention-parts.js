/* Parts of the room Attention: translations, the map of one encoding, the difference of two. */

import { comparable, difference, plain } from "../attention.js";
import { fixed, h, s, widthIn } from "../draw.js";
import { heatMap, largest, shades } from "../heat.js";

/** @typedef {import("../fields.js").State} State */
/** @typedef {import("../attention.js").Attended} Attended */
/** @typedef {import("../attention.js").Maps} Maps */
/** @typedef {import("../main.js").Change} Change */
/** @typedef {{name: string, error?: string, maps?: Maps}} Shown */

const SMALLEST = 12, WIDEST = 560, SMALL = 40;

/** @param {{slug: string, name: string}[]} encodings @param {Record<string, Attended>} found @param {State} state @param {boolean} translates @param {Change} change */
export function translations(encodings, found, { text, target }, translates, change) {
  const typed = translates && text.trim() !== "";
  const rows = encodings.flatMap(({ slug, name }) => {
    const own = found[slug]?.translation;
    if (own === null || own === undefined) return [];
    const use = h("button", { type: "button", click: () => change({ target: own }) }, "Let all read it");
    return [h("div", {}, h("dt", {}, name), h("dd", {}, own || "(empty)", " ", use))];
  });
  if (rows.length) return [h("h2", {}, "Translations"), h("dl", { class: "facts texts" }, ...rows)];
  return target && typed ? [h("p", {}, "Every decoder reads: ", h("b", {}, target), " ", h("button", { type: "button", click: () => change({ target: "" }) }, "Its own instead"))] : [];
}

/** Return the number of the layer and of the head that exist; the last head is the mean. @param {Maps} maps @param {State} state
    @returns {[number, number]} */
function chosen({ weights }, { layer, head }) {
  const heads = weights[0].length - 1;
  return [Math.min(layer, weights.length) - 1, head === 0 ? heads : Math.min(head, heads) - 1];
}

/** @param {Maps} maps @param {number} layer @param {number} head */
const title = ({ weights }, layer, head) => `layer ${layer + 1}, ${head === weights[0].length - 1 ? "mean of all heads" : `head ${head + 1}`}`;

/** Return the map of one encoding, and small maps of all its heads. @param {Shown} shown @param {number} i @param {State} state
    @param {string} site @param {HTMLElement} place @param {Change} change */
export function panel({ name, error, maps }, i, state, site, place, change) {
  const head = h("h2", {}, `${i + 1}. ${name}`);
  if (!maps) return h("section", {}, head, h("p", { class: "mistake" }, `${error ?? "there are no maps of this attention"}.`));
  const [layer, number] = chosen(maps, state);
  return h("section", {}, head, ...large(maps, maps.weights[layer][number], `${name}, ${site}, ${title(maps, layer, number)}`, state, place, change), thumbnails(maps, layer, number, name, change));
}

/** @param {Maps} maps @param {number[][]} values @param {string} name @param {State} state @param {HTMLElement} place @param {Change} change @param {boolean} [signed] */
function large({ rows, columns }, values, name, state, place, change, signed = false) {
  const row = Math.min(state.row, rows.length) - 1, column = Math.min(state.column, columns.length) - 1;
  const value = values[row][column], weight = `${signed && value > 0 ? "+" : ""}${fixed(value, 3)}`;
  return [
    h("p", {}, `${plain(rows[row])} → ${plain(columns[column])}: `, h("b", {}, weight)),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name },
      heatMap({
        values, most: signed ? Math.max(largest(values), 0.001) : 1, root: true, smallest: SMALLEST, width: Math.min(WIDEST, widthIn(place, WIDEST)),
        rows: rows.map(plain), columns: columns.map(plain), mark: [row, column],
        label: `${name}: ${rows.length} queries by ${columns.length} keys; ${plain(rows[row])} to ${plain(columns[column])} has ${weight}`,
        pick: (r, c) => change({ row: r + 1, column: c + 1 }),
      })),
  ];
}

/** Return a button for each head of each layer. @param {Maps} maps @param {number} layer @param {number} head @param {string} name @param {Change} change */
function thumbnails(maps, layer, head, name, change) {
  const rows = maps.weights.map((heads, l) => h("div", { class: "heads" }, h("span", { class: "note" }, `layer ${l + 1}`), ...heads.map((values, n) => {
    const image = s("image", { href: shades(values, 1, true), width: SMALL, height: SMALL, preserveAspectRatio: "none", class: "shades" });
    const last = n === heads.length - 1;
    return h("button", {
      type: "button", class: "head", title: title(maps, l, n), "aria-label": `${name}, ${title(maps, l, n)}`, "aria-pressed": String(l === layer && n === head),
      click: () => change({ layer: l + 1, head: last ? 0 : n + 1 }),
    }, s("svg", { width: SMALL, height: SMALL, viewBox: `0 0 ${SMALL} ${SMALL}`, "aria-hidden": "true" }, image), h("span", { class: "number", "aria-hidden": "true" }, last ? "mean" : String(n + 1)));
  })));
  return h("div", { role: "group", "aria-label": `All heads of ${name}; the last of a layer is their mean` }, ...rows);
}

/** @param {Shown[]} all @param {State} state @param {string} site @param {HTMLElement} place @param {Change} change */
export function differencePanel(all, state, site, place, change) {
  const [more, less] = [state.more, state.less].map((number) => all[Math.min(number, all.length) - 1]);
  if (!more.maps || !less.maps) return [h("p", {}, `${more.maps ? less.name : more.name} has no maps to compare.`)];
  if (!comparable(more.maps, less.maps)) {
    return [h("p", {}, "The two decoders read different translations, so their maps have different rows. Let all decoders read the same one: choose it above.")];
  }
  const [layer, number] = chosen(more.maps, state), values = difference(more.maps.weights[layer][number], less.maps.weights[layer][number]);
  const name = `${more.name} minus ${less.name}, ${site}, ${title(more.maps, layer, number)}`;
  return [
    h("p", { class: "note" }, `${name}. Blue: more weight with ${more.name}; orange: more with ${less.name}. The full shade is ${fixed(largest(values), 3)}.`),
    ...large(more.maps, values, name, state, place, change, true),
  ];
}
