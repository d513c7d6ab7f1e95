/* Numbers as they are in float32, bfloat16 and float16: rounded to the nearest, ties to even. */

/** @typedef {"float32" | "bfloat16" | "float16"} Dtype */

const single = new Float32Array(1), word = new Uint32Array(single.buffer);

/** Return x in a dtype, by way of float32 as in torch. @param {number} x @param {Dtype} dtype */
export function roundTo(x, dtype) {
  const near = Math.fround(x);
  if (dtype === "float32" || !Number.isFinite(near)) return near;
  return dtype === "bfloat16" ? toBfloat16(near) : toFloat16(near);
}

/** Return a float32 with the first 8 of its 24 significant bits. @param {number} x */
function toBfloat16(x) {
  single[0] = x;
  word[0] = (word[0] + 0x7fff + ((word[0] >>> 16) & 1)) & 0xffff0000;
  return single[0];
}

/** Return a float32 with 11 significant bits, at most 65504, else infinite. @param {number} x */
function toFloat16(x) {
  if (x === 0) return x;
  const unit = 2 ** (Math.max(Math.floor(Math.log2(Math.abs(x))), -14) - 10), count = x / unit;
  let near = Math.round(count);
  if (Math.abs(count - Math.trunc(count)) === 0.5 && near % 2 !== 0) near -= 1;
  const found = near * unit;
  return Math.abs(found) > 65504 ? Math.sign(found) * Infinity : found;
}
