/* The state of a room: its fields, their values in the link, and what is wrong with a link. */

/** @typedef {{key: string, label: string, kind: "number", initial: number, min: number, max: number,
      whole?: boolean, log?: boolean, step?: number, unit?: string, names?: string[]}} NumberField  names: words for each whole number, shown behind the label */
/** @typedef {{key: string, label: string, kind: "choice", initial: string, choices: [string, string][]}} ChoiceField */
/** @typedef {{key: string, label: string, kind: "text", initial: string, most: number, rows?: number}} TextField */
/** @typedef {NumberField | ChoiceField | TextField} Field */
/** @typedef {Record<string, any>} State  the value of each field, by its key */

/** @param {Omit<NumberField, "kind">} given @returns {NumberField} */
export const numberField = (given) => ({ kind: "number", ...given });
/** @param {Omit<ChoiceField, "kind">} given @returns {ChoiceField} */
export const choiceField = (given) => ({ kind: "choice", ...given });
/** @param {Omit<TextField, "kind">} given @returns {TextField} */
export const textField = (given) => ({ kind: "text", ...given });

/** Return the state that a link describes, and a sentence for each value that is not used.
    @param {Field[]} fields @param {string} query @returns {{state: State, mistakes: string[]}} */
export function readState(fields, query) {
  const given = new URLSearchParams(query);
  /** @type {State} */
  const state = {};
  const mistakes = [];
  for (const field of fields) {
    const text = given.get(field.key);
    state[field.key] = field.initial;
    if (text === null) continue;
    const wrong = mistake(field, text);
    if (wrong) mistakes.push(`${wrong}; this page uses ${field.initial}.`);
    else state[field.key] = field.kind === "number" ? Number(text) : text;
  }
  return { state, mistakes };
}

/** Return the query of a link to a state; values that are as at first are left out.
    @param {Field[]} fields @param {State} state */
export function writeState(fields, state) {
  const query = new URLSearchParams();
  for (const { key, initial } of fields) if (state[key] !== initial) query.set(key, String(state[key]));
  return query.toString();
}

/** Return what is wrong with a value, or "". @param {Field} field @param {string} text */
export function mistake(field, text) {
  const shown = text.length > 40 ? `${text.slice(0, 40)}…` : text;
  if (field.kind === "choice") {
    const known = field.choices.map(([name]) => name);
    return known.includes(text) ? "" : `${field.label} must be one of ${known.join(", ")}, got ${shown}`;
  }
  if (field.kind === "text") {
    return text.length <= field.most ? "" : `${field.label} must have at most ${field.most} characters, got ${text.length}`;
  }
  const value = Number(text);
  const what = field.whole ? "a whole number" : "a number";
  const isKind = text.trim() !== "" && (field.whole ? Number.isInteger(value) : Number.isFinite(value));
  return isKind && value >= field.min && value <= field.max
    ? ""
    : `${field.label} must be ${what} from ${field.min.toLocaleString("en")} to ${field.max.toLocaleString("en")}, got ${shown || "nothing"}`;
}
