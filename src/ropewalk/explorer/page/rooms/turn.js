/* Turn: one rope, and a position to drag; every pair is a hand. */

import { controls } from "../controls.js";
import { facts, fixed, h, outside, picture, s, short, widthIn } from "../draw.js";
import { numberField } from "../fields.js";
import { replace } from "../replace.js";
import { angle, cosSin, norm, pairs, rope, rotate } from "../rope.js";
import { FACTOR, headDimField, MOST_POSITION, ORIGINAL, PAIRING, RULE, specOf, THETA } from "../rope-fields.js";

/** @typedef {import("../fields.js").State} State */
/** @typedef {import("../rope.js").Rope} Rope */
/** @typedef {import("../rope.js").Spec} Spec */

const POSITION = numberField({ key: "position", label: "position", initial: 12, min: 0, max: MOST_POSITION - 1, whole: true, log: true });
const PAIR = numberField({ key: "pair", label: "pair in detail", initial: 0, min: 0, max: 127, whole: true });
const FIELDS = [POSITION, headDimField(16), THETA, PAIRING, RULE, FACTOR, ORIGINAL, PAIR];
const RADIUS = 36, CELL = 88, WORDS = 36, MOST_WIDTH = 8 * CELL;

/** @type {import("../main.js").Room} */
export const turn = {
  id: "turn",
  title: "Turn",
  fields: FIELDS,
  open(place, change) {
    const form = controls(FIELDS, change);
    const hands = h("div"), detail = h("div"), vector = h("div");
    place.append(
      h("p", {}, "The dimensions of a head form pairs. Pair i turns by p · f", h("sub", {}, "i"), " at position p, with f", h("sub", {}, "i"), " = theta", h("sup", {}, "−2i/R"), ", where R is the number of dimensions that rotate. Move the position, and choose a pair."),
      form.element,
      h("div", { class: "panels" }, h("section", {}, h("h2", {}, "Every pair is a hand"), hands), h("section", {}, h("h2", {}, "One pair"), detail)),
      h("section", {}, h("h2", {}, "A vector before and after"), vector),
    );
    return (state) => {
      const spec = specOf(state), chosen = Math.min(state.pair, spec.rotaryDim / 2 - 1);
      form.show({ ...state, pair: chosen });
      form.only(state.rule === "none" ? FIELDS.filter((each) => each !== FACTOR && each !== ORIGINAL) : FIELDS);
      const found = ropeOrNothing(spec, state, [hands, detail, vector]);
      hands.replaceChildren(allHands(state, found, chosen, change, widthIn(hands, MOST_WIDTH)));
      detail.replaceChildren(...onePair(state, spec, found, chosen));
      replace(vector, beforeAndAfter(state, spec, found, chosen, vector));
    };
  },
};

/** Return the rope; what was drawn for another one goes if there is none. @param {Spec} spec @param {State} state @param {HTMLElement[]} places */
function ropeOrNothing(spec, { position }, places) {
  try {
    return rope(spec, position + 1);
  } catch (error) {
    for (const place of places) place.replaceChildren();
    throw error;
  }
}

