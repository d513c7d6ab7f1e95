/* Small pieces of formulas. */

import { h } from "./draw.js";

/** Return a subscript. @param {string} text */
export const sub = (text) => h("sub", {}, text);

/** Return a superscript. @param {string} text */
export const sup = (text) => h("sup", {}, text);

/** Return a fraction of a sentence in bold. @param {string} text */
export const strong = (text) => h("strong", {}, text);

const POWER = String.raw`\^(?:\((?:[^()]|\([^()]*\))*\)|[\w-]+)`;
const FORMULA = new RegExp(String.raw`((?<![\w])(?:[A-Za-zζ]_\w(?!\w)(?:${POWER})?|[A-Za-zζ]+${POWER}))`, "u");

/** Return words with what is written as x_i, x^2 or theta^(-2i/R) in subscripts and superscripts. @param {string} text
    @returns {import("./draw.js").Child[]} */
export function typeset(text) {
  return text.split(FORMULA).map((part, i) => {
    if (i % 2 === 0) return part;
    const [, name, below, above] = /^([^_^]+)(?:_(\w))?(?:\^(.+))?$/u.exec(part) ?? ["", part];
    const raised = above?.replace(/^\((.*)\)$/, "$1").replaceAll("-", "−");
    return h("span", { class: "math" }, name.replace("theta", "θ"), ...(below ? [sub(below)] : []), ...(raised ? [sup(raised)] : []));
  });
}
