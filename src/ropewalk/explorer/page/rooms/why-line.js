/* A line through a drawing, at a position that can be dragged. */

import { s } from "../draw.js";

/** Add a line that can be dragged. @param {SVGElement} drawing @param {number} x @param {number} height @param {string} name @param {number} width @param {number} left */
export function withLine(drawing, x, height, name, width, left) {
  drawing.append(
    s("path", { class: "line color1", "stroke-width": 2, d: `M${x} 0V${height - 18}` }),
    s("text", { x: Math.min(Math.max(x, left + 20), width - 22), y: height - 4, "text-anchor": "middle", class: "strong" }, name),
    s("rect", { class: "clear grip across", "data-drag": "line", x: left, y: 0, width: width - left, height }));
  return drawing;
}
