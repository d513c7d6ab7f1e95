/* Small pieces of formulas. */
"use strict";

import { h } from "./draw.js";

/** Return a subscript. @param {string} text */
export const sub = (text) => h("sub", {}, text);

/** Return a superscript. @param {string} text */
export const sup = (text) => h("sup", {}, text);

/** Return a fraction of a sentence in bold. @param {string} text */
export const strong = (text) => h("strong", {}, text);
