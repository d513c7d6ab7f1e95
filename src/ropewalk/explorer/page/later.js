/* Answers that arrive later: only the newest question counts. */

/** @typedef {{key: string, value: any, error: string}} Found  value is null if there is an error */

/** Return a function that gets the answer to a question once the question has stayed the same for
    a moment, and passes it to `done`. Answers to earlier questions are dropped. A question that
    failed is asked again when it is put again.
    @param {(found: Found) => void} done @param {number} [wait] in milliseconds */
export function latest(done, wait = 300) {
  let current = "", timer = 0, asked = false;
  return (/** @type {string} */ key, /** @type {() => Promise<any>} */ get) => {
    if (key === current) return;
    const first = !asked;
    current = key;
    asked = true;
    clearTimeout(timer);
    timer = window.setTimeout(async () => {
      const found = await get().then(
        (value) => ({ key, value, error: "" }),
        (error) => ({ key, value: null, error: error instanceof Error ? error.message : String(error) }),
      );
      if (key !== current) return;
      done(found); // which may put the same question: it must not be asked again for ever
      if (found.error && key === current) current = "";
    }, first ? 0 : wait);
  };
}
