/* Why, steps 1 to 3: no positions, integers, bits. */

import { bits, integer } from "../added.js";
import { chart } from "../chart.js";
import { drags, whole } from "../drag.js";
import { facts, fixed, h, picture, s, short, widthIn } from "../draw.js";
import { choiceField, numberField, textField } from "../fields.js";
import { sub, sup } from "../markup.js";
import { dot } from "../rope.js";
import { distanceOf, likeness, plus, softmax, unused, vectorOf, weighted, allWordsOf, brief } from "../words.js";
import { withLine } from "./why-line.js";

/** @typedef {import("../fields.js").State} State */
/** @typedef {import("./why.js").Step} Step */

export const MOST_BITS = 6, PLACES = 2 ** MOST_BITS;
const SIZE = 8, ROW = 30, MOST = 24; // words

const SENTENCE = textField({ key: "sentence", label: "sentence", initial: "the dog bites the man", most: 120 });
const QUERY = numberField({ key: "query", label: "which word asks (its number)", initial: 3, min: 1, max: MOST, whole: true });
const POSITION = numberField({ key: "position", label: "position m", initial: 3, min: 0, max: 100000, whole: true, log: true });
const DIVIDED = choiceField({ key: "divided", label: "what is added", initial: "no", choices: [["no", "m"], ["yes", "m / 1,000"]] });
export const FIRST = numberField({ key: "first", label: "position m", initial: 7, min: 0, max: PLACES - 1, whole: true });
const OTHER = numberField({ key: "other", label: "position n, to compare", initial: 8, min: 0, max: PLACES - 1, whole: true });

/** @type {Step} */
export const bag = {
  name: "Bag of words",
  title: "A bag of words",
  fields: [SENTENCE, QUERY],
  within: (state) => ({ ...state, query: Math.min(state.query, Math.max(1, allWordsOf(state.sentence).length)) }),
  text: () => [
    ["A word is a list of numbers, a vector. Attention makes three vectors of it: a ", h("em", {}, "query"), " q (what the word looks for), a ", h("em", {}, "key"), " k (what it offers) and a ", h("em", {}, "value"), " v (what it says). The dot product of one word's query and another word's key is their score. Softmax turns scores into weights with the sum 1, and the output is the weighted sum of values."],
    ["No part of this knows where a word is. Move the words: each weight moves with its word, and the output does not change. “The dog bites the man” and “the man bites the dog” are the same to it: a bag of words."],
  ],
  formula: () => [
    ["a", sub("m,n"), " = softmax", sub("n"), "(q", sub("m"), " · k", sub("n"), " / √d)"],
    ["o", sub("m"), " = Σ", sub("n"), " a", sub("m,n"), " v", sub("n")],
    ["m: the word that asks;  n: each word;  d: numbers of q"],
  ],
  paper: "RoFormer, equation 2",
  task: "swap two words, drag a word up or down, or type another order, and watch the weights and the output.",
  open(place, _below, change) {
    const rows = h("div"), result = h("div");
    /** @type {string[]} */
    let words = [];
    /** @type {string[]} */
    let others = []; // beyond those that are used
    let query = 0, held = 0;
    /** @param {number} from @param {number} to */
    const move = (from, to) => {
      const order = words.map((_, i) => i);
      order.splice(to, 0, ...order.splice(from, 1));
      change({ sentence: [...order.map((i) => words[i]), ...others].join(" "), query: order.indexOf(query) + 1 });
      words = order.map((i) => words[i]);
      query = order.indexOf(query);
    };
    drags(rows, ({ part, at, begins }) => {
      if (begins) held = Number(part);
      const to = whole(at.y / ROW - 0.5, 0, words.length - 1);
      if (to !== held) move(held, to);
      held = to;
    });
    const reverse = h("button", { type: "button", click: () => change({ sentence: [...[...words].reverse(), ...others].join(" "), query: words.length - query }) }, "Reverse the order");
    const swap = h("button", { type: "button", click: () => change({ sentence: [...swapped(words), ...others].join(" "), query: placeAfterSwap(query, words.length) + 1 }) });
    const left = h("p", { class: "note", role: "status" });
    place.append(h("p", { class: "buttons" }, swap, reverse), left, rows, result);
    return (state) => {
      const all = allWordsOf(state.sentence);
      [words, others] = [all.slice(0, MOST), all.slice(MOST)];
      left.textContent = unused(state.sentence, MOST);
      left.hidden = !others.length;
      query = Math.min(state.query, words.length) - 1;
      swap.hidden = words.length < 3 || words[1] === words[words.length - 1];
      reverse.hidden = words.length < 2;
      swap.textContent = swap.hidden ? "" : `Swap “${brief(words[1])}” and “${brief(words[words.length - 1])}”`;
      if (!words.length) {
        rows.replaceChildren(h("p", { class: "mistake", role: "alert" }, "Type at least one word."));
        return result.replaceChildren();
      }
      const q = vectorOf(words[query], "query of", SIZE);
      const weights = softmax(words.map((word) => dot(q, vectorOf(word, "key of", SIZE)) / Math.sqrt(SIZE)));
      const found = weighted(weights, words.map((word) => vectorOf(word, "value of", SIZE)));
      rows.replaceChildren(weightRows(words, weights, query, widthIn(rows, 560)));
      result.replaceChildren(
        facts([[`output of “${brief(words[query])}”, its first 4 numbers`, found.slice(0, 4).map((each) => fixed(each, 3)).join("  ")]]),
        h("p", { class: "note" }, "Here each vector is made from the letters of its word. A trained model learns its own; the order has no effect there either. (A causal mask, as in GPT, hides later words, and so gives some order.)"));
    };
  },
};

