/* Encodings: each position encoding as shades and by distance, with what it says about itself. */

import { ask, data, SERVED } from "../ask.js";
import { chart } from "../chart.js";
import { controls } from "../controls.js";
import { facts, fixed, h, outside, short, widthIn } from "../draw.js";
import { byDistance, isRelative, similarity, visible } from "../encodings.js";
import { choiceField, numberField, textField } from "../fields.js";
import { heatMap, largest } from "../heat.js";
import { latest } from "../later.js";
import { typeset } from "../markup.js";
import { memo } from "../memo.js";
import { replace } from "../replace.js";

/** @typedef {import("../fields.js").State} State */
/** @typedef {import("../encodings.js").Numbers} Numbers */
/** @typedef {import("../encodings.js").Told} Told */
/** @typedef {import("../encodings.js").Drawn} Drawn */
/** @typedef {import("../main.js").Change} Change */

/* The matrices of an answer are the same for every query. */
const similarityOf = memo(similarity);
const earlierOnly = memo((/** @type {(number | null)[][]} */ matrix) => visible(matrix, true));
const USUAL = 32, HEADS = 4, SMALL = 260, WIDE = 620;
const ENCODING = textField({ key: "encoding", label: "encoding, with arguments as in rotary(theta=1e6)", initial: "rotary", most: 200 });
const LOOKS = choiceField({ key: "looks", label: "a query sees", initial: "back", choices: [["back", "keys before it (decoder)"], ["both", "all keys (encoder)"]] });
const LENGTH = numberField({ key: "length", label: "positions", initial: USUAL, min: 2, max: 96, whole: true });
const QUERY = numberField({ key: "query", label: "position of the query", initial: 24, min: 0, max: 95, whole: true });
const HEAD = numberField({ key: "head", label: "head", initial: 0, min: 0, max: 3, whole: true });
const FIELDS = [ENCODING, LOOKS, LENGTH, QUERY, HEAD];

/** @type {import("../main.js").Room} */
export const encodings = {
  id: "encodings",
  title: "Encodings",
  fields: FIELDS,
  open(place, change) {
    const form = controls(FIELDS, change), trouble = h("p", { class: "mistake", role: "alert", hidden: true });
    const list = h("div", { class: "choices", role: "group", "aria-label": "All encodings" }), told = h("div", {}, h("p", { "aria-busy": "true" }, "Computing …")), drawn = h("div", { class: "panels" });
    /** @type {State} */
    let last = {};
    /** @type {{key: string, value: Numbers | null, error: string}} */
    let known = { key: "", value: null, error: "" };
    const learn = latest((found) => { known = found; draw(last); });
    const learnNames = latest(({ value }) => {
      if (!value) return; // the answer about the encoding says why
      const all = /** @type {{name: string, summary: string}[]} */ (value);
      list.replaceChildren(...all.map(({ name, summary }) => h("button", { type: "button", title: plain(summary), click: () => change({ encoding: name }) }, name)));
      draw(last);
    });
    place.append(
      h("p", {}, "A position encoding acts on the embeddings, on queries and keys, or on the scores. Choose one: what it adds, and what the scores become at every pair of positions."),
      list, form.element, trouble, told, drawn,
    );

    /** Fields that have an effect on what is drawn now. */
    function used() {
      const several = (known.value?.heads?.length ?? 0) > 1;
      return FIELDS.filter((each) => (SERVED || (each !== LOOKS && each !== LENGTH)) && (several || each !== HEAD));
    }

    /** @param {State} state */
    function draw(state) {
      last = state;
      const heads = known.value?.heads?.length ?? HEADS, count = SERVED ? state.length : USUAL;
      form.show({ ...state, query: Math.min(state.query, count - 1), head: Math.min(state.head, heads - 1) });
      form.only(used());
      learnNames("names", names);
      for (const button of list.children) button.setAttribute("aria-pressed", String(button.textContent === state.encoding));
      const key = JSON.stringify([state.encoding.trim(), state.looks, state.length]);
      learn(key, () => numbersOf(state));
      const fresh = known.key === key;
      trouble.textContent = fresh && known.error ? known.error.replace(/\.?$/, ".") : "";
      trouble.hidden = !trouble.textContent;
      drawn.hidden = told.hidden = !trouble.hidden;
      if (!fresh) return; // the earlier drawing stays until the answer arrives
      if (!known.value) return;
      replace(told, ...known.value.told.map(words), ...onlyUsual(state), numbersNote(known.value));
      replace(drawn, ...panelsOf(known.value, state, drawn, change));
    }
    return draw;
  },
};

/** @returns {Promise<{name: string, summary: string}[]>} */
async function names() {
  return (SERVED ? await ask("encodings", {}) : await data("encodings")).names;
}

/** @param {State} state @returns {Promise<Numbers>} */
async function numbersOf({ encoding, looks, length }) {
  if (SERVED) return ask("encoding", { encoding, causal: looks === "back", length });
  const { answers } = await data("encodings"), name = encoding.trim();
  if (Object.hasOwn(answers, name)) return answers[name];
  throw new Error("This copy of the page has every encoding with its usual arguments only; ropewalk explore computes others");
}

/** Return a note if the link means numbers that only Python computes. @param {State} state */
function onlyUsual({ looks, length }) {
  if (SERVED || (looks === LOOKS.initial && length === USUAL)) return [];
  return [h("p", { class: "mistake", role: "status" }, `This copy of the page has only the usual numbers: ${USUAL} positions, and a query sees the keys before it. The link names others, which ropewalk explore computes.`)];
}

/** @param {string} text */
const plain = (text) => text.replaceAll("`", "");

