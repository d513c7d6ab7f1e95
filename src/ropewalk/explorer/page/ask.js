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
  if (name === "run") return data("run");
  if (name === "attention") return data(`attention-${question.example + 1}`);
  throw new Error("This needs Python: run ropewalk explore");
}

/** Return data that was written when the page was made. @param {string} name @returns {Promise<any>} */
export async function data(name) {
  const response = await fetch(`data/${name}.json`);
  if (!response.ok) throw new Error(`data/${name}.json is missing on this host`);
  return response.json();
}
