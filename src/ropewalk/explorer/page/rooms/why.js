/* Why: from a bag of words to rotation, in nine steps of one screen each. */

import { controls } from "../controls.js";
import { h, outside } from "../draw.js";
import { numberField, writeState } from "../fields.js";
import { strong } from "../markup.js";
import { adding, waves } from "./why-adding.js";
import { bag, inBits, integers } from "./why-places.js";
import { distance, manyPairs, onePair, rotating } from "./why-rotating.js";

/** @typedef {import("../draw.js").Child} Child */
/** @typedef {import("../fields.js").Field} Field */
/** @typedef {import("../fields.js").State} State */
/** @typedef {import("../main.js").Change} Change */
/** @typedef {{name: string, title: string, fields: Field[], text: () => Child[][], formula: () => Child[][], paper: string, task: string,
      within?: (state: State) => State, open: (place: HTMLElement, below: HTMLElement, change: Change) => (state: State) => void}} Step
      name: a short title. text: paragraphs. formula: lines. paper: which equations. task: what to move.
      within: the state with numbers that exist. below: a place under the text. */

/** @type {Step[]} */
const STEPS = [bag, integers, inBits, waves, adding, rotating, onePair, manyPairs, distance];

const STEP = numberField({ key: "step", label: "step", initial: 1, min: 1, max: STEPS.length, whole: true });
const FIELDS = [...new Set([STEP, ...STEPS.flatMap((step) => step.fields)])];

/** @type {import("../main.js").Room} */
export const why = {
  id: "why",
  title: "Why",
  fields: FIELDS,
  open(place, change) {
    const steps = STEPS.map(({ name }, i) => link(String(i + 1), name));
    const before = link("←", ""), after = link("→", ""), inside = h("div");
    place.append(
      h("nav", { "aria-label": "Steps", class: "steps" }, h("ol", {}, ...steps.map((each) => h("li", {}, each)))),
      inside,
      h("nav", { "aria-label": "Step before and after", class: "ends" }, before, after),
    );
    let opened = 0;
    /** @type {(state: State) => void} */
    let draw = () => {};
    return (state) => {
      steps.forEach((each, i) => point(each, state, i + 1));
      point(before, state, state.step - 1);
      if (state.step < STEPS.length) point(after, state, state.step + 1);
      else lead(after, "#turn", "Turn, the next room");
      if (state.step !== opened) {
        draw = enter(inside, state.step, change);
        if (opened) inside.querySelector("h2")?.focus(); // as a new page would be read from its top
        opened = state.step;
      }
      draw(state);
    };
  },
};

/** @param {string} number @param {string} title */
function link(number, title) {
  return h("a", {}, h("span", { class: "number" }, number), " ", h("span", { class: "title" }, title));
}

/** Let a link lead to a step with the state as it is. @param {HTMLElement} link @param {State} state @param {number} step */
function point(link, state, step) {
  link.hidden = step < 1 || step > STEPS.length;
  if (link.hidden) return;
  const query = writeState(FIELDS, { ...state, step });
  if (step === state.step) link.setAttribute("aria-current", "step");
  else link.removeAttribute("aria-current");
  lead(link, `#why${query && `?${query}`}`, STEPS[step - 1].name);
}

/** @param {HTMLElement} link @param {string} address @param {string} words */
function lead(link, address, words) {
  link.hidden = false;
  link.setAttribute("href", address);
  const title = link.querySelector(".title");
  if (title && title.textContent !== words) title.textContent = words;
}

/** Build a step, and return the function that draws a state in it. @param {HTMLElement} place @param {number} number @param {Change} change */
function enter(place, number, change) {
  const step = STEPS[number - 1], form = controls(step.fields, change), moves = h("div"), below = h("section", { class: "below" });
  place.replaceChildren(
    h("h2", { tabindex: -1 }, `${number}. ${step.title}`),
    h("div", { class: "step" },
      h("section", { class: "text" },
        ...step.text().map((words) => h("p", {}, ...words)),
        h("div", { class: "formula" }, ...step.formula().map((line) => h("div", {}, ...line))),
        h("p", { class: "note" }, `${step.paper}: `, outside("https://arxiv.org/abs/2104.09864", "arXiv 2104.09864"), "."),
        h("p", { class: "task" }, strong("Try it: "), step.task)),
      h("section", { class: "moves" }, form.element, moves),
      below));
  const draw = step.open(moves, below, change);
  return (/** @type {State} */ state) => {
    form.show(step.within ? step.within(state) : state);
    draw(state);
  };
}
