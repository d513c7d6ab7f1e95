/* A line of positions with a key and a query on it: drag one of them, or both by the handle between. */

import { ticks } from "./chart.js";
import { drags, whole } from "./drag.js";
import { h, picture, s, short, widthIn } from "./draw.js";
import { numberField } from "./fields.js";

/** @typedef {import("./fields.js").State} State */

const HEIGHT = 112, AXIS = 60, SIDE = 26, LABEL = 62;
export const MOST_START = 60, MOST_DISTANCE = 30, MOST = MOST_START + MOST_DISTANCE;

export const START = numberField({ key: "start", label: "move both: key at n", initial: 4, min: 0, max: MOST_START, whole: true });
export const DISTANCE = numberField({ key: "distance", label: "distance m − n", initial: 6, min: 0, max: MOST_DISTANCE, whole: true });

/** Return a line for the fields START and DISTANCE, and a function that shows a state in it.
    @param {import("./main.js").Change} change @param {{query: string, key: string}} names */
export function positionLine(change, names) {
  const place = h("div");
  let now = { start: 0, distance: 0 }, begun = now;
  drags(place, ({ part, at, from, begins }) => {
    if (begins) begun = now;
    const by = whole(((at.x - from.x) / (widthOf(place) - 2 * SIDE)) * MOST, -MOST, MOST);
    const end = begun.start + begun.distance;
    if (part === "both") change({ start: whole(begun.start + by, 0, MOST_START) });
    if (part === "query") change({ distance: whole(begun.distance + by, 0, MOST_DISTANCE) });
    if (part === "key") {
      const start = whole(begun.start + by, Math.max(0, end - MOST_DISTANCE), Math.min(end, MOST_START));
      change({ start, distance: end - start });
    }
  });
  return {
    element: h("figure", {}, place, h("figcaption", {}, "Drag the query, the key, or the handle ↔. Only the handle moves both.")),
    /** @param {State} state */
    show({ start, distance }) {
      now = { start, distance };
      place.replaceChildren(lineOf(start, start + distance, names, widthOf(place)));
    },
  };
}

/** @param {HTMLElement} place */
const widthOf = (place) => widthIn(place, 640);

/** @param {number} n @param {number} m @param {{query: string, key: string}} names @param {number} width */
function lineOf(n, m, { query, key }, width) {
  const x = (/** @type {number} */ p) => SIDE + (p / MOST) * (width - 2 * SIDE), middle = (x(m) + x(n)) / 2;
  return picture(width, HEIGHT, `A line of positions: the key, ${key}, at ${n}; the query, ${query}, at ${m}; distance ${m - n}`,
    s("path", { class: "quiet", d: `M${SIDE} ${AXIS}H${width - SIDE}` }),
    ...ticks({ min: 0, max: MOST, label: "" }, Math.floor(width / 70)).flatMap((p) => [
      s("path", { class: "quiet", d: `M${x(p)} ${AXIS}v5` }),
      s("text", { x: x(p), y: AXIS + 24, "text-anchor": "middle" }, short(p)),
    ]),
    s("path", { class: "axis", d: `M${x(n)} ${AXIS}V34H${x(m)}V${AXIS}` }),
    s("g", { class: "grip", "data-drag": "both" },
      s("rect", { class: "knob", x: middle - 22, y: 23, width: 44, height: 22, rx: 11 }),
      s("text", { x: middle, y: 38, "text-anchor": "middle" }, `↔ ${m - n}`)),
    ...marker(x(n), AXIS + 44, "key", `key “${key}”, n = ${n}`, 1, width, m === n ? 10 : 7), // both are seen at distance 0
    ...marker(x(m), 14, "query", `query “${query}”, m = ${m}`, 0, width));
}

/** @param {number} x @param {number} y @param {string} part @param {string} text @param {number} look @param {number} width @param {number} [size] */
function marker(x, y, part, text, look, width, size = 7) {
  return [
    s("text", { x: Math.min(Math.max(x, LABEL), width - LABEL), y, "text-anchor": "middle" }, text),
    s("g", { class: "grip", "data-drag": part },
      s("circle", { cx: x, cy: AXIS, r: 16, class: "clear" }),
      s("circle", { cx: x, cy: AXIS, r: size, class: `fill${look}` })),
  ];
}
