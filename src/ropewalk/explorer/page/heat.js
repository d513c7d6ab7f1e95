/* A map of numbers as shades: orange below 0, the page's color at 0, blue above. */

import { picture, s } from "./draw.js";
import { memo } from "./memo.js";
import { brief } from "./words.js";

/** @typedef {ArrayLike<number | null>[]} Matrix  a row for each query; a number that is null or NaN stays blank */
/** @typedef {{values: Matrix, most: number, label: string, width: number, rows?: string[], columns?: string[],
      root?: boolean, smallest?: number, mark?: [number, number], pick?: (row: number, column: number) => void}} Heat
      most: the number with the full shade. rows, columns: words; by default positions from 0. root: shades grow with the
      square root, so that small weights are seen. smallest: least side of a cell in pixels. pick: called for a cell that
      is clicked. */

const LETTER = 6.8, LARGEST = 30, GAP = 14;

/** Links of images that were drawn, for each matrix by what else they depend on. */
const links = memo((/** @type {Matrix} */ _values) => /** @type {Map<string, string>} */ (new Map()));
/** @type {{above: string, below: string} | null} */
let known = null;

// Shades are pixels of an image, so a change of the scheme must draw them again.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  known = null;
  window.dispatchEvent(new Event("resize"));
});

function colors() {
  const look = getComputedStyle(document.documentElement);
  return known ??= { above: look.getPropertyValue("--above"), below: look.getPropertyValue("--below") };
}

/** Return the map as a drawing. @param {Heat} given */
export function heatMap({ values, most, label, width, rows, columns, root = false, smallest = 0, mark, pick }) {
  const down = values.length, across = values[0].length;
  const left = rows ? 10 + LETTER * longest(rows) : 30, top = columns ? 10 + LETTER * longest(columns) : 20;
  const side = Math.max(smallest, Math.min(LARGEST, (width - left - 1) / across));
  const drawing = picture(left + across * side + 1, top + down * side + 1, label,
    s("image", { href: shades(values, most, root), x: left, y: top, width: across * side, height: down * side, preserveAspectRatio: "none", class: "shades" }),
    s("rect", { class: "grid", x: left, y: top, width: across * side, height: down * side }),
    ...names(down, side, rows).map(([i, text]) => s("text", { x: left - 5, y: top + (i + 0.5) * side + 4, "text-anchor": "end" }, text)),
    ...names(across, side, columns).map(([i, text]) => columnName(left + (i + 0.5) * side, top - 5, text, columns !== undefined)),
  );
  if (mark && mark[0] < down && mark[1] < across) {
    drawing.append(
      s("path", { class: "quiet", d: `M${left} ${top + (mark[0] + 0.5) * side}h${across * side}M${left + (mark[1] + 0.5) * side} ${top}v${down * side}` }),
      s("rect", { class: "axis", "stroke-width": 2, x: left + mark[1] * side, y: top + mark[0] * side, width: side, height: side }),
    );
  }
  if (pick) {
    drawing.classList.add("picked");
    drawing.addEventListener("click", (event) => {
      const frame = drawing.getBoundingClientRect(), by = frame.width / (left + across * side + 1);
      const row = Math.floor((event.clientY - frame.top - top * by) / (side * by)), column = Math.floor((event.clientX - frame.left - left * by) / (side * by));
      if (row >= 0 && column >= 0 && row < down && column < across) pick(row, column);
    });
  }
  return drawing;
}

/** @param {string[]} words */
const longest = (words) => Math.max(...words.map((each) => brief(each).length));

/** Return the names that have room, with their places. @param {number} count @param {number} side @param {string[]} [words]
    @returns {[number, string][]} */
function names(count, side, words) {
  const every = words && side >= 11 ? 1 : nice(GAP / side, words ? 1 : 2);
  return Array.from({ length: Math.ceil(count / every) }, (_, i) => [i * every, words ? brief(words[i * every]) : String(i * every)]);
}

/** @param {number} least @param {number} more */
function nice(least, more) {
  return [1, 2, 4, 8, 16, 32, 64].find((each) => each >= least * more) ?? 64;
}

/** @param {number} x @param {number} y @param {string} text @param {boolean} upward */
function columnName(x, y, text, upward) {
  return upward ? s("text", { x: x + 4, y, transform: `rotate(-90 ${x + 4} ${y})` }, text) : s("text", { x, y, "text-anchor": "middle" }, text);
}

/** Return the link of an image with one pixel for each number. @param {Matrix} values @param {number} most @param {boolean} root */
export function shades(values, most, root) {
  const drawn = links(values), key = `${most} ${root} ${colors().above}`;
  const link = drawn.get(key) ?? painted(values, most, root).toDataURL();
  drawn.set(key, link);
  return link;
}

/** Return a canvas with one pixel for each number. @param {Matrix} values @param {number} most @param {boolean} root */
export function painted(values, most, root) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [values[0].length, values.length];
  const paper = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
  const image = paper.createImageData(canvas.width, canvas.height), pixels = new DataView(image.data.buffer);
  const { above, below } = colors(), [up, down] = [above, below].map((color) => parseInt(color.trim().slice(1), 16) * 256);
  values.forEach((row, y) => {
    for (let x = 0; x < row.length; x += 1) {
      const value = row[x];
      if (!value) continue; // 0, null and NaN stay blank
      const strength = Math.min(1, Math.abs(value) / (most || 1));
      pixels.setUint32(4 * (y * row.length + x), (value < 0 ? down : up) + Math.round(255 * (root ? Math.sqrt(strength) : strength)));
    }
  });
  paper.putImageData(image, 0, 0);
  return canvas;
}

/** Return the largest absolute value. @param {(number | null)[][]} values */
export function largest(values) {
  return values.reduce((most, row) => row.reduce((/** @type {number} */ found, each) => Math.max(found, Math.abs(each ?? 0)), most), 0);
}
