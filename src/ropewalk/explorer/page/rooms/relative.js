/* Relative: two words of a sentence, and words that are inserted before or between them. */

import { chart } from "../chart.js";
import { controls } from "../controls.js";
import { fixed, h, outside, widthIn } from "../draw.js";
import { numberField, textField } from "../fields.js";
import { sub } from "../markup.js";
import { NAMES, placesOf, ROWS, scorer } from "../relative.js";
import { replace } from "../replace.js";
import { THETA } from "../rope-fields.js";
import { MOST_WORDS, unused, wordsOf } from "../words.js";

/** @typedef {import("../fields.js").State} State */
/** @typedef {import("../main.js").Change} Change */
/** @typedef {{query: number, key: number, words: string[], before: number, between: number}} Chosen */

const MOST_BEFORE = 600, MOST_BETWEEN = 64, SAME = 1e-6;

const SENTENCE = textField({ key: "sentence", label: "sentence", initial: "the old dog bites the man", most: 240 });
const QUERY = numberField({ key: "query", label: "number of the query", initial: 4, min: 1, max: MOST_WORDS, whole: true });
const KEY = numberField({ key: "key", label: "number of the key", initial: 3, min: 1, max: MOST_WORDS, whole: true });
const BEFORE = numberField({ key: "before", label: "words inserted before the sentence", initial: 20, min: 0, max: MOST_BEFORE, whole: true });
const BETWEEN = numberField({ key: "between", label: "words inserted between the two", initial: 0, min: 0, max: MOST_BETWEEN, whole: true });

/** @type {import("../main.js").Room} */
export const relative = {
  id: "relative",
  title: "Relative",
  fields: [SENTENCE, QUERY, KEY, BEFORE, BETWEEN, THETA],
  open(place, change) {
    const text = controls([SENTENCE], change), sliders = controls([BEFORE, BETWEEN, THETA], change);
    const left = h("p", { class: "note", role: "status" }), picks = h("div"), line = h("div"), scores = h("div"), charts = h("div", { class: "panels" });
    place.append(...introduction(), text.element, left, picks, sliders.element, line, scores, charts, ...notes());
    let shown = "", pair = "";
    /** @type {{name: string, score: (m: number, n: number) => number}[]} */
    let all = [];
    return (state) => {
      text.show(state);
      sliders.show(state);
      left.textContent = unused(state.sentence, MOST_WORDS);
      left.hidden = !left.textContent;
      const words = wordsOf(state.sentence), last = words.length - 1;
      const chosen = { words, query: Math.min(state.query - 1, last), key: Math.min(state.key - 1, last), before: state.before, between: state.between };
      if (shown !== words.join(" ") || !words.length) picks.replaceChildren(...picksOf(words, change)); // else the focus would get lost
      shown = words.join(" ");
      if (!words.length) return [line, scores, charts].forEach((each) => each.replaceChildren());
      press(picks, chosen);
      line.replaceChildren(sentenceOf(chosen));
      const [query, key] = [words[chosen.query], words[chosen.key]];
      if (pair !== `${query} ${key} ${state.theta}`) all = NAMES.map((name) => ({ name, score: scorer(name, query, key, state.theta) }));
      pair = `${query} ${key} ${state.theta}`;
      replace(scores, tableOf(chosen, all));
      charts.replaceChildren(...chartsOf(chosen, all, widthIn(charts, 1200)));
    };
  },
};

function introduction() {
  return [
    h("p", {}, "Type a sentence and pick two words. Then insert words before the sentence, or between the two. Before: both words move, and their distance stays. Between: the distance grows. Which scores change?"),
  ];
}

function notes() {
  return [
    h("div", { class: "formula" },
      h("div", {}, "rotary: (R", sub("m"), " W", sub("q"), " x) · (R", sub("n"), " W", sub("k"), " y) / √d"),
      h("div", {}, "sinusoidal, learned: (W", sub("q"), " (x + p", sub("m"), ")) · (W", sub("k"), " (y + p", sub("n"), ")) / √d")),
    h("p", { class: "note" }, "RoFormer, equations 16 and 3: ", outside("https://arxiv.org/abs/2104.09864", "arXiv 2104.09864"), `. Here x and y are made from the letters of the words, the matrices W are random, and the ${ROWS} learned vectors are as before training: d = 32, one head. A trained model has other numbers, and could learn matrices that ignore positions. These are scores of the first layer: in later layers, x and y contain what earlier layers took from other words.`),
  ];
}

/** Return a row of buttons for the query, and one for the key. @param {string[]} words @param {Change} change */
function picksOf(words, change) {
  if (!words.length) return [h("p", { class: "mistake", role: "alert" }, "Type at least one word.")];
  /** @param {string} field @param {string} legend */
  const row = (field, legend) => h("fieldset", { class: "words" }, h("legend", {}, legend),
    ...words.map((word, i) => h("button", { type: "button", "data-field": field, click: () => change({ [field]: i + 1 }) }, word)));
  return [row("query", "query: the word that asks"), row("key", "key: the word that is compared with it")];
}

