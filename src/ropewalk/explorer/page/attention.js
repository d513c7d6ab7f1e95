/* Attention maps: how they arrive, the mean of a layer's heads, and the difference of two. */

/** @typedef {{rows: string[], columns: string[], weights: string[][]}} Packed  a text for each head of each layer */
/** @typedef {{rows: string[], columns: string[], weights: number[][][][]}} Maps  by layer, head, row, column; the last head is the mean */
/** @typedef {{error?: string, translation?: string | null, maps?: Record<string, Packed>}} Attended */

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const WORTH = Object.fromEntries([...DIGITS].map((digit, i) => [digit, i]));

/** Return weights (S, T) from text: two digits in base 64 each, in thousandths above -2.048.
    Python's pack_weights writes it. @param {string} text @param {number} columns @returns {number[][]} */
export function unpack(text, columns) {
  const count = text.length / 2 / columns;
  return Array.from({ length: count }, (_, r) => Array.from({ length: columns }, (_, c) => {
    const at = 2 * (r * columns + c);
    return (64 * WORTH[text[at]] + WORTH[text[at + 1]] - 2048) / 1000;
  }));
}

/** Return the maps of a site, with the mean of each layer's heads as its last head. @param {Packed} packed @returns {Maps} */
export function unpacked({ rows, columns, weights }) {
  const layers = weights.map((layer) => layer.map((text) => unpack(text, columns.length)));
  return { rows, columns, weights: layers.map((heads) => [...heads, mean(heads)]) };
}

/** @param {number[][][]} heads */
function mean(heads) {
  return heads[0].map((row, r) => row.map((_, c) => heads.reduce((sum, head) => sum + head[r][c], 0) / heads.length));
}

/** Return one matrix minus another of the same size. @param {number[][]} more @param {number[][]} less */
export function difference(more, less) {
  return more.map((row, r) => row.map((each, c) => each - less[r][c]));
}

/** Return whether two maps are about the same tokens. @param {Maps} a @param {Maps} b */
export function comparable(a, b) {
  const same = (/** @type {string[]} */ x, /** @type {string[]} */ y) => x.length === y.length && x.every((each, i) => each === y[i]);
  return same(a.rows, b.rows) && same(a.columns, b.columns);
}

/** Return a token with the mark of a word's beginning as a small dot. @param {string} token */
export const plain = (token) => token.replace(/^[▁Ġ]/, "·");
