/* The scores of one attention head, as sums over its rotary pairs. */
"use strict";

/** @typedef {{q: string, k: string, pairs: number, rest: number, cap: number | null, sink: number | null, visible: string}} Answer
      q and k: float32 in base64, a row for each token; two columns for each pair, the slowest first, then what does not
      turn. q has the score's factor in it. visible: a bit for each query and key. */
/** @typedef {{q: Float32Array, k: Float32Array, count: number, width: number, pairs: number, cap: number | null,
      sink: number | null, visible: Uint8Array}} Head  visible: 1 where query i sees key j, at i * count + j */
/** @typedef {{from: number, to: number}} Band  pairs that are left out, both ends too; none if to < from */

export const NONE = { from: 0, to: -1 };

/** Return the bytes of a text in base64. @param {string} text */
export function bytes(text) {
  const read = atob(text), found = new Uint8Array(read.length);
  for (let i = 0; i < read.length; i += 1) found[i] = read.charCodeAt(i);
  return found;
}

/** Return a head as numbers. @param {Answer} answer @param {number} count of tokens @returns {Head} */
export function unpackHead({ q, k, pairs, rest, cap, sink, visible }, count) {
  const bits = bytes(visible), seen = new Uint8Array(count * count);
  for (let at = 0; at < seen.length; at += 1) seen[at] = (bits[at >> 3] >> (7 - (at & 7))) & 1;
  return {
    q: new Float32Array(bytes(q).buffer), k: new Float32Array(bytes(k).buffer),
    count, width: 2 * pairs + rest, pairs, cap, sink, visible: seen,
  };
}

/** Return what each pair adds to the score of query i and key j, and last what does not turn. @param {Head} head @param {number} i @param {number} j */
export function parts({ q, k, width, pairs }, i, j) {
  const found = /** @type {number[]} */ (new Array(pairs + 1).fill(0));
  for (let c = 0; c < width; c += 1) found[Math.min(c >> 1, pairs)] += q[i * width + c] * k[j * width + c];
  return found;
}

/** Return the scores before cap and softmax, without the pairs of a band; NaN where a query does not see a key.
    @param {Head} head @param {Band} [band] */
export function scores({ q, k, count, width, visible }, band = NONE) {
  const found = new Float32Array(count * count).fill(NaN), left = without(q, width, band), right = without(k, width, band), size = left.length / count;
  for (let i = 0; i < count; i += 1) {
    for (let j = 0; j < count; j += 1) {
      if (!visible[i * count + j]) continue;
      let a = i * size, b = j * size, even = 0, odd = 0; // two sums are faster than one
      for (const end = a + size - 1; a < end; a += 2, b += 2) {
        even += left[a] * right[b];
        odd += left[a + 1] * right[b + 1];
      }
      found[i * count + j] = even + odd + (size % 2 ? left[a] * right[b] : 0);
    }
  }
  return found;
}

/** Return rows without the columns of a band, as float64: faster to add up. @param {Float32Array} rows @param {number} width @param {Band} band */
function without(rows, width, { from, to }) {
  const [end, next] = to < from ? [width, width] : [2 * from, 2 * to + 2], size = width - next + end, count = rows.length / width;
  const found = new Float64Array(count * size);
  for (let i = 0; i < count; i += 1) {
    found.set(rows.subarray(i * width, i * width + end), i * size);
    found.set(rows.subarray(i * width + next, (i + 1) * width), i * size + end);
  }
  return found;
}

/** Return a score as the softmax takes it. @param {number} score @param {number | null} cap */
export const capped = (score, cap) => (cap === null ? score : cap * Math.tanh(score / cap));

/** Return the weights of these scores, a row for each query. @param {Head} head @param {Float32Array} scores @returns {Float32Array[]} */
export function weights({ count, cap, sink }, scores) {
  return Array.from({ length: count }, (_, i) => {
    const row = scores.slice(i * count, (i + 1) * count);
    let most = sink ?? -Infinity, total = 0;
    for (let j = 0; j < count; j += 1) {
      if (cap !== null) row[j] = capped(row[j], cap);
      if (row[j] > most) most = row[j];
    }
    if (sink !== null) total = Math.exp(sink - most);
    for (let j = 0; j < count; j += 1) {
      row[j] = Math.exp(row[j] - most);
      if (row[j] >= 0) total += row[j];
    }
    for (let j = 0; j < count; j += 1) row[j] /= total;
    return row;
  });
}

/** Return (distance, mean score) over all queries that see a key at the distance. @param {Head} head @param {Float32Array} scores */
export function meanByDistance({ count }, scores) {
  const sums = new Float64Array(2 * count - 1), seen = new Uint32Array(2 * count - 1);
  for (let i = 0, at = 0; i < count; i += 1) {
    for (let j = 0; j < count; j += 1, at += 1) {
      if (Number.isNaN(scores[at])) continue;
      sums[i - j + count - 1] += scores[at];
      seen[i - j + count - 1] += 1;
    }
  }
  const all = Array.from(sums, (sum, at) => /** @type {[number, number]} */ ([at - count + 1, sum / seen[at]]));
  return all.filter(([, mean]) => !Number.isNaN(mean));
}

/** Return the mean weight at a distance and at the first token, and how many queries have most weight at the distance.
    @param {Float32Array[]} weights @param {[number, number]} queries @param {number} distance */
export function summary(weights, [first, end], distance) {
  const rows = weights.slice(first, end), near = (/** @type {number} */ i) => rows[i][first + i - distance] || 0;
  const mean = (/** @type {(row: Float32Array, i: number) => number} */ of) => rows.reduce((sum, row, i) => sum + of(row, i), 0) / rows.length;
  const most = rows.filter((row, i) => near(i) > 0 && row.every((each) => !(each > near(i)))).length;
  return { there: mean((_, i) => near(i)), first: mean((row) => row[0] || 0), most, queries: rows.length };
}

/** Return the query and the key of the largest weight that is not at the first token.
    @param {Float32Array[]} weights @param {[number, number]} queries @returns {[number, number]} */
export function strongest(weights, [first, end]) {
  let found = /** @type {[number, number]} */ ([end - 1, 0]), most = 0;
  for (let i = first; i < end; i += 1) {
    for (let j = 1; j < weights[i].length; j += 1) if (weights[i][j] > most) [found, most] = [[i, j], weights[i][j]];
  }
  return found;
}

/** Return neighbors added up, so that at most so many groups remain. @param {number[]} values @param {number} most
    @returns {{from: number, to: number, value: number}[]} */
export function grouped(values, most) {
  const size = Math.ceil(values.length / most);
  return Array.from({ length: Math.ceil(values.length / size) }, (_, i) => {
    const inside = values.slice(i * size, (i + 1) * size);
    return { from: i * size, to: i * size + inside.length - 1, value: inside.reduce((sum, each) => sum + each, 0) };
  });
}
