/* Stretch: a model's rope in a longer context, under every rule, and what to paste into an engine. */

import { ask, data, SERVED } from "../ask.js";
import { controls } from "../controls.js";
import { facts, h, outside, short } from "../draw.js";
import { choiceField, numberField, textField } from "../fields.js";
import { latest } from "../later.js";
import { PUBLISHED } from "../published.js";
import { replace } from "../replace.js";
import { headDimField, ORIGINAL, THETA } from "../rope-fields.js";
import { chosenMethod, ownModel, results } from "../stretch.js";
import { advice, fragmentOf, notesOf, rulesTable, scoresChart, wavelengthsChart, whyNot } from "./stretch-parts.js";

/** @typedef {import("../fields.js").State} State */
/** @typedef {import("../stretch.js").Model} Model */
/** @typedef {import("../main.js").Change} Change */

const MOST_TEXT = 20000, MOST_TOKENS = 2 ** 24;
/** @type {[string, string][]} */
const MODELS = [
  ...Object.entries(PUBLISHED).map(([id, { name }]) => /** @type {[string, string]} */ ([id, name])),
  ["pasted", "a config.json that you paste"], ["own", "a rope of your own"],
];
/** @type {[string, string][]} */
const METHODS = [
  ["recommended", "the one to try first"], ["none", "none"], ["linear", "linear (position interpolation)"], ["ntk", "NTK-aware"],
  ["dynamic", "dynamic NTK"], ["yarn", "YaRN"], ["llama3", "Llama 3"], ["longrope", "LongRoPE"],
];
const ENGINES = ["transformers", "vllm", "sglang", "llama.cpp", "gguf", "tensorrt-llm", "onnxruntime-genai"];

const MODEL = choiceField({ key: "model", label: "model", initial: "llama-2-7b", choices: MODELS });
const CONFIG = textField({ key: "config", label: "config.json", initial: "", most: MOST_TEXT, rows: 8 });
const STATED = numberField({ key: "trained", label: "original length (0: as the config states it)", initial: 0, min: 0, max: MOST_TOKENS, whole: true, log: true, unit: "tokens" });
const HEAD_DIM = headDimField(128);
const TO = numberField({ key: "to", label: "new context (0: 4 times today's)", initial: 0, min: 0, max: MOST_TOKENS, whole: true, log: true, unit: "tokens" });
const METHOD = choiceField({ key: "method", label: "rule in detail", initial: "recommended", choices: METHODS });
const ROPE = numberField({ key: "rope", label: "rope (a model may have several)", initial: 0, min: 0, max: 7, whole: true });
const ENGINE = choiceField({ key: "engine", label: "engine", initial: "transformers", choices: ENGINES.map((each) => [each, each]) });
const FIELDS = [MODEL, CONFIG, STATED, HEAD_DIM, THETA, ORIGINAL, TO, ROPE, METHOD, ENGINE];
const ABOVE = FIELDS.slice(0, 9);

/** @type {import("../main.js").Room} */
export const stretch = {
  id: "stretch",
  title: "Stretch",
  fields: FIELDS,
  open(place, change) {
    const form = controls(ABOVE, (part) => change(withContext(part))), below = controls([ENGINE], change);
    const trouble = h("p", { class: "mistake", role: "alert" }), around = h("div"), table = h("div"), refused = h("div");
    const waves = h("div"), scores = h("div"), first = h("div"), fragment = h("div"), inside = h("div");
    /** @type {State} */
    let last = {};
    /** @type {{key: string, asked: string, model: Model | null, error: string}} */
    let known = { key: "", asked: "", model: null, error: "" };
    const learn = latest(({ key, value, error }) => {
      if (!key.startsWith(keyOf(last))) return; // another rope was chosen since
      known = { key: keyOf(last), asked: key, model: value, error };
      draw(last);
    });
    inside.append(
      h("section", {}, h("h2", {}, "Every rule at this length"), table, refused),
      h("div", { class: "panels" }, h("section", {}, h("h2", {}, "Wavelength of each pair"), waves), h("section", {}, h("h2", {}, "Mean score by distance"), scores)),
      h("section", {}, h("h2", {}, "What to try first"), first),
      h("section", {}, h("h2", {}, "What to paste"), below.element, fragment),
    );
    place.append(...introduction(), form.element, trouble, around, inside);

    /** @param {State} state */
    function draw(state) {
      last = state;
      const asked = `${keyOf(state)} ${SERVED ? state.to : ""}`;
      if (state.model === "own") {
        learn("own", async () => null);
        known = { key: keyOf(state), asked, model: ownModel(Number(state.head_dim), state.theta, state.original), error: "" };
      } else learn(asked, () => modelOf(state));
      const model = known.key === keyOf(state) ? known.model : null;
      const mistake = known.asked === asked ? model?.mistake ?? "" : "";
      const shown = within(state, model);
      form.show(shown);
      below.show(shown);
      form.only(used(state, model));
      trouble.textContent = wrong(shown, model, known.key === keyOf(state) ? known.error : "", mistake);
      trouble.hidden = !trouble.textContent;
      replace(around, ...(model ? lengths(shown, model, change) : trouble.textContent ? [] : [h("p", { "aria-busy": "true" }, "Reading the config …")]));
      inside.hidden = !model || trouble.textContent !== "";
      if (model && !inside.hidden) show(shown, model);
    }

    /** @param {State} state @param {Model} model */
    function show(state, model) {
      const part = model.ropes[state.rope];
      const found = results(model, part, state.to), wanted = chosenMethod(model, state.method, state.to);
      const chosen = found.some(({ method }) => method === wanted) ? wanted : "none";
      replace(table, rulesTable(found, chosen, model, state.to, change));
      replace(refused, ...whyNot(model));
      replace(waves, wavelengthsChart(waves, found, chosen, model, state.to));
      replace(scores, scoresChart(scores, found, chosen, model, state.to));
      const target = model.targets[state.to];
      replace(first, ...(target ? advice(target, state.to, chosen) : absent(state, model)), ...notesOf(model));
      replace(fragment, ...(target ? fragmentOf(target, chosen, state.engine) : absent(state, model)));
    }
    return draw;
  },
};