/** Return the words with the second and the last in each other's place. @param {string[]} words */
function swapped(words) {
  return words.map((_, i) => words[placeAfterSwap(i, words.length)]);
}

/** @param {number} i @param {number} count */
function placeAfterSwap(i, count) {
  if (i === 1) return count - 1;
  return i === count - 1 ? 1 : i;
}

/** @param {string[]} words @param {number[]} weights @param {number} query @param {number} width */
function weightRows(words, weights, query, width) {
  const left = Math.min(130, width / 3), most = Math.max(...weights);
  const label = `Weights of ${words.map((word, i) => `${word} ${fixed(weights[i], 2)}`).join(", ")}`;
  return picture(width, words.length * ROW, label, ...words.map((word, i) => {
    const shown = brief(word), y = i * ROW;
    return s("g", {},
      s("g", { class: "grip", "data-drag": i }, // not the bar: a finger there scrolls
        s("rect", { class: "clear", x: 0, y, width: left, height: ROW }),
        s("text", { x: 0, y: y + 19, class: i === query ? "big strong" : "big" }, `↕ ${shown}`)),
      s("rect", { class: i === query ? "fill0" : "fill1", x: left, y: y + 5, width: Math.max(1, (weights[i] / most) * (width - left - 96)), height: ROW - 10 }),
      s("text", { x: left + (weights[i] / most) * (width - left - 96) + 6, y: y + 19 }, `${fixed(weights[i], 3)}${i === query ? " (query)" : ""}`));
  }));
}

/** @type {Step} */
export const integers = {
  name: "Integers",
  title: "Integers",
  fields: [POSITION, DIVIDED],
  text: () => [
    ["So the vectors must contain the position. First idea: add the position m to every number of the word's vector."],
    ["Positions grow, and the numbers of a word are about 1. At position 100 the word is a thin edge on a large block: “dog” and “cat” are almost the same vector."],
    ["Dividing by a fixed length, such as 1,000, keeps the block small. But then neighbors are almost the same: their blocks differ by 0.001. And in a text of 100,000 words, the block is large again."],
  ],
  formula: () => [["x", sub("m"), " + p", sub("m"), ",   p", sub("m"), " = (m, m, …, m),   or that divided by 1,000"]],
  paper: "RoFormer, equation 3, with a p of our own",
  task: "move the position, and compare the two words. Then divide by 1,000: what does one more position change?",
  open(place) {
    const bars = h("div"), result = h("div");
    place.append(bars, result);
    return (state) => {
      const length = state.divided === "yes" ? 1000 : 1, m = state.position;
      const [dog, cat] = ["dog", "cat"].map((word) => vectorOf(word, "x", SIZE)), p = integer(m, SIZE, length);
      bars.replaceChildren(blocks({ dog, cat }, m / length, widthIn(bars, 560)));
      result.replaceChildren(facts([
        ["similarity of “dog” and “cat”, both at m", fixed(likeness(plus(dog, p), plus(cat, p)), 4)],
        ["the same without positions", fixed(likeness(dog, cat), 4)],
        ["change by one more position, in lengths of “dog”", short(distanceOf(p, integer(m + 1, SIZE, length)) / Math.sqrt(dot(dog, dog)))],
      ]), h("p", { class: "note" }, "In color: the numbers of the word; a negative one hangs below the edge of the block. In gray: what is added. Similarity is the cosine of the angle between two vectors: 1 means the same direction."));
    };
  },
};

