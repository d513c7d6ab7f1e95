/* Arrows in a plane: the two numbers of a pair. */

import { picture, s } from "../draw.js";

/** @typedef {import("../drag.js").Point} Point */
/** @typedef {{length: number, angle: number}} Hand */

const REACH = 2.6; // from the center to an edge

/** Return the width for a plane inside an element; two of them stand side by side on a phone. @param {HTMLElement} place */
export const sizeIn = (place) => Math.max(100, Math.min(280, place.clientWidth || 280));

/** Return drawings of a plane with this width. @param {number} width */
export function plane(width) {
  const center = width / 2, unit = center / REACH;
  /** @param {number[]} point */
  const place = ([x, y]) => `${(center + x * unit).toFixed(2)} ${(center - y * unit).toFixed(2)}`;
  const axes = () => s("path", { class: "grid", d: `M0 ${center}H${width}M${center} 0V${width}` });
  /** @param {number[]} to @param {string} look */
  const arrow = (to, look) => s("path", { class: `line ${look}`, "stroke-width": 3, d: `M${center} ${center}L${place(to)}` });
  /** @param {number[]} to @param {number} r @param {string} look */
  const dot = ([x, y], r, look) => s("circle", { class: look, cx: center + x * unit, cy: center - y * unit, r });
  return {
    /** Return the numbers x and y, rounded and within bounds, of a point of the drawing. @param {Point} at @param {number} most */
    numbers(at, most) {
      const round = (/** @type {number} */ v) => Math.round(Math.min(Math.max(v / unit, -most), most) * 10) / 10 + 0;
      return { x: round(at.x - center), y: round(center - at.y) };
    },
    /** Return an arrow, and where it is at each position. @param {number[]} start @param {number[][]} points @param {string} label */
    paths(start, points, label) {
      const last = points[points.length - 1];
      return picture(width, width, label, axes(), s("circle", { class: "dial", cx: center, cy: center, r: Math.hypot(...start) * unit }),
        ...points.map((each) => dot(each, 2.5, "fill1")),
        arrow(start, "quiet"), arrow(last, "color1"), dot(last, 5, "fill1"),
        s("g", { class: "grip", "data-drag": "tip" }, dot(start, 14, "clear"), dot(start, 6, "knob")));
    },
    /** Return the hands of a query and a key, and the angle from the key to the query. @param {Hand} q @param {Hand} k */
    hands(q, k) {
      const tip = (/** @type {Hand} */ { length, angle }, by = 1.9) => [by * length * Math.cos(angle), by * length * Math.sin(angle)];
      const between = (((q.angle - k.angle) % (2 * Math.PI)) + 2 * Math.PI) % (2 * Math.PI), r = 0.7;
      const from = tip({ length: r, angle: k.angle }, 1), to = tip({ length: r, angle: q.angle }, 1);
      const arc = `M${place(from)}A${r * unit} ${r * unit} 0 ${between > Math.PI ? 1 : 0} 0 ${place(to)}`;
      const middle = tip({ length: r + 0.35, angle: k.angle + between / 2 }, 1);
      return picture(width, width, "The pair of the query, blue, and of the key, orange, with the angle between them",
        axes(), s("circle", { class: "dial", cx: center, cy: center, r: Math.min(2.4 * unit, center - 1) }),
        s("path", { class: "line color2", "stroke-width": 3, d: arc }),
        s("text", { x: center + middle[0] * unit, y: center - middle[1] * unit + 4, "text-anchor": "middle" }, `${Math.round((between * 180) / Math.PI)}°`),
        arrow(tip(q), "color0"), arrow(tip(k), "color1"), dot(tip(q), 5, "fill0"), dot(tip(k), 5, "fill1"));
    },
  };
}
