/* Elements of HTML and SVG, from plain data. */

/** @typedef {Record<string, any>} Attributes  a function is a listener; false and undefined are left out */
/** @typedef {Node | string} Child */

/** Return an HTML element. @param {string} tag @param {Attributes} [attributes] @param {...Child} children @returns {HTMLElement} */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  dress(element, attributes);
  element.append(...children);
  return element;
}

/** Return an SVG element. @param {string} tag @param {Attributes} [attributes] @param {...Child} children @returns {SVGElement} */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  dress(element, attributes);
  element.append(...children);
  return element;
}

/** @param {Element} element @param {Attributes} attributes */
function dress(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined) element.setAttribute(name, String(value));
  }
}

/** Return the width for a drawing inside an element, so that its words are never scaled down.
    @param {HTMLElement} place @param {number} most */
export function widthIn(place, most) {
  return Math.max(240, Math.min(most, place.clientWidth || most));
}

/** Return a drawing that screen readers read as one image. @param {number} width @param {number} height @param {string} label @param {...Child} children */
export function picture(width, height, label, ...children) {
  return s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...children);
}

/** Return a number in few digits: 0.0001234 as 1.23e-4, 123456 as 123,456. @param {number} x @param {number} [digits] */
export function short(x, digits = 3) {
  if (!Number.isFinite(x)) return "∞";
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-3 || size >= 1e12)) return x.toExponential(digits - 1);
  if (size >= 100) return Math.round(x).toLocaleString("en");
  return String(Number(x.toPrecision(digits))).replace("-", "−");
}

/** Return a number with so many decimals and a true minus sign. @param {number} x @param {number} decimals */
export function fixed(x, decimals) {
  return x.toFixed(decimals).replace(/^-(?=.*[1-9])/, "−").replace(/^-/, "");
}

/** Return a row of names and values that the reader sees change. @param {[string, Child][]} facts */
export function facts(facts) {
  return h("dl", { class: "facts" }, ...facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** Return a link to a paper or page on another host, marked as such. @param {string} href @param {string} text */
export function outside(href, text) {
  return h("a", { href, rel: "noopener", class: "outside" }, text);
}