/** @param {Record<string, number[]>} words @param {number} added @param {number} width */
function blocks(words, added, width) {
  const height = 190, all = Object.values(words).flat().map((each) => each + added);
  const low = Math.min(0, ...all), high = Math.max(added, ...all), y = (/** @type {number} */ v) => 12 + ((high - v) / (high - low)) * (height - 40);
  const each = width / 2, step = (each - 24) / SIZE;
  const drawing = picture(width, height, `The numbers of two words with ${short(added)} added to each`);
  Object.entries(words).forEach(([word, x], w) => {
    x.forEach((value, i) => {
      const left = w * each + 12 + i * step, top = y(Math.max(value + added, added)), deep = y(Math.min(value + added, added));
      drawing.append(
        s("rect", { class: "block", x: left, y: y(Math.max(added, 0)), width: step - 4, height: Math.abs(y(0) - y(added)) }),
        s("rect", { class: `fill${w}`, x: left, y: top, width: step - 4, height: Math.max(deep - top, 0.5) }));
    });
    drawing.append(s("text", { x: w * each + each / 2, y: height - 6, "text-anchor": "middle" }, `“${word}”`));
  });
  drawing.append(s("path", { class: "quiet", d: `M0 ${y(0)}H${width}` }));
  return drawing;
}

/** @type {Step} */
export const inBits = {
  name: "Bits",
  title: "Bits",
  fields: [FIRST, OTHER],
  text: () => [
    ["Second idea: write the position in binary. Add bit 0 to the first number of the word's vector, bit 1 to the second, and so on. A bit is 0 or 1 at any position, so it never drowns a word."],
    ["Each row of the picture is one bit, along the positions. Bit 0 changes at every position, bit 1 at every second, bit 2 at every fourth. Fast bits tell neighbors apart; slow bits tell far from near. This idea stays to the end."],
    ["But bits jump. From 7 to 8, four of them change; from 0 to 32, only one. The number of bits that differ does not follow the distance. The next step keeps fast and slow, and loses the jumps."],
  ],
  formula: () => [["p", sub("m,i"), " = ⌊m / 2", sup("i"), "⌋ mod 2"]],
  paper: "RoFormer, equation 3, with a p of our own",
  task: "drag the line of position m past 7 and 8, and watch how many bits differ from those of n.",
  open(place, _below, change) {
    const rows = h("div"), differ = h("div"), result = h("div");
    place.append(rows, result, differ);
    drags(rows, ({ at }) => change({ first: whole(((at.x - 44) / (widthIn(rows, 560) - 48)) * PLACES - 0.5, 0, PLACES - 1) }));
    return ({ first, other }) => {
      const column = bits(first, MOST_BITS), compared = bits(other, MOST_BITS);
      const differences = Array.from({ length: PLACES }, (_, m) => countOfDifferent(bits(m, MOST_BITS), compared));
      rows.replaceChildren(bitRows(first, widthIn(rows, 560)));
      result.replaceChildren(facts([
        ["m in binary", [...column].reverse().join("")], ["n in binary", [...compared].reverse().join("")],
        ["distance", String(Math.abs(first - other))], ["bits that differ", String(differences[first])],
      ]));
      differ.replaceChildren(chart({
        x: { min: 0, max: PLACES - 1, label: "position that is compared with n" }, y: { min: 0, max: MOST_BITS, label: "bits that differ" }, width: widthIn(differ, 560),
        lines: [{ name: "bits that differ from those of n", points: differences.map((d, m) => [m, d]) }], down: [{ at: other, name: `n = ${other}` }, ...(first === other ? [] : [{ at: first, name: `m = ${first}` }])],
        alt: `How many bits differ from those of position ${other}: it jumps from position to position`,
      }));
    };
  },
};

/** @param {number[]} a @param {number[]} b */
const countOfDifferent = (a, b) => a.filter((each, i) => each !== b[i]).length;

/** @param {number} chosen @param {number} width */
function bitRows(chosen, width) {
  const left = 44, step = (width - left - 4) / PLACES, height = MOST_BITS * 20 + 22, drawing = picture(width, height, `Six bits of the positions 0 to 63; position ${chosen} is marked`);
  for (let i = 0; i < MOST_BITS; i += 1) {
    const y = i * 20;
    let d = "";
    for (let m = 0; m < PLACES; m += 1) if (bits(m, MOST_BITS)[i]) d += `M${(left + m * step).toFixed(2)} ${y + 3}h${step.toFixed(2)}v14h${-step.toFixed(2)}z`;
    drawing.append(s("text", { x: 0, y: y + 14 }, `bit ${i}`), s("path", { class: `fill${i % 2 ? 2 : 0}`, d }));
  }
  return withLine(drawing, left + (chosen + 0.5) * step, height, `m = ${chosen}`, width, left);
}
