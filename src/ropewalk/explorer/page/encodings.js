/* Numbers of encodings by position and by distance. */

/** @typedef {{name: string, call: string, paragraphs: string[], arguments: [string, string][]}} Told */
/** @typedef {{light: string, dark: string, alt: string}} Drawn  two SVG files, and the alternative text */
/** @typedef {{told: Told[], parameters: number, vectors: number[][] | null, heads: number[][][] | null,
      pictures: {vectors: Drawn | null, similarity: Drawn | null}}} Numbers */

/** Return the cosine similarity of all pairs of rows; null if a row is 0. @param {number[][]} vectors @returns {(number | null)[][]} */
export function similarity(vectors) {
  const norms = vectors.map((row) => Math.hypot(...row));
  return vectors.map((a, i) => vectors.map((b, j) => {
    const both = norms[i] * norms[j];
    return both === 0 ? null : a.reduce((sum, each, c) => sum + each * b[c], 0) / both;
  }));
}

/** Return a matrix without what a query cannot see: the keys after it. @param {(number | null)[][]} matrix @param {boolean} causal */
export function visible(matrix, causal) {
  return causal ? matrix.map((row, i) => row.map((each, j) => (j > i ? null : each))) : matrix;
}

/** Return (distance, value) for each key of a query; a key after the query has a negative distance.
    @param {(number | null)[][]} matrix @param {number} query @returns {[number, number][]} */
export function byDistance(matrix, query) {
  return matrix[query].map((value, key) => /** @type {[number, number]} */ ([query - key, value ?? NaN])).reverse();
}

/** Return whether values depend on the distance alone. @param {(number | null)[][]} matrix @param {boolean} causal */
export function isRelative(matrix, causal) {
  const within = 1e-3 * Math.max(1e-9, ...matrix.flat().map((each) => Math.abs(each ?? 0)));
  const count = matrix.length, last = matrix[count - 1];
  return matrix.every((row, i) => row.every((value, j) => {
    if (causal && j > i) return true;
    const same = j > i ? matrix[0][j - i] : last[count - 1 - (i - j)];
    return value !== null && same !== null && Math.abs(value - same) <= within;
  }));
}
