/* Results that are computed once for each object, as long as the object is in use. */

/** Return a function that computes `make(key)` once for each key. @template {object} K @template V
    @param {(key: K) => V} make @returns {(key: K) => V} */
export function memo(make) {
  /** @type {WeakMap<K, V>} */
  const held = new WeakMap();
  return (key) => {
    let found = held.get(key);
    if (found === undefined) held.set(key, found = make(key));
    return found;
  };
}