/** @param {HTMLElement} picks @param {Chosen} chosen */
function press(picks, { query, key }) {
  picks.querySelectorAll("fieldset").forEach((row, r) => row.querySelectorAll("button").forEach((button, i) => {
    button.setAttribute("aria-pressed", String(i === (r === 0 ? query : key)));
  }));
}

/** Return the sentence with its positions and with the inserted words. @param {Chosen} chosen */
function sentenceOf({ words, query, key, before, between }) {
  const first = Math.min(query, key), later = Math.max(query, key);
  /** @param {number} count @param {number} from */
  const inserted = (count, from) => h("li", { class: "inserted" }, `${count} more`, h("small", {}, count === 1 ? String(from) : `${from}–${from + count - 1}`));
  const parts = before ? [inserted(before, 0)] : [];
  let position = before;
  words.forEach((word, i) => {
    if (between && i === later && first !== later) {
      parts.push(inserted(between, position));
      position += between;
    }
    const role = [i === query && "is-query", i === key && "is-key"].filter(Boolean).join(" ");
    const told = [i === query && "query", i === key && "key"].filter(Boolean).join(", ");
    parts.push(h("li", { class: role || undefined }, word, h("small", {}, told ? `${told} ${position}` : String(position))));
    position += 1;
  });
  return h("ol", { class: "sentence", "aria-label": "The sentence with its positions" }, ...parts);
}

/** @param {Chosen} chosen @param {{name: string, score: (m: number, n: number) => number}[]} all */
function tableOf({ query, key, before, between }, all) {
  const { was, is } = placesOf(query, key, before, between), moved = was.m !== is.m || was.n !== is.n;
  const rows = all.map(({ name, score }) => {
    const old = score(was.m, was.n), now = score(is.m, is.n), change = now - old;
    const number = (/** @type {number} */ x) => (Number.isFinite(x) ? fixed(x, 4) : "none");
    const words = Number.isNaN(now) ? `no vector from position ${ROWS} on` : !moved ? "nothing inserted" : Math.abs(change) < SAME ? "stays" : "changes";
    return h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: words === "stays" ? "chosen" : undefined }, words), h("td", {}, number(old)), h("td", {}, number(now)), h("td", {}, number(change)));
  });
  const head = ["encoding", "the score", "as typed", "now", "change"].map((name) => h("th", { scope: "col" }, name));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Scores" },
    h("p", {}, `The query is at ${is.m}, the key at ${is.n}: distance m − n = ${is.m - is.n}.`.replace("= -", "= −")),
    h("table", {}, h("tr", {}, ...head), ...rows));
}

/** @param {Chosen} chosen @param {{name: string, score: (m: number, n: number) => number}[]} all @param {number} width */
function chartsOf(chosen, all, width) {
  const each = width < 800 ? Math.min(width, 640) : (width - 32) / 2;
  const one = chosen.query === chosen.key ? " (the query is the key: nothing is between them)" : "";
  return [
    h("section", {}, h("h2", {}, "Words inserted before"), lines(chosen, all, "before", MOST_BEFORE, 3, each)),
    h("section", {}, h("h2", {}, `Words inserted between${one}`), lines(chosen, all, "between", MOST_BETWEEN, 1, each)),
  ];
}

/** @param {Chosen} chosen @param {{name: string, score: (m: number, n: number) => number}[]} all
    @param {"before" | "between"} where @param {number} most @param {number} step @param {number} width */
function lines(chosen, all, where, most, step, width) {
  const counts = Array.from({ length: most / step + 1 }, (_, i) => i * step);
  const found = all.map(({ name, score }, look) => ({
    name, look,
    points: counts.map((count) => {
      const { is } = placesOf(chosen.query, chosen.key, where === "before" ? count : chosen.before, where === "between" ? count : chosen.between);
      return /** @type {[number, number]} */ ([count, score(is.m, is.n)]);
    }),
  }));
  const values = found.flatMap((line) => line.points.map(([, y]) => y)).filter(Number.isFinite);
  const stays = where === "before" ? "rotary stays at one value, sinusoidal and learned change" : chosen.query === chosen.key ? "none changes" : "all three change";
  return chart({
    x: { min: 0, max: most, label: `words inserted ${where}` }, y: { min: Math.min(...values) - 0.5, max: Math.max(...values) + 0.5, label: "score" },
    lines: [...found].reverse().map((line) => ({ ...line, thin: line.name !== "rotary" })), down: [{ at: chosen[where], name: String(chosen[where]) }], width,
    alt: `Score by the number of words inserted ${where}: ${stays}`,
  });
}
