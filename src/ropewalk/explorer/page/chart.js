/* A chart of lines over one horizontal axis, linear or logarithmic, as SVG. */

import { h, picture, s, short } from "./draw.js";

/** @typedef {{name: string, points: [number, number][], look?: number, limit?: boolean, thin?: boolean}} Line
      look: the number of its color and dashes. limit: no line of numbers, but what they are compared with. Points that are not finite leave a gap. */
/** @typedef {{at: number, name: string}} Mark */
/** @typedef {{min: number, max: number, log?: boolean, label: string}} Axis */

const HEIGHT = 320, LEFT = 58, RIGHT = 14, TOP = 14, BOTTOM = 42;
const DASHES = ["", "7 4", "2 4", "9 4 2 4", "12 3", "5 2", "1 3 5 3"];
export const COLORS = 7; // as many as dashes: a line has its own of each

/** Return a chart with its legend. alt: what a reader who does not see it should know.
    @param {{x: Axis, y: Axis, lines: Line[], across?: Mark[], down?: Mark[], alt: string, width?: number}} given
    across, down: horizontal and vertical lines. width: as `widthIn` returns it for the place. */
export function chart({ x, y, lines, across = [], down = [], alt, width = 560 }) {
  const right = scale(x, LEFT, width - RIGHT), up = scale(y, HEIGHT - BOTTOM, TOP);
  const drawing = picture(width, HEIGHT, alt, ...grid(x, y, right, up, width));
  for (const { at, name } of across.filter((each) => inside(y, each.at))) {
    drawing.append(
      s("path", { class: "quiet", "stroke-dasharray": "3 3", d: `M${LEFT} ${up(at)}H${width - RIGHT}` }),
      s("text", { x: LEFT + 5, y: up(at) - 4 }, name),
    );
  }
  for (const [i, { at, name }] of down.filter((each) => inside(x, each.at)).entries()) {
    const after = right(at) < width - 150;
    drawing.append(
      s("path", { class: "quiet", "stroke-dasharray": "3 3", d: `M${right(at)} ${TOP}V${HEIGHT - BOTTOM}` }),
      s("text", { x: right(at) + (after ? 5 : -5), y: TOP + 10 + 14 * i, "text-anchor": after ? "start" : "end" }, name),
    );
  }
  for (const [i, line] of lines.entries()) {
    drawing.append(s("path", { class: `line ${look(line, i)}`, "stroke-width": line.thin ? 1.3 : 2.5, "stroke-dasharray": dashes(line, i), d: path(line, x, y, right, up) }));
  }
  const names = lines.map((line, i) => key(line, i));
  return h("figure", {}, drawing, ...(lines.length > 1 ? [h("ul", { class: "legend" }, ...names)] : []));
}

/** Return the place of a value on an axis between two ends. @param {Axis} axis @param {number} from @param {number} to */
export function scale({ min, max, log }, from, to) {
  const by = log ? Math.log : (/** @type {number} */ v) => v;
  return (/** @type {number} */ value) => from + ((by(value) - by(min)) / (by(max) - by(min) || 1)) * (to - from);
}

/** Return at most so many round numbers on an axis. @param {Axis} axis @param {number} [most] */
export function ticks({ min, max, log }, most = 7) {
  if (log) {
    const low = Math.ceil(Math.log10(min) - 1e-9), high = Math.floor(Math.log10(max) + 1e-9);
    const every = Math.max(1, Math.ceil((high - low + 1) / most));
    return Array.from({ length: Math.floor((high - low) / every) + 1 }, (_, i) => 10 ** (low + i * every));
  }
  const rough = (max - min) / most, size = 10 ** Math.floor(Math.log10(rough));
  const step = size * ([1, 2, 5, 10].find((each) => each * size >= rough) ?? 10);
  const first = Math.ceil(min / step - 1e-9);
  return Array.from({ length: Math.max(0, Math.floor(max / step + 1e-9) - first + 1) }, (_, i) => (first + i) * step);
}

/** @param {number} at */
const tick = (at) => (at >= 1e4 && at < 1e12 ? at.toLocaleString("en", { notation: "compact" }) : short(at));

/** @param {Axis} x @param {Axis} y @param {(v: number) => number} right @param {(v: number) => number} up @param {number} width */
function grid(x, y, right, up, width) {
  const columns = ticks(x, Math.max(3, Math.floor(width / 80))).flatMap((at) => [
    s("path", { class: "grid", d: `M${right(at)} ${TOP}V${HEIGHT - BOTTOM}` }),
    s("text", { x: right(at), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, tick(at)),
  ]);
  const rows = ticks(y).flatMap((at) => [
    s("path", { class: "grid", d: `M${LEFT} ${up(at)}H${width - RIGHT}` }),
    s("text", { x: LEFT - 6, y: up(at) + 4, "text-anchor": "end" }, tick(at)),
  ]);
  const middle = (TOP + HEIGHT - BOTTOM) / 2;
  return [
    ...columns, ...rows,
    s("text", { x: (LEFT + width - RIGHT) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, x.label),
    s("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, y.label),
  ];
}

/** @param {Line} line @param {Axis} x @param {Axis} y @param {(v: number) => number} right @param {(v: number) => number} up */
function path({ points }, x, y, right, up) {
  let d = "", pen = "M";
  for (const [a, b] of points) {
    if (!Number.isFinite(b) || (y.log && b <= 0) || (x.log && a <= 0)) { pen = "M"; continue; }
    const height = up(Math.min(Math.max(b, y.min), y.max));
    d += `${pen}${right(a).toFixed(1)} ${height.toFixed(1)}`;
    pen = "L";
  }
  return d;
}

/** @param {Line} line @param {number} i */
const look = (line, i) => (line.limit ? "quiet" : `color${(line.look ?? i) % COLORS}`);

/** @param {Line} line @param {number} i */
const dashes = (line, i) => (line.limit ? "3 3" : DASHES[(line.look ?? i) % DASHES.length]) || undefined;

/** @param {Line} line @param {number} i */
function key(line, i) {
  const stroke = s("path", { class: `line ${look(line, i)}`, "stroke-width": 3, "stroke-dasharray": dashes(line, i), d: "M0 5H36" });
  return h("li", {}, s("svg", { viewBox: "0 0 36 10", "aria-hidden": "true" }, stroke), line.name);
}

/** @param {Axis} axis @param {number} value */
const inside = ({ min, max }, value) => value >= min && value <= max;
