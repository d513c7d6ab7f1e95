/* Questions to the Python behind the page; the exported page has none. */

import { SERVED } from "./served.js";

export { SERVED };

/** Return the answer to a question. Rejects with a message for the reader.
    @param {string} name @param {Record<string, any>} question @returns {Promise<any>} */
export async function ask(name, question) {
  if (!SERVED) return stored(name, question);
  let response;
  try {
    response = await fetch(`api/${name}`, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question),
    });
  } catch {
    throw new Error("ropewalk explore does not answer; has it been stopped?");
  }
  const answer = await response.json().catch(() => ({ error: `the answer has status ${response.status}` }));
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** The run whose answers an exported page has. */
export const STORED = "stored";

/** Return an answer that was written when the page was made. @param {string} name @param {Record<string, any>} question */
async function stored(name, question) {
  if (name === "given") return { run: STORED };
  if (name === "run" || name === "model") return data(name);
  if (name === "attention") return data(`attention-${question.example + 1}`);
  if (name === "head") return data(`head-${question.layer}-${question.head}`);
  throw new Error("This needs Python: run ropewalk explore");
}

/** Return data that was written when the page was made: a script that sets window.ropewalkData, because
    a page that is opened from a folder may fetch nothing. @param {string} name @returns {Promise<any>} */
export function data(name) {
  return new Promise((resolve, reject) => {
    const held = /** @type {any} */ (window), script = document.createElement("script");
    script.src = `data/${name}.js`;
    script.onload = () => { // comes right after the script has run, before any other
      script.remove();
      resolve(held.ropewalkData);
      delete held.ropewalkData;
    };
    script.onerror = () => reject(new Error(`data/${name}.js is missing on this host`));
    document.head.append(script);
  });
}