/** @param {State} state @param {Rope} found @param {number} chosen @param {import("../main.js").Change} change @param {number} width */
function allHands({ position }, { turns, frequencies }, chosen, change, width) {
  const columns = Math.min(turns.length, Math.floor(width / CELL)), rows = Math.ceil(turns.length / columns);
  const label = `${turns.length} pairs at position ${position.toLocaleString("en")}, the fastest first`;
  const drawing = picture(columns * CELL, rows * (CELL + WORDS), label);
  turns.forEach((each, i) => {
    const x = (i % columns) * CELL + CELL / 2, y = Math.floor(i / columns) * (CELL + WORDS) + CELL / 2;
    const at = angle(position, each);
    drawing.append(
      s("g", { class: i === chosen ? "chosen" : undefined, click: () => change({ pair: i }) },
        s("circle", { cx: x, cy: y, r: RADIUS, class: "dial" }),
        s("path", { class: "quiet", d: `M${x} ${y}h${RADIUS}` }),
        s("path", { class: `line color${i === chosen ? 1 : 0}`, "stroke-width": 3, d: `M${x} ${y}L${x + RADIUS * Math.cos(at)} ${y - RADIUS * Math.sin(at)}` }),
        s("text", { x, y: y + CELL / 2 + 8, "text-anchor": "middle" }, `pair ${i}`),
        s("text", { x, y: y + CELL / 2 + 24, "text-anchor": "middle" }, short((2 * Math.PI) / frequencies[i]))),
    );
  });
  return h("figure", {}, drawing, h("figcaption", {}, "Below each hand: its pair, and the positions that a full turn takes (the wavelength). Angles count from the right, counterclockwise."));
}

/** @param {State} state @param {Spec} spec @param {Rope} found @param {number} chosen */
function onePair({ position }, spec, found, chosen) {
  const at = angle(position, found.turns[chosen]), [a, b] = pairs(spec.rotaryDim, spec.pairing)[chosen];
  const f = found.frequencies[chosen], { cos, sin } = cosSin(position, found);
  return [
    facts([
      ["pair", `${chosen}: dimensions ${a} and ${b}`],
      ["frequency", `${short(f, 4)} radians per position`],
      ["wavelength", `${short((2 * Math.PI) / f, 4)} positions`],
      ["turns so far", short((position * f) / (2 * Math.PI), 4)],
      ["angle", `${fixed(at, 4)} radians`],
      ["cos", fixed(cos[chosen], 6)],
      ["sin", fixed(sin[chosen], 6)],
      ["amplitude", short(found.amplitude, 4)],
    ]),
    h("p", { class: "formula" }, "(a, b) → (a cos φ − b sin φ, b cos φ + a sin φ),  φ = p · f"),
    h("p", { class: "note" }, "RoFormer, equation 34: ", outside("https://arxiv.org/abs/2104.09864", "arXiv 2104.09864"), "."),
    h("p", { class: "note" }, "The angle is computed as a 64-bit fraction of a turn, so it is exact at any position. A float32 product of position and frequency is off by up to 0.7 in the cosine near 10 million."),
  ];
}

/** @param {State} state @param {Spec} spec @param {Rope} found @param {number} chosen @param {HTMLElement} place */
function beforeAndAfter({ position }, spec, found, chosen, place) {
  const before = Array.from({ length: spec.headDim }, (_, i) => Math.round(10 * Math.sin(1 + i * i)) / 10);
  const after = rotate(before, cosSin(position, found), spec.pairing);
  const pair = pairs(spec.rotaryDim, spec.pairing)[chosen], marked = new Set(pair), all = before.map((_, i) => i);
  // Where not all columns have room, the chosen pair stands first, so that both its dimensions are seen.
  const order = widthIn(place, Infinity) < 64 * spec.headDim ? [...pair, ...all.filter((i) => !marked.has(i))] : all;
  /** @param {string} name @param {number[]} x */
  const row = (name, x) => h("tr", {}, h("th", { scope: "row" }, name), ...order.map((i) => h("td", { class: marked.has(i) ? "chosen" : undefined }, fixed(x[i], 2))));
  const head = h("tr", {}, h("th", { scope: "col" }, "dimension"), ...order.map((i) => h("th", { scope: "col", class: marked.has(i) ? "chosen" : undefined }, String(i))));
  return h("div", {},
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "A vector before and after rotation" }, h("table", {}, head, row("before", before), row("after", after))),
    facts([["norm before", fixed(norm(before), 6)], ["norm after", fixed(norm(after), 6)]]),
    h("p", { class: "note" }, found.amplitude === 1 ? "A rotation keeps the norm of every pair, and so of the vector." : "This rule multiplies cos and sin by the amplitude, so norms grow by it."));
}
