/* Why, steps 4 and 5: waves, and what it means to add them. */

import { partsOf, sinusoids, speeds } from "../added.js";
import { chart } from "../chart.js";
import { drags, whole } from "../drag.js";
import { facts, fixed, h, picture, s, short, widthIn } from "../draw.js";
import { sub, sup } from "../markup.js";
import { DISTANCE, MOST_START, positionLine, START } from "../position-line.js";
import { dot } from "../rope.js";
import { THETA } from "../rope-fields.js";
import { vectorOf } from "../words.js";
import { withLine } from "./why-line.js";
import { FIRST, MOST_BITS, PLACES } from "./why-places.js";

/** @typedef {import("./why.js").Step} Step */

const LEFT = 58, RIGHT = 14; // as in charts

/** @type {Step} */
export const waves = {
  name: "Sinusoids",
  title: "Sinusoids",
  fields: [FIRST, THETA],
  text: () => [
    ["Make the jumps smooth: a wave in place of each bit. Two numbers of the vector share a frequency f", sub("i"), ", in radians per position: the sine and the cosine of m · f", sub("i"), ". The picture shows the sines, with f", sub("i"), " on the left. The first waves are fast, the last are slow."],
    ["Now neighbors have similar vectors. The dot product of two of them, p", sub("m"), " · p", sub("n"), ", depends on the distance m − n alone: move m, and the curve moves with it, with the same shape. With few waves, as here, it falls and rises again; many waves together fall more steadily."],
    ["A number called theta sets how slow the slow waves are: a larger theta makes them slower. The original transformer adds these vectors to the words, with theta = 10,000."],
  ],
  formula: () => [
    ["p", sub("m,2i"), " = sin(m · f", sub("i"), "),  p", sub("m,2i+1"), " = cos(m · f", sub("i"), "),  f", sub("i"), " = theta", sup("−2i/d")],
    ["p", sub("m"), " · p", sub("n"), " = Σ", sub("i"), " cos((m − n) · f", sub("i"), ")"],
  ],
  paper: "RoFormer, equation 4",
  task: "drag the line of position m through the waves. Then make theta smaller: the slow waves become faster.",
  open(place, _below, change) {
    const rows = h("div"), near = h("div");
    place.append(rows, near);
    drags(rows, ({ at }) => change({ first: whole(((at.x - LEFT) / (widthIn(rows, 560) - LEFT - RIGHT)) * (PLACES - 1), 0, PLACES - 1) }));
    return ({ first, theta }) => {
      rows.replaceChildren(waveRows(first, theta, widthIn(rows, 560)));
      const here = sinusoids(first, 2 * MOST_BITS, theta);
      near.replaceChildren(chart({
        x: { min: 0, max: PLACES - 1, label: "position n" }, y: { min: -MOST_BITS, max: MOST_BITS, label: "pₘ · pₙ" }, width: widthIn(near, 560),
        lines: [{ name: "p_m · p_n", points: Array.from({ length: 4 * PLACES - 3 }, (_, n) => [n / 4, dot(here, sinusoids(n / 4, 2 * MOST_BITS, theta))]) }],
        down: [{ at: first, name: `m = ${first}` }],
        alt: `The dot product of the vectors of position ${first} and of every position n: largest at n = ${first}, smaller on both sides in the same way`,
      }));
    };
  },
};

