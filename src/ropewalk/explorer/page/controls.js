/* Controls of a room, one for each field; keyboards and screen readers use them as they use any form. */

import { h } from "./draw.js";
import { mistake } from "./fields.js";

/** @typedef {import("./fields.js").Field} Field */
/** @typedef {import("./fields.js").NumberField} NumberField */
/** @typedef {import("./fields.js").State} State */
/** @typedef {import("./main.js").Change} Change */

const STEPS = 1000; // of a logarithmic slider

/** Return a form with a control for each field, and a function that shows a state in it.
    @param {Field[]} fields @param {Change} change */
export function controls(fields, change) {
  const made = fields.map((field) => control(field, change));
  return {
    element: h("form", { class: "controls", submit: (/** @type {Event} */ event) => event.preventDefault() }, ...made.map((each) => each.element)),
    /** @param {State} state */
    show(state) {
      made.forEach((each, i) => each.show(state[fields[i].key]));
    },
    /** Hide the controls that have no effect now. @param {Field[]} used */
    only(used) {
      made.forEach((each, i) => { each.element.hidden = !used.includes(fields[i]); });
    },
  };
}

/** Return a form whose fields and limits change: it is made again when they do. Its values are numbers. @param {Change} change */
export function fitted(change) {
  const element = h("div");
  let made = "", form = controls([], change);
  return {
    element,
    /** @param {Field[]} fields @param {State} state */
    show(fields, state) {
      const key = JSON.stringify(fields);
      if (key !== made) {
        made = key;
        form = controls(fields, (part) => change(Object.fromEntries(Object.entries(part).map(([name, value]) => [name, Number(value)]))));
        element.replaceChildren(form.element);
      }
      form.show(Object.fromEntries(fields.map((field) => [field.key, withinField(field, state[field.key])])));
    },
  };
}

/** Return the value that a field shows: the last one if it has not this one. @param {Field} field @param {number} value */
function withinField(field, value) {
  if (field.kind === "number") return Math.min(value, field.max);
  const known = field.kind === "choice" ? field.choices.map(([name]) => name) : [];
  return known.includes(String(value)) ? String(value) : known.at(-1);
}

/** Return the control of one field. @param {Field} field @param {Change} change
    @returns {{element: HTMLElement, show: (value: any) => void}} */
export function control(field, change) {
  if (field.kind === "number") return numberControl(field, change);
  const id = `field-${field.key}`;
  if (field.kind === "choice") {
    const options = field.choices.map(([value, words]) => h("option", { value }, words));
    const select = /** @type {HTMLSelectElement} */ (
      h("select", { id, change: () => change({ [field.key]: select.value }) }, ...options)
    );
    return { element: labeled(field.label, id, select), show: (value) => { select.value = value; } };
  }
  const box = /** @type {HTMLInputElement} */ (
    h(field.rows ? "textarea" : "input", {
      id, rows: field.rows, maxlength: field.most, autocomplete: "off", spellcheck: "false",
      input: () => change({ [field.key]: box.value }),
    })
  );
  return { element: labeled(field.label, id, box), show: (value) => { if (box.value !== value) box.value = value; } };
}

/** A slider, and a box for the exact number. @param {NumberField} field @param {Change} change */
function numberControl(field, change) {
  const id = `field-${field.key}`;
  const wrong = h("p", { class: "mistake", id: `${id}-mistake`, role: "alert", hidden: true });
  const box = /** @type {HTMLInputElement} */ (
    h("input", { id, type: "text", inputmode: "decimal", class: "number", autocomplete: "off", "aria-describedby": wrong.id, change: () => accept(box.value) })
  );
  const slider = /** @type {HTMLInputElement} */ (
    h("input", {
      type: "range", "aria-label": `${field.label}, slider`, ...span(field),
      input: () => change({ [field.key]: moved(field, value, Number(slider.value)) }),
    })
  );
  const name = h("label", { for: id }, field.label);
  let value = field.initial;
  /** @param {string} text */
  function accept(text) {
    // Commas separate groups of three digits; "2,5" is a mistake, and not 25.
    const plain = /^\d{1,3}(,\d{3})+(\.\d+)?$/.test(text.trim()) ? text.replaceAll(",", "") : text;
    const problem = mistake(field, plain);
    wrong.textContent = problem && `${problem}.`;
    wrong.hidden = !problem;
    box.setAttribute("aria-invalid", String(problem !== ""));
    if (!problem) change({ [field.key]: Number(plain) });
  }
  return {
    element: h("div", { class: "control" }, name, h("div", { class: "pair" }, slider, box), wrong),
    /** @param {number} shown */
    show(shown) {
      value = shown;
      slider.value = String(toSlider(field, value));
      const named = field.names?.[value - field.min];
      if (named) name.textContent = `${field.label}: ${named}`;
      slider.setAttribute("aria-valuetext", `${value.toLocaleString("en")} ${named ?? field.unit ?? ""}`.trim());
      if (document.activeElement !== box) {
        box.value = value.toLocaleString("en", { maximumFractionDigits: 6 });
        wrong.hidden = true;
        box.setAttribute("aria-invalid", "false");
      }
    },
  };
}

/** @param {string} label @param {string} id @param {HTMLElement} input */
function labeled(label, id, input) {
  return h("div", { class: "control" }, h("label", { for: id }, label), input);
}

/** @param {NumberField} field */
function span(field) {
  if (field.log) return { min: 0, max: STEPS, step: 1 };
  return { min: field.min, max: field.max, step: field.step ?? (field.whole ? 1 : (field.max - field.min) / STEPS) };
}

/* A logarithmic slider that begins at 0 has 0 at its left end. */
/** @param {NumberField} field */
const least = (field) => Math.max(field.min, field.whole ? 1 : 1e-9);

/** @param {NumberField} field @param {number} at */
export function fromSlider(field, at) {
  if (!field.log) return at;
  if (at <= 0) return field.min;
  if (at >= STEPS) return field.max;
  const low = Math.log(least(field)), high = Math.log(field.max);
  const value = Math.exp(low + ((high - low) * at) / STEPS);
  return field.whole ? Math.round(value) : Number(value.toPrecision(4));
}

/** Return the value after a slider has moved: another one, although small whole numbers have many
    steps of a logarithmic slider. @param {NumberField} field @param {number} value @param {number} at */
function moved(field, value, at) {
  const next = fromSlider(field, at);
  return next === value && field.whole ? value + Math.sign(at - toSlider(field, value)) : next;
}

/** @param {NumberField} field @param {number} value */
export function toSlider(field, value) {
  if (!field.log) return value;
  if (value <= least(field)) return value <= field.min ? 0 : 1;
  return Math.round((STEPS * Math.log(value / least(field))) / Math.log(field.max / least(field)));
}
