/* Positive numbers with 192 bits after the point, as BigInt: enough that angles stay exact. */

export const BITS = 192n;
export const ONE = 1n << BITS;
const SCALE = 2 ** 192;

/** Return a positive float64 as fixed point, exactly if it is at least 2^-139. @param {number} x */
export function toFixed(x) {
  const exponent = Math.max(-1022, Math.floor(Math.log2(x))) - 52;
  const mantissa = BigInt(Math.round(x / 2 ** exponent));
  const shift = BITS + BigInt(exponent);
  return shift >= 0n ? mantissa << shift : mantissa >> -shift;
}

/** Return a fixed-point number as float64, correctly rounded. @param {bigint} x */
export function toNumber(x) {
  return Number(x) / SCALE;
}

/** Return the product of two fixed-point numbers. @param {bigint} a @param {bigint} b */
export function times(a, b) {
  return (a * b) >> BITS;
}

/** Return base^(-1/n) in fixed point, by Newton's method on 1 - base · x^n. @param {number} base @param {number} n */
export function inverseRoot(base, n) {
  const exact = toFixed(base), degree = BigInt(n);
  let x = toFixed(base ** (-1 / n));
  for (let step = 0; step < 4; step += 1) x += (x * (ONE - times(exact, power(x, degree)))) / degree >> BITS;
  return x;
}

/** Return x^n. @param {bigint} x @param {bigint} n */
function power(x, n) {
  let found = ONE;
  for (let base = x; n > 0n; n >>= 1n, base = times(base, base)) if (n & 1n) found = times(found, base);
  return found;
}

/** Return 1, x, x², … @param {bigint} x @param {number} count @returns {bigint[]} */
export function powers(x, count) {
  const found = [ONE];
  while (found.length < count) found.push(times(found[found.length - 1], x));
  return found;
}