/** @param {number} chosen @param {number} theta @param {number} width */
function waveRows(chosen, theta, width) {
  const left = LEFT, across = width - left - RIGHT, row = 34, height = MOST_BITS * row + 20;
  const drawing = picture(width, height, `Sines of six frequencies along positions 0 to 63; position ${chosen} is marked`);
  const x = (/** @type {number} */ m) => left + (m / (PLACES - 1)) * across;
  speeds(2 * MOST_BITS, theta).forEach((f, i) => {
    const middle = i * row + row / 2, y = (/** @type {number} */ m) => middle - 12 * Math.sin(m * f);
    const d = Array.from({ length: 8 * PLACES - 7 }, (_, j) => `${x(j / 8).toFixed(1)} ${y(j / 8).toFixed(1)}`).join("L");
    drawing.append(
      s("text", { x: 0, y: middle + 4 }, String(Number(f.toPrecision(2)))),
      s("path", { class: `line color${i % 2 ? 2 : 0}`, d: `M${d}` }),
      s("circle", { class: "fill1", cx: x(chosen), cy: y(chosen), r: 4 }));
  });
  return withLine(drawing, x(chosen), height, `m = ${chosen}`, width, left);
}

/** @type {Step} */
export const adding = {
  name: "Adding mixes",
  title: "Adding mixes meaning with place",
  fields: [START, DISTANCE, THETA],
  text: () => [
    ["The vector of a place is added to the vector of a word, here to q and to k. So a dot product of two such sums has four parts: word with word, word with place, place with word, and place with place."],
    ["Only the last part is about the distance. The two in the middle compare a word with a place, and they change when both words move on together. The same two words at the same distance get another score in another part of the text."],
    ["So what a model learns about two words at one place does not hold at another. Can the score depend on the words and their distance, and on nothing else?"],
  ],
  formula: () => [
    ["(q + p", sub("m"), ") · (k + p", sub("n"), ") ="],
    ["q · k + q · p", sub("n"), " + p", sub("m"), " · k + p", sub("m"), " · p", sub("n")],
  ],
  paper: "RoFormer, equation 6, shortened: in the paper, positions are added before q and k are made",
  task: "drag the handle ↔, so that both words move and their distance stays. Watch the sum.",
  open(place, _below, change) {
    const line = positionLine(change, { query: "bites", key: "dog" }), lines = h("div"), result = h("div");
    place.append(line.element, result, lines);
    const size = 16, q = vectorOf("bites", "query of", size), k = vectorOf("dog", "key of", size);
    return (state) => {
      const { start, distance, theta } = state;
      const all = Array.from({ length: MOST_START + 1 }, (_, n) => partsOf(q, k, sinusoids(n + distance, size, theta), sinusoids(n, size, theta)));
      const { words, wordPlace, placeWord, places } = all[start];
      line.show(state);
      result.replaceChildren(facts([
        ["q · k", fixed(words, 2)], ["q · pₙ", fixed(wordPlace, 2)], ["pₘ · k", fixed(placeWord, 2)], ["pₘ · pₙ", fixed(places, 2)],
        ["score (their sum)", fixed(words + wordPlace + placeWord + places, 2)],
      ]));
      lines.replaceChildren(partsChart(all, start, distance, widthIn(lines, 560)));
    };
  },
};

/** @param {ReturnType<typeof partsOf>[]} all @param {number} start @param {number} distance @param {number} width */
function partsChart(all, start, distance, width) {
  /** @param {(parts: ReturnType<typeof partsOf>) => number} part @returns {[number, number][]} */
  const points = (part) => all.map((each, n) => [n, part(each)]);
  const lines = [
    { name: "q · k, word with word", look: 0, points: points((each) => each.words) },
    { name: "pₘ · pₙ, place with place", look: 2, points: points((each) => each.places) },
    { name: "the two mixed parts, added", look: 3, points: points((each) => each.wordPlace + each.placeWord) },
    { name: "score", look: 4, points: points((each) => each.words + each.wordPlace + each.placeWord + each.places) },
  ];
  const values = lines.flatMap((line) => line.points.map(([, y]) => y));
  return chart({
    x: { min: 0, max: MOST_START, label: "position of the key (the distance stays)" }, y: { min: Math.min(...values) - 1, max: Math.max(...values) + 1, label: "part of the score" },
    lines, down: [{ at: start, name: `n = ${start}` }], width,
    alt: `Parts of the score at distance ${distance} as both words move: word with word and place with place stay, the mixed parts change`,
  });
}
