// Run the vectors against a port: node run.mjs ADAPTER.mjs [--area NAME] [--json FILE]
//
// An adapter exports one or more of frequencies(vector), tables(vector) and rotate(vector), which
// return arrays as README.md says, or null for what the port does not offer.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const VERSION = 1;
const LEVELS = {
  frequencies: ["inverse_frequencies", "attention_factor"],
  tables: ["cos", "sin"],
  rotate: ["rotated_q", "rotated_k"],
};
// How far a right result may be off; README.md says why.
const [FREQUENCIES, TABLES, PRODUCT] = [4e-6, 1e-6, 8 * 2 ** -24];
const ROUNDING = { float32: 2 ** -22, bfloat16: 2 ** -7, float16: 2 ** -10 };

const isGiven = (value) => value !== null && !(Array.isArray(value) && value.length === 0);
const flat = (value) =>
  typeof value === "number" ? [value] : Array.from(value).flatMap((inner) => flat(inner));

export function load(folder, areas) {
  const vectors = [];
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".json")).sort()) {
    let content;
    try {
      content = JSON.parse(readFileSync(join(folder, file), "utf-8"));
    } catch (error) {
      throw new Error(`${file} must be a file of vectors, got ${error.message}`);
    }
    if (content?.version !== VERSION)
      throw new Error(`${file} must have version ${VERSION}, got ${content?.version}`);
    if (!areas.length || areas.includes(content.area)) vectors.push(...content.vectors);
  }
  const known = readdirSync(folder).map((name) => name.replace(/\.\w+$/, ""));
  const unknown = areas.filter((area) => !known.includes(area));
  if (!vectors.length || unknown.length)
    throw new Error(`areas must be of ${[...new Set(known)].join(", ")}, got ${areas}`);
  return vectors;
}

function places(rope, pairing) {
  const found = [];
  let start = rope.start;
  for (const size of rope.blocks ?? [rope.rotary_dim]) {
    for (let i = 0; i < size / 2; i++)
      found.push(
        pairing === "half"
          ? [start + i, start + i + size / 2]
          : [start + 2 * i, start + 2 * i + 1],
      );
    start += size;
  }
  return found;
}

// How far each number may be off; angles: whether float32 may have rounded them.
function bounds(vector, angles) {
  const { rope } = vector;
  const factor = Math.abs(vector.attention_factor || 1);
  const coarse = ROUNDING[vector.dtype];
  const limits = {};
  let off;
  if (vector.inverse_frequencies.length) {
    const f = vector.inverse_frequencies.map(Math.abs);
    const rows = Array.isArray(vector.positions[0]) ? vector.positions : [vector.positions];
    off = rows[0].map((_, token) =>
      f.map((each, pair) => {
        const at = Math.abs(rows[rope.axes ? rope.axes[pair][0] : 0][token]);
        return factor * (TABLES + (angles ? Math.min(2, PRODUCT * at * each) : 0));
      }),
    );
    limits.inverse_frequencies = f.map((each) => FREQUENCIES * each + 1e-30);
    limits.attention_factor = FREQUENCIES * factor;
    limits.cos = limits.sin = off;
  } else {
    // keys that move: by two rotations, of which neither is far
    off = vector.k.map(() => Array(rope.rotary_dim / 2).fill(4 * TABLES + (angles ? 4e-3 : 0)));
  }
  const [reads, writes] = [places(rope, rope.pairing), places(rope, rope.write_pairing)];
  for (const name of ["q", "k"])
    limits[`rotated_${name}`] = vector[name].map((x, token) => {
      const limit = x.map((value) => coarse * Math.abs(value) + 1e-6);
      reads.forEach(([a, b], pair) => {
        const size = Math.abs(x[a]) + Math.abs(x[b]);
        for (const d of writes[pair]) limit[d] = size * (off[token][pair] + coarse * factor);
      });
      return limit;
    });
  return limits;
}

