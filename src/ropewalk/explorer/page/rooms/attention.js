/* Attention: a run of ropewalk compare, opened by Python; what each encoding's heads look at. */

import { ask, SERVED, STORED } from "../ask.js";
import { unpacked } from "../attention.js";
import { controls, fitted } from "../controls.js";
import { facts, h } from "../draw.js";
import { choiceField, numberField, textField } from "../fields.js";
import { latest } from "../later.js";
import { memo } from "../memo.js";
import { replace } from "../replace.js";
import { differencePanel, panel, translations } from "./attention-parts.js";

/** @typedef {import("../fields.js").Field} Field */
/** @typedef {import("../fields.js").State} State */
/** @typedef {import("../attention.js").Attended} Attended */
/** @typedef {import("../attention.js").Maps} Maps */
/** @typedef {import("./attention-parts.js").Shown} Shown */
/** @typedef {import("../main.js").Change} Change */
/** @typedef {{slug: string, name: string}} Encoding */
/** @typedef {{task: string, translates: boolean, typed: boolean, seed: number, rule: string, most: number,
      sentences: {source: string, target?: string}[], encodings: Encoding[]}} Run */
/** @typedef {import("../later.js").Found} Found */

const MOST_TEXT = 500;
const mapsOf = memo(unpacked);
const RUN = textField({ key: "run", label: "folder that ropewalk compare wrote", initial: "", most: 500 });
const EXAMPLE = numberField({ key: "example", label: "stored sentence", initial: 1, min: 1, max: 9, whole: true });
const TEXT = textField({ key: "text", label: "your own text (empty: the stored sentence)", initial: "", most: MOST_TEXT });
const TARGET = textField({ key: "target", label: "translation that every decoder reads (empty: its own)", initial: "", most: MOST_TEXT });
const SITE = choiceField({ key: "site", label: "attention", initial: "encoder", choices: [["encoder", "encoder self-attention"], ["decoder", "decoder self-attention"], ["cross", "cross-attention"]] });
const LAYER = numberField({ key: "layer", label: "layer", initial: 1, min: 1, max: 64, whole: true });
const HEAD = numberField({ key: "head", label: "head (0: the mean of all)", initial: 1, min: 0, max: 64, whole: true });
const ROW = numberField({ key: "row", label: "query, counted from 1", initial: 1, min: 1, max: 128, whole: true });
const COLUMN = numberField({ key: "column", label: "key, counted from 1", initial: 1, min: 1, max: 128, whole: true });
const MORE = numberField({ key: "more", label: "weight of", initial: 2, min: 1, max: 64, whole: true });
const LESS = numberField({ key: "less", label: "minus that of", initial: 1, min: 1, max: 64, whole: true });
/** Folders that the reader wants to open, not only a link: on Windows, reading a network path sends the user's credentials to its host. @type {Set<string>} */
const wanted = new Set();
const FIELDS = [RUN, TEXT, TARGET, SITE, EXAMPLE, LAYER, HEAD, ROW, COLUMN, MORE, LESS];
const ABOVE = FIELDS.slice(1, 4);