/** What decides the ropes; the new context does not. @param {State} state */
function keyOf({ model, config, trained, head_dim: headDim, theta, original }) {
  return JSON.stringify(model === "own" ? [model, headDim, theta, original] : model === "pasted" ? [model, config, trained] : [model]);
}

/** Set a context four times as long as the chosen model's. @param {State} part */
function withContext(part) {
  return part.model in PUBLISHED ? { ...part, rope: 0, to: 0 } : part;
}

/** Return a state with the numbers that are computed with. @param {State} state @param {Model | null} model @returns {State} */
function within(state, model) {
  if (!model) return state;
  return { ...state, to: state.to || fourTimes(model), rope: Math.min(state.rope, model.ropes.length - 1) };
}

/** @param {Model} model */
const fourTimes = ({ today }) => Math.min(MOST_TOKENS, 4 * today);

/** @param {State} state @returns {Promise<Model>} */
async function modelOf({ model, config, trained, to }) {
  if (!SERVED && model === "pasted") throw new Error("Reading a config needs Python: run ropewalk explore. Here, choose a model or a rope of your own");
  if (!SERVED) return data(`stretch-${model}`);
  if (model === "pasted" && !config.trim()) throw new Error("Paste the text of a config.json");
  const text = model === "pasted" ? config : JSON.stringify(PUBLISHED[model].config);
  const extend = (/** @type {number} */ length) => ask("extend", { config: text, to: length, original: model === "pasted" ? trained : 0 });
  return extend(to ? Math.max(to, 2) : fourTimes(await extend(MOST_TOKENS)));
}

/** @param {State} state @param {Model | null} model */
function used({ model: name }, model) {
  const ofModel = name === "pasted" ? [CONFIG, STATED] : name === "own" ? [HEAD_DIM, THETA, ORIGINAL] : [];
  return [MODEL, TO, METHOD, ...(model && model.ropes.length > 1 ? [ROPE] : []), ...ofModel];
}

/** Return what is wrong, in a sentence, or "". @param {State} state @param {Model | null} model @param {string} error @param {string} mistake */
function wrong({ to, model: name, config }, model, error, mistake) {
  const cut = name === "pasted" && config.length >= MOST_TEXT ? ` The text is cut at ${MOST_TEXT.toLocaleString("en")} characters.` : "";
  if (error) return error.replace(/\.?$/, ".") + cut;
  if (model && to <= model.today) return `The new context must be longer than the ${model.today.toLocaleString("en")} tokens that the model serves today, got ${to.toLocaleString("en")}.`;
  return mistake.replace(/([^.])$/, "$1.");
}

function introduction() {
  return [
    h("p", {}, "A model has seen the angles that its pairs reach within the context of its training. In a longer context, slow pairs reach angles that it has never seen. A scaling rule makes pairs slower, so that they stay within. Rules differ in the pairs that they slow down, and in what that costs."),
    h("p", { class: "note" }, "The rules: linear is Position Interpolation (", outside("https://arxiv.org/abs/2306.15595", "arXiv 2306.15595"), "), YaRN is ", outside("https://arxiv.org/abs/2309.00071", "arXiv 2309.00071"), ", LongRoPE is ", outside("https://arxiv.org/abs/2402.13753", "arXiv 2402.13753"), "."),
  ];
}

/** @param {State} state @param {Model} found @param {Change} change */
function lengths({ model, to }, { model_type: type, original, today }, change) {
  const buttons = [2, 4, 8].map((times) => h("button", { type: "button", click: () => change({ to: Math.min(MOST_TOKENS, times * today) }) }, `${times} × today: ${(times * today).toLocaleString("en")}`));
  const published = PUBLISHED[model];
  if (published) buttons.push(h("button", { type: "button", click: () => change({ model: "pasted", config: JSON.stringify(published.config, null, 1) }) }, "Edit a copy of this config"));
  return [
    facts([
      ["model type", type ?? "any"],
      ["original length", `${original.toLocaleString("en")} tokens`],
      ["context today", `${today.toLocaleString("en")} tokens`],
      ["new context", `${to.toLocaleString("en")} tokens`],
      ["factor s = new / original", short(to / original, 4)],
    ]),
    h("div", { class: "controls" }, ...buttons),
  ];
}

/** Return why there is no text for this target. @param {State} state @param {Model} model */
function absent({ model: name }, model) {
  if (name === "own") return [h("p", {}, "Choose a model or paste a config.json: what to paste depends on how its code reads the rule.")];
  if (SERVED) return [h("p", { "aria-busy": "true" }, "Python reads the config for this length …")];
  const made = Object.keys(model.targets).map((each) => Number(each).toLocaleString("en"));
  return [h("p", {}, `This copy of the page has no Python behind it, so it has the text for ${made.join(", ")} tokens only. `, h("code", {}, "ropewalk explore"), " writes it for every length.")];
}