// The largest difference, in units of the limits.
function error(results, right, limits) {
  let worst = 0;
  for (const [field, made] of Object.entries(results)) {
    if (!isGiven(right[field] ?? null)) continue;
    const [ours, wanted, limit] = [flat(made), flat(right[field]), flat(limits[field])];
    if (ours.length !== wanted.length)
      throw new Error(`${field} must have ${wanted.length} numbers, got ${ours.length}`);
    ours.forEach((value, i) => {
      const ratio = Math.abs(value - wanted[i]) / limit[i];
      worst = Number.isFinite(ratio) ? Math.max(worst, ratio) : Infinity;
    });
  }
  return worst;
}

function verdict(vector, level, made) {
  const fields = LEVELS[level].filter((field) => isGiven(vector[field]));
  let given = fields.map((field) => made[LEVELS[level].indexOf(field)]);
  if (fields.length === 1 && (made.length === 1 || typeof made[0]?.[0] === "number"))
    given = [typeof made[0][0] === "number" ? made : made[0]]; // the only one
  const results = Object.fromEntries(fields.map((field, i) => [field, given[i]]));
  const [strict, loose] = [bounds(vector, false), bounds(vector, true)];
  if (error(results, vector, strict) <= 1) return { result: "valid" };
  if (error(results, vector, loose) <= 1) {
    const apart = fields.flatMap((field) => {
      const wanted = flat(vector[field]);
      return flat(results[field]).map((value, i) => Math.abs(value - wanted[i]));
    });
    return { result: "acceptable", flag: "float32-angles", off_by: Math.max(...apart) };
  }
  for (const [trap, wrong] of Object.entries(vector.traps))
    if (fields.some((field) => field in wrong) && error(results, wrong, loose) <= 1)
      return { result: "invalid", trap };
  return { result: "invalid", trap: null };
}

export function run(adapter, vectors) {
  const records = [];
  for (const vector of vectors)
    for (const [level, fields] of Object.entries(LEVELS)) {
      if (!adapter[level] || !fields.some((field) => isGiven(vector[field]))) continue;
      let found = null;
      try {
        const made = adapter[level](vector);
        if (made !== null && made !== undefined) found = verdict(vector, level, made);
      } catch (failure) {
        found = { result: "invalid", trap: null, raised: String(failure).slice(0, 200) };
      }
      if (found) records.push({ area: vector.area, name: vector.name, level, ...found });
    }
  return records;
}

export function summary(records) {
  const lines = ["area               exact  float32   wrong"];
  for (const area of new Set(records.map((each) => each.area))) {
    const count = (kind) =>
      records.filter((each) => each.area === area && each.result === kind).length;
    const [passed, float32, failed] = ["valid", "acceptable", "invalid"].map(count);
    lines.push(
      area.padEnd(16) +
        String(passed).padStart(8) +
        String(float32).padStart(9) +
        String(failed).padStart(8),
    );
  }
  for (const each of records.filter((record) => record.result === "invalid"))
    lines.push(
      `FAILED ${each.area}/${each.name}, ${each.level}: ` +
        (each.raised ?? each.trap ?? "no known mistake"),
    );
  return lines.join("\n");
}

async function main(words) {
  const options = { area: [], json: [], vectors: [] };
  const files = [];
  for (let i = 0; i < words.length; i++)
    if (words[i].startsWith("--") && words[i].slice(2) in options && i + 1 < words.length)
      options[words[i].slice(2)].push(words[++i]);
    else files.push(words[i]);
  if (files.length !== 1) throw new Error("one adapter must be given: node run.mjs ADAPTER.mjs");
  const folder = options.vectors[0] ?? join(dirname(fileURLToPath(import.meta.url)), "vectors");
  const vectors = load(folder, options.area);
  const records = run(await import(pathToFileURL(resolve(files[0])).href), vectors);
  if (!records.length) throw new Error("the adapter must offer frequencies, tables or rotate");
  console.log(summary(records));
  if (options.json.length)
    writeFileSync(options.json[0], JSON.stringify({ version: VERSION, records }, null, 1));
  return records.some((record) => record.result === "invalid") ? 1 : 0;
}

if (process.argv[1] === fileURLToPath(import.meta.url))
  main(process.argv.slice(2)).then(
    (status) => process.exit(status),
    (problem) => {
      console.error(`conformance: ${problem.message}`);
      process.exit(2);
    },
  );