/** @type {import("../main.js").Room} */
export const attention = {
  id: "attention",
  title: "Attention",
  fields: FIELDS,
  open(place, change) {
    const folders = controls([RUN], change), form = controls(ABOVE, change), inner = fitted(change), below = fitted(change);
    const trouble = h("p", { class: "mistake", role: "alert", hidden: true }), about = h("div"), told = h("div");
    const maps = h("div", { class: "panels" }), versus = h("section", {}, h("h2", {}, "Difference of two encodings"), below.element), difference = h("div");
    versus.append(difference);
    place.append(h("p", {}, "Each query gives every key a weight. A run of ", h("code", {}, "ropewalk compare"), " trained the same model with several encodings: see what their heads look at, next to each other."));
    if (!SERVED) {
      folders.element.hidden = true;
      place.append(h("p", { class: "note" }, "This copy of the page has no Python behind it, but one small run as data. ", h("code", {}, "ropewalk explore RUN"), " opens yours, and shows what its models attend to in your own text."));
    }
    folders.element.append(h("button", { type: "submit" }, "Open"));
    folders.element.addEventListener("submit", () => { wanted.add(last.run.trim()); draw(last); });
    place.append(folders.element, form.element, trouble, about, inner.element, told, maps, versus);
    /** @type {State} */
    let last = {};
    /** @type {Found} */
    let run = { key: "", value: null, error: "" };
    /** @type {Found} */
    let answer = { key: "", value: null, error: "" };
    const open = latest((found) => { run = found; draw(last); });
    const attend = latest((found) => { answer = found; draw(last); }, 600);
    const given = latest(({ value }) => { // the RUN of the command line
      if (value?.run) wanted.add(value.run);
      draw(last);
    });

    /** @param {State} state */
    function draw(state) {
      last = state;
      folders.show(state);
      form.show(state);
      given("given", () => ask("given", {}));
      const folder = SERVED ? state.run.trim() : STORED, opens = wanted.has(folder);
      if (opens) open(folder, () => ask("run", { run: folder }));
      const opened = /** @type {Run | null} */ (opens && run.key === folder ? run.value : null);
      const example = Math.max(1, Math.min(state.example, opened?.sentences.length ?? 1));
      const key = JSON.stringify([folder, state.text.trim(), state.target.trim(), state.text.trim() ? 0 : example]);
      if (opened) attend(key, () => ask("attention", { run: folder, text: state.text, target: state.target, example: example - 1 }));
      form.only(used(state, opened));
      const error = opens && run.key === folder && run.error ? run.error : answer.key === key ? answer.error : "";
      trouble.textContent = error && error.replace(/\.?$/, ".");
      trouble.hidden = !error;
      const shown = opened && answer.value && answer.key.startsWith(JSON.stringify([folder]).slice(0, -1)) && !error;
      told.hidden = maps.hidden = versus.hidden = inner.element.hidden = !shown;
      replace(about, ...aboutRun(opened, folder, opens, !error && opened !== null && answer.key !== key, state.text.trim()));
      if (shown) show(state, opened, answer.value.encodings);
    }

    /** @param {State} state @param {Run} opened @param {Record<string, Attended>} found */
    function show(state, opened, found) {
      const site = opened.translates ? state.site : "self";
      replace(told, ...translations(opened.encodings, found, state, opened.translates, change));
      const all = opened.encodings.map(({ slug, name }) => ({ name, error: found[slug]?.error, maps: found[slug]?.maps?.[site] && mapsOf(/** @type {any} */ (found[slug].maps)[site]) }));
      inner.show(sizes(opened, all, state), state);
      replace(maps, ...all.map((each, i) => panel(each, i, state, site, maps, change)));
      versus.hidden = all.filter((each) => each.maps).length < 2;
      if (versus.hidden) return;
      below.show([MORE, LESS].map((field) => choiceOf(field, opened.encodings.map(({ name }) => name))), state);
      replace(difference, ...differencePanel(all, state, site, difference, change));
    }
    return draw;
  },
};

/** Return a field that chooses one of the words by its number, counted from 1. @param {Field} field @param {string[]} words @returns {Field} */
function choiceOf({ key, label }, words) {
  return { key, label, kind: "choice", initial: "1", choices: words.map((word, i) => [String(i + 1), word]) };
}

/** Return the fields for the sizes of the maps. @param {Run} opened @param {Shown[]} all @param {State} state @returns {Field[]} */
function sizes(opened, all, state) {
  const found = state.text.trim() ? [] : [choiceOf(EXAMPLE, opened.sentences.map(({ source }) => source))];
  const maps = all.flatMap((each) => each.maps ?? []);
  if (!maps.length) return found;
  const most = (/** @type {(each: Maps) => number} */ of) => Math.max(...maps.map(of));
  /** @type {[any, number][]} */
  const limits = [
    [LAYER, most(({ weights }) => weights.length)], [HEAD, most(({ weights }) => weights[0].length - 1)],
    [ROW, most(({ rows }) => rows.length)], [COLUMN, most(({ columns }) => columns.length)],
  ];
  return [...found, ...limits.map(([field, max]) => ({ ...field, max }))];
}

/** @param {State} state @param {Run | null} opened */
function used({ text }, opened) {
  if (!opened) return [];
  return [...(opened.typed ? [TEXT] : []), ...(opened.translates ? [SITE, ...(text.trim() ? [TARGET] : [])] : [])];
}

/** @param {Run | null} opened @param {string} folder @param {boolean} opens @param {boolean} waits @param {string} text */
function aboutRun(opened, folder, opens, waits, text) {
  if (!folder) return [h("p", {}, "Name the folder above, or start with ", h("code", {}, "ropewalk explore RUN"), ". A small run to try takes some minutes: ", h("code", {}, "ropewalk compare --preset quick"), ".")];
  if (!opens) return [h("p", {}, "Press Open to read this folder. If you followed a link here, check first that the folder is yours.")];
  if (!opened) return [];
  return [
    facts([["task", opened.task], ["encodings", opened.encodings.map(({ name }) => name).join(", ")], ["seed", String(opened.seed)], ["at most", `${opened.most} tokens`]]),
    h("p", { class: "note" }, `${text ? `Your text: “${text}”, read by the model of seed ${opened.seed} of each encoding, in all layers and heads` : `Stored: ${opened.rule}`}. Rows are queries, columns are keys; a decoder's query is the token that it has just read. The shade grows with the square root of the weight, the same in all maps. A token that begins a word has a · before it. Click a cell to read it everywhere.`),
    h("p", { class: "note", role: "status", "aria-busy": String(waits) }, waits ? "The models compute …" : ""),
  ];
}