/** Return the name with arguments, and the text. @param {Told} told */
function words({ call, paragraphs, arguments: given }) {
  const items = given.map(([name, text]) => h("li", {}, h("code", {}, name), ": ", ...marked(text)));
  return h("section", {},
    h("h2", {}, h("code", {}, call)),
    ...paragraphs.map((text) => h("p", {}, ...marked(text))),
    ...(items.length ? [h("details", {}, h("summary", {}, "Arguments"), h("ul", {}, ...items))] : []));
}

/** Return words with code, links to papers, and formulas. @param {string} text */
function marked(text) {
  return text.split(/(`[^`]+`|arXiv \d{4}\.\d{4,5})/).flatMap((part) => {
    if (part.startsWith("`")) return [h("code", {}, part.slice(1, -1))];
    return /^arXiv \d/.test(part) ? [outside(`https://arxiv.org/abs/${part.slice(6)}`, part)] : typeset(part);
  });
}

/** @param {Numbers} found */
function numbersNote({ parameters, vectors, heads }) {
  const trained = parameters ? `Its ${parameters.toLocaleString("en")} parameters (one layer, 4 heads of 16 dimensions) are drawn as they start, from seed 0: training changes these pictures. ` : "";
  const nothing = vectors || heads ? "" : parameters ? "They start so that nothing changes: there is nothing to draw before training." : "It changes nothing, so there is nothing to draw.";
  return h("p", { class: "note" }, trained + nothing);
}

/** @param {Numbers} found @param {State} state @param {HTMLElement} place @param {Change} change */
function panelsOf({ vectors, heads, pictures }, state, place, change) {
  const causal = !SERVED || state.looks === "back"; // the export has no others
  const parts = [];
  if (vectors) parts.push(added(pictures), byDistanceFrom([similarityOf(vectors)], "cosine similarity", false));
  if (heads) {
    const shown = causal ? heads.map(earlierOnly) : heads;
    parts.push(scores(shown), byDistanceFrom(shown, "change of the score", causal));
  }
  return parts;

  /** @param {(number | null)[][][]} shown */
  function scores(shown) {
    const query = Math.min(state.query, shown[0].length - 1), most = Math.max(...shown.map(largest)), several = shown.length > 1;
    const maps = shown.map((values, i) => h("figure", {},
      h("figcaption", {}, several ? `head ${i}` : "every head is the same"),
      heatMap({ values, most, width: Math.min(SMALL, widthIn(place, SMALL)), label: `change of the score${several ? ` of head ${i}` : ""}: queries down, keys across`, mark: [query, query], pick: (row) => change({ query: row, head: i }) })));
    return h("section", {}, h("h2", {}, "What the scores become"),
      h("p", { class: "note" }, `Equal q and k, at every pair of positions: their score, minus its part without positions. Keys that a query cannot see are blank. Blue is above 0, orange below; the full shade is ${short(most)}. Rows are queries: click one.`),
      h("div", { class: "maps" }, ...maps));
  }

  /** Return one line for each head if only the distance matters; otherwise one for each of several queries.
      @param {(number | null)[][][]} shown @param {string} unit @param {boolean} back */
  function byDistanceFrom(shown, unit, back) {
    const count = shown[0].length, query = Math.min(state.query, count - 1), head = Math.min(state.head, shown.length - 1);
    const relative = isRelative(shown[head], back), all = shown.flat(2).filter((each) => each !== null);
    const low = Math.min(0, ...all), high = Math.max(0, ...all);
    const others = [...new Set([count - 1, Math.floor((3 * count) / 4), Math.floor(count / 2), Math.floor(count / 4)])];
    const lines = relative
      ? shown.map((each, i) => ({ name: `head ${i}`, points: byDistance(each, query) }))
      : others.map((from) => ({ name: `from position ${from}`, points: byDistance(shown[head], from) }));
    return h("section", {}, h("h2", {}, relative ? `By distance, from position ${query}` : "By distance"),
      facts([["at distance 0", value(shown[head], query, query)], ["at distance 1", value(shown[head], query, query - 1)], [`at distance ${query}`, value(shown[head], query, 0)], ["depends on the distance alone", relative ? "yes" : "no"]]),
      chart({
        x: { min: back ? 0 : 1 - count, max: count - 1, label: "distance of the query from an earlier key" },
        y: { min: low, max: high === low ? 1 : high, label: unit },
        lines, width: widthIn(place, WIDE),
        alt: `${unit} by distance ${relative ? "for each head" : "for several queries: the lines differ"}`,
      }),
      h("p", { class: "note" }, relative ? "From every position, the lines are the same: only the distance matters." : `${shown.length > 1 ? `Head ${head}. ` : ""}The lines differ: the positions matter, not only their distance.`));
  }
}

/** @param {Numbers["pictures"]} pictures */
function added({ vectors, similarity: alike }) {
  return h("section", {}, h("h2", {}, "What is added to the embeddings"),
    h("p", { class: "note" }, "First, the vectors of all positions. Then how similar two positions are: the cosine of the angle between their vectors, without words. In a model, words are added to these vectors before they are compared, so its scores mix both."),
    h("div", { class: "maps" }, ...[vectors, alike].filter((each) => each !== null).map(drawnBy)));
}

/** Return a picture of the scheme in which the page is shown. @param {Drawn} drawn */
function drawnBy({ light, dark, alt }) {
  const link = (/** @type {string} */ svg) => `data:image/svg+xml,${encodeURIComponent(svg)}`;
  return h("picture", { class: "drawn" }, h("source", { srcset: link(dark), media: "(prefers-color-scheme: dark)" }), h("img", { src: link(light), alt }));
}

/** @param {(number | null)[][]} matrix @param {number} query @param {number} key */
function value(matrix, query, key) {
  const found = key >= 0 ? matrix[query][key] : null;
  return found === null ? "none" : fixed(found, 3);
}
