/* Why, steps 6 to 9: positions that rotate. */

import { chart } from "../chart.js";
import { drags, whole } from "../drag.js";
import { facts, fixed, h, picture, s, short, widthIn } from "../draw.js";
import { choiceField, numberField } from "../fields.js";
import { strong, sub, sup } from "../markup.js";
import { DISTANCE, MOST_DISTANCE, positionLine, START } from "../position-line.js";
import { norm, rope } from "../rope.js";
import { headDimField, specOf, THETA } from "../rope-fields.js";
import { allScores, meanCosine, output, score } from "../scores.js";
import { distanceOf, plus, vectorOf } from "../words.js";
import { plane, sizeIn } from "./why-planes.js";

/** @typedef {import("../fields.js").State} State */
/** @typedef {import("./why.js").Step} Step */

const QUERY = "bites", KEY = "dog", SENTENCE = ["the", KEY, QUERY], SIZE = 16, CELLS = 24, EDGE = 3.5; // the edge of the map, in cells
const LONGEST = 4096; // of the distances that a chart has
const Q = { length: 1.2, angle: 1.9 }, K = { length: 0.9, angle: 0.6 }; // of the single pair

const TURNS = numberField({ key: "turns", label: "position m", initial: 3, min: 0, max: 12, whole: true });
const X = numberField({ key: "x", label: "x₁", initial: 0.9, min: -1.5, max: 1.5, step: 0.1 });
const Y = numberField({ key: "y", label: "x₂", initial: 0.4, min: -1.5, max: 1.5, step: 0.1 });
const SPEED = numberField({ key: "speed", label: "frequency f, radians per position", initial: 0.5, min: 0.01, max: 3.14, log: true });
const GAP = numberField({ key: "gap", label: "distance", initial: 5, min: 0, max: 1000000, whole: true, log: true });
const CONTEXT = numberField({ key: "context", label: "context (the longest text)", initial: 8192, min: 64, max: 4194304, whole: true, log: true });
const HEAD_DIM = headDimField(64);
const ROTATED = choiceField({ key: "rotated", label: "what rotates", initial: "qk", choices: [["qk", "q and k (RoPE)"], ["q", "q alone"], ["qkv", "q, k and v"], ["none", "nothing"]] });
const SHIFT = numberField({ key: "shift", label: "words inserted before", initial: 1000, min: 0, max: 1000000, whole: true, log: true });

/** @type {Step} */
export const rotating = {
  name: "Rotate",
  title: "Rotate instead",
  fields: [TURNS, SPEED, X, Y],
  text: () => [
    ["Take two numbers of a query or key, a pair, and see them as an arrow in a plane. Adding a position pushes the arrow elsewhere: its length and its direction change, and what remains of the word depends on the place."],
    ["Rotate the arrow instead: by the angle m · f at position m. The length stays at every position, and the angle grows by f from word to word, as a hand turns, here counterclockwise. This is RoPE, the rotary position embedding of the paper RoFormer."],
    ["The meaning is in the length and in the angle at the start; the place is in how far the arrow has turned. One arrow alone does not show how much of its angle is meaning and how much is place. But attention compares two arrows: that is the next step."],
  ],
  formula: () => [
    ["y", sub("1"), " = x", sub("1"), " cos(m·f) − x", sub("2"), " sin(m·f)"],
    ["y", sub("2"), " = x", sub("1"), " sin(m·f) + x", sub("2"), " cos(m·f)"],
  ],
  paper: "RoFormer, equations 12 and 13",
  task: "move the position, and drag the tip of the gray arrow. Compare the lengths.",
  open(place, _below, change) {
    const added = h("div"), rotated = h("div"), result = h("div");
    place.append(h("div", { class: "two narrow" }, added, rotated), result);
    for (const each of [added, rotated]) {
      drags(each, ({ at }) => change(plane(sizeIn(each)).numbers(at, 1.5)));
    }
    return ({ turns, speed, x, y }) => {
      const places = Array.from({ length: turns + 1 }, (_, m) => m * speed), start = [x, y];
      const sums = places.map((a) => plus(start, [Math.sin(a), Math.cos(a)]));
      const rotations = places.map((a) => [x * Math.cos(a) - y * Math.sin(a), x * Math.sin(a) + y * Math.cos(a)]);
      added.replaceChildren(h("h3", {}, "Added"), plane(sizeIn(added)).paths(start, sums, `The arrow plus the vectors of positions 0 to ${turns}`));
      rotated.replaceChildren(h("h3", {}, "Rotated"), plane(sizeIn(rotated)).paths(start, rotations, `The arrow rotated to positions 0 to ${turns}, all on one circle`));
      result.replaceChildren(facts([
        ["length at the start", fixed(norm(start), 3)], ["after adding", fixed(norm(sums[turns]), 3)], ["after rotating", fixed(norm(rotations[turns]), 3)],
        ["angle of rotation", `${fixed(turns * speed, 2)} rad = ${Math.round((turns * speed * 180) / Math.PI)}°`],
      ]), h("p", { class: "note" }, "Gray: before. Orange: at position m. Dots: at the positions from 0 to m. On the left, the vector (sin m·f, cos m·f) of step 4 is added; at position 0 it is (0, 1)."));
    };
  },
};

/** @type {Step} */
export const onePair = {
  name: "One pair",
  title: "One pair",
  fields: [START, DISTANCE, SPEED],
  text: () => [
    ["Now rotate both: the pair of the query by m · f, the pair of the key by n · f. The score is the dot product: length times length times the cosine of the ", strong("angle from k to q"), ", counted counterclockwise."],
    ["Move both words on by s positions. Both arrows turn by the same angle, s · f. The angle from k to q does not change, so the score does not change. This angle is α, which the words have by themselves, plus (m − n) · f: of the positions, only the distance counts. The score is highest where this angle is 0, which need not be at distance 0."],
    ["But one pair is like a clock with a single hand: after a full turn, 2π / f positions, it shows the same again. It cannot tell these distances apart."],
  ],
  formula: () => [
    ["q", sub("m"), " · k", sub("n"), " = |q| |k| cos(α + (m − n) · f)"],
    ["α: angle from k to q before they rotate;  |q| = 1.2, |k| = 0.9"],
  ],
  paper: "RoFormer, equations 11 and 12",
  task: "drag the handle ↔: both arrows turn, and the score stays. Then drag the query alone.",
  open(place, below, change) {
    const line = positionLine(change, { query: QUERY, key: KEY }), dial = h("div"), result = h("div"), lines = h("div");
    place.append(line.element, h("div", { class: "two" }, dial, result));
    below.append(lines);
    return (state) => {
      const { start, distance, speed } = state, m = start + distance, between = Q.angle - K.angle + distance * speed;
      const scoreAt = (/** @type {number} */ d) => Q.length * K.length * Math.cos(Q.angle - K.angle + d * speed);
      const degrees = (/** @type {number} */ a) => `${Math.round((((a * 180) / Math.PI) % 360 + 360) % 360)}°`;
      line.show(state);
      dial.replaceChildren(plane(widthIn(dial, 240)).hands({ ...Q, angle: Q.angle + m * speed }, { ...K, angle: K.angle + start * speed }));
      result.replaceChildren(facts([
        ["angle of q (blue)", degrees(Q.angle + m * speed)], ["angle of k (orange)", degrees(K.angle + start * speed)],
        ["α", degrees(Q.angle - K.angle)], ["angle from k to q", degrees(between)], ["score", fixed(scoreAt(distance), 4)], ["a full turn takes", `${short((2 * Math.PI) / speed)} positions`],
      ]));
      lines.replaceChildren(chart({
        x: { min: 0, max: MOST_DISTANCE, label: "distance m − n" }, y: { min: -1.2, max: 1.2, label: "score" }, width: widthIn(lines, 560), down: [{ at: distance, name: `distance ${distance}` }],
        lines: [{ name: "score", points: Array.from({ length: 10 * MOST_DISTANCE + 1 }, (_, i) => [i / 10, scoreAt(i / 10)]) }],
        alt: `The score of one pair by distance: a cosine that repeats every ${short((2 * Math.PI) / speed)} positions`,
      }));
    };
  },
};

/** @type {Step} */
export const manyPairs = {
  name: "Many pairs",
  title: "Many pairs, fast and slow",
  fields: [THETA, GAP, HEAD_DIM, CONTEXT],
  text: () => [
    ["Attention works in heads, each with its own q and k. A q of d numbers (head_dim) has d/2 pairs: a clock with many hands. Each pair has its own frequency. As with bits, fast pairs tell neighbors apart, and slow pairs tell far from near: a slow hand hardly moves between neighbors. All together, distances look different for a long way."],
    [strong("What theta does: "), "it sets the speed of the slow pairs. Pair 0 always turns by 1 radian per position. Each next pair is slower by the same factor, theta", sup("2/d"), ". So with a larger theta all the other pairs are slower, the last one most."],
    ["A larger theta helps in two ways. First, a pair that makes a full turn within the context, the longest text, shows the same angle at a near distance and at a far one; with a larger theta, more pairs make no full turn. Second, all pairs but the first turn less, so words that are far apart are still compared by their meaning: the curve of all pairs falls more slowly."],
    ["So models for long texts have a large theta (500,000 in Llama 3), or slow pairs down by a scaling rule (room Stretch). The price: the same pairs are spread over a wider range of wavelengths, so fewer of them are fast and tell near distances apart."],
  ],
  formula: () => [
    ["f", sub("i"), " = theta", sup("−2i/d"), ",  i = 0, …, d/2 − 1"],
    ["wavelength", sub("i"), " = 2π / f", sub("i"), " = 2π · theta", sup("2i/d")],
  ],
  paper: "RoFormer, equation 15 (there, pairs are numbered from 1)",
  task: "move the distance to about 200, then make theta larger: pair 0 stays, the hands of the slow pairs turn back, and the right end of the straight line rises.",
  open(place, below) {
    const dials = h("div"), result = h("div"), lengths = h("div"), scores = h("div");
    place.append(dials, result, lengths);
    below.append(scores);
    return (state) => {
      const { frequencies } = rope(specOf(state)), usual = rope(specOf({ ...state, theta: 10000 })).frequencies;
      const chosen = Array.from({ length: 8 }, (_, i) => Math.round((i * (frequencies.length - 1)) / 7));
      const slow = frequencies.filter((f) => (2 * Math.PI) / f > state.context).length;
      dials.replaceChildren(smallDials(frequencies, [...new Set(chosen)], state.gap, widthIn(dials, 620)));
      result.replaceChildren(facts([
        ["slowest pair: a full turn takes", `${short((2 * Math.PI) / frequencies[frequencies.length - 1])} positions`],
        ["pairs with no full turn in the context", `${slow} of ${frequencies.length}`],
        ["pairs with a full turn within 64 positions", `${frequencies.filter((f) => (2 * Math.PI) / f <= 64).length} of ${frequencies.length}`],
        ["score at this distance, all pairs", fixed(meanCosine(frequencies, state.gap), 3)],
      ]));
      lengths.replaceChildren(wavelengthChart(frequencies, usual, state, widthIn(lengths, 600)));
      scores.replaceChildren(scoreChart(frequencies, state.theta === 10000 ? null : usual, state.gap, chosen[2], widthIn(scores, 600)));
    };
  },
};

/** @param {number[]} frequencies @param {number[]} chosen @param {number} gap @param {number} width */
function smallDials(frequencies, chosen, gap, width) {
  const columns = width < 560 ? 4 : chosen.length, cell = width / columns, r = Math.min(30, cell / 2 - 5), row = 2 * r + 48;
  const drawing = picture(width, Math.ceil(chosen.length / columns) * row, `Angles of ${chosen.length} pairs after ${gap} positions, the fastest first`);
  chosen.forEach((pair, i) => {
    const x = (i % columns) * cell + cell / 2, y = Math.floor(i / columns) * row + r + 3, a = gap * frequencies[pair];
    drawing.append(
      s("circle", { cx: x, cy: y, r, class: "dial" }), s("path", { class: "quiet", d: `M${x} ${y}h${r}` }),
      s("path", { class: "line color0", "stroke-width": 3, d: `M${x} ${y}L${x + r * Math.cos(a)} ${y - r * Math.sin(a)}` }),
      s("text", { x, y: y + r + 16, "text-anchor": "middle" }, `pair ${pair}`),
      s("text", { x, y: y + r + 31, "text-anchor": "middle" }, short((2 * Math.PI) / frequencies[pair])));
  });
  return h("figure", {}, drawing, h("figcaption", {}, "The angle between q and k at this distance, if they are equal at distance 0. Below each: the positions of a full turn."));
}

/** @param {number[]} frequencies @param {number[]} usual @param {State} state @param {number} width */
function wavelengthChart(frequencies, usual, { theta, context }, width) {
  /** @param {number[]} speeds @returns {[number, number][]} */
  const points = (speeds) => speeds.map((f, i) => [i, (2 * Math.PI) / f]);
  const lines = [{ name: `theta = ${theta.toLocaleString("en")}`, points: points(frequencies), look: 0 }];
  if (theta !== 10000) lines.push({ name: "theta = 10,000, to compare", points: points(usual), look: 3 });
  const most = Math.max(context, ...lines.flatMap((line) => line.points.map(([, y]) => y)));
  return chart({
    x: { min: 0, max: Math.max(frequencies.length - 1, 1), label: "pair i" }, y: { min: 1, max: most * 2, log: true, label: "positions of a full turn, log scale" },
    lines, across: [{ at: context, name: `context, ${context.toLocaleString("en")}` }], width,
    alt: "The wavelength of each pair: the same for pair 0 at any theta, and longer for slow pairs if theta is larger",
  });
}

/** @param {number[]} frequencies @param {number[] | null} usual @param {number} gap @param {number} one a pair @param {number} width */
function scoreChart(frequencies, usual, gap, one, width) {
  const most = Math.min(LONGEST, Math.max(256, 2 ** Math.ceil(Math.log2(1.2 * gap + 1)))), distances = Array.from({ length: most + 1 }, (_, d) => d);
  /** @param {number[]} speeds @returns {[number, number][]} */
  const pointsOf = (speeds) => distances.map((d) => [d, meanCosine(speeds, d)]);
  return chart({
    x: { min: 0, max: most, label: "distance m − n" }, y: { min: -1, max: 1, label: "score, relative to distance 0" }, width, down: [{ at: gap, name: `distance ${gap}` }],
    lines: [
      { name: `pair ${one} alone`, look: 1, thin: true, points: distances.map((d) => [d, Math.cos(d * frequencies[one])]) },
      ...(usual ? [{ name: `all ${usual.length} pairs, theta = 10,000`, look: 3, thin: true, points: pointsOf(usual) }] : []),
      { name: `all ${frequencies.length} pairs`, look: 0, points: pointsOf(frequencies) },
    ],
    alt: `Score by distance, if q and k are equal: pair ${one} alone repeats itself, all pairs together do not within ${most} positions`,
  });
}

/** @type {Step} */
export const distance = {
  name: "Only distance",
  title: "Only the distance matters",
  fields: [START, DISTANCE, ROTATED, SHIFT, THETA],
  text: () => [
    ["If query and key both move on, each pair keeps the angle between them. So the sum over all pairs, the score, stays too (here divided by √d, as in step 1). The picture shows the scores of a q at every m and a k at every n: along each diagonal, m − n and the color are the same."],
    ["R", sub("m"), " is the rotation of all pairs to position m. In each pair, the score depends on the angle between the two arrows. So rotating q to m and k to n gives the same score as leaving q alone and rotating k by n − m positions, backward if that is below 0. If q alone rotated, nothing would cancel its rotation. (In the formula, T makes a row of a column: a dot product in matrices. A transposed rotation turns backward, so R", sub("m"), sup("T"), " R", sub("n"), " = R", sub("n−m"), ".)"],
    ["Values are not rotated. An output is a weighted sum of values, and no second rotation follows that could cancel theirs. With rotated values, the same sentence would give another output later in a text."],
  ],
  formula: () => [["(R", sub("m"), " q) · (R", sub("n"), " k) = q", sup("T"), " R", sub("m"), sup("T"), " R", sub("n"), " k = q", sup("T"), " R", sub("n−m"), " k"]],
  paper: "RoFormer, equation 16",
  task: "first choose q alone, then q, k and v, and see what changes when words are inserted before the sentence. With q and k rotated, nothing changes.",
  open(place, below, change) {
    const line = positionLine(change, { query: QUERY, key: KEY }), map = h("div"), result = h("div");
    place.append(line.element, h("div", { class: "two" }, map, result));
    below.append(summary());
    drags(map, ({ at }) => {
      const cell = widthIn(map, 300) / (CELLS + EDGE), n = whole(at.x / cell - EDGE - 0.5, 0, CELLS - 1);
      change({ start: n, distance: whole(at.y / cell - 0.5 - n, 0, CELLS - 1 - n) });
    });
    const q = vectorOf(QUERY, "query of", SIZE), k = vectorOf(KEY, "key of", SIZE);
    const vectors = { q, ks: SENTENCE.map((word) => vectorOf(word, "key of", SIZE)), vs: SENTENCE.map((word) => vectorOf(word, "value of", SIZE)) };
    return (state) => {
      const { start: n, distance: apart, rotated, shift, theta } = state, found = rope(specOf({ head_dim: String(SIZE), theta }));
      const here = score(q, k, n + apart, n, found, rotated), there = score(q, k, n + apart + shift, n + shift, found, rotated);
      const before = output(vectors, 0, found, rotated), after = output(vectors, shift, found, rotated);
      line.show(state);
      map.replaceChildren(heatMap(allScores(q, k, CELLS, found, rotated), n, n + apart, widthIn(map, 300)));
      result.replaceChildren(facts([
        [`score at m = ${n + apart}, n = ${n}`, fixed(here, 4)],
        [`score after ${shift.toLocaleString("en")} inserted words`, fixed(there, 4)],
        ["change of the score", fixed(Math.abs(there - here), 4)],
        ["output of “bites” in “the dog bites” at 0, 1, 2: its length", fixed(norm(before), 4)], ["length of the difference, later minus at 0, 1, 2", fixed(distanceOf(before, after), 4)],
      ]), h("p", { class: "note" }, VERDICTS[rotated]));
    };
  },
};

/** @type {Record<string, string>} */
const VERDICTS = {
  qk: "For the same two words, the score depends on the distance alone. When the sentence moves, its output does not change. And the order counts: “dog bites man” is no longer “man bites dog”.",
  q: "The score depends on m alone, not on the distance: along a row, no color changes.",
  qkv: "Scores depend on the distance alone, but the output changes with the place of the sentence.",
  none: "Nothing depends on any position: a bag of words again.",
};

/** @param {number[][]} scores @param {number} n @param {number} m @param {number} width */
function heatMap(scores, n, m, width) {
  const cell = width / (CELLS + EDGE), most = Math.max(...scores.flat().map(Math.abs)) || 1, left = EDGE * cell;
  const drawing = picture(width, CELLS * cell + 36, `Scores of q at positions 0 to ${CELLS - 1} and k at positions 0 to ${CELLS - 1}`);
  scores.forEach((row, y) => row.forEach((value, x) => {
    drawing.append(s("rect", { class: value > 0 ? "above" : "below", "fill-opacity": fixed(Math.abs(value) / most, 3).replace("−", ""), x: left + x * cell, y: y * cell, width: cell, height: cell }));
  }));
  if (m < CELLS) drawing.append(s("rect", { class: "axis", "stroke-width": 2, x: left + n * cell, y: m * cell, width: cell, height: cell }));
  const end = CELLS * cell, middle = end / 2;
  for (const at of [0, 8, 16, CELLS - 1]) {
    drawing.append(
      s("text", { x: left + (at + 0.5) * cell, y: end + 14, "text-anchor": "middle" }, String(at)),
      s("text", { x: left - 4, y: (at + 0.5) * cell + 4, "text-anchor": "end" }, String(at)));
  }
  drawing.append(
    s("text", { x: left + middle, y: end + 32, "text-anchor": "middle" }, "position of the key, n →"),
    s("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, "← position of the query, m"),
    s("rect", { class: "clear grip across", "data-drag": "map", x: left, y: 0, width: end, height: end }));
  return h("figure", {}, drawing, h("figcaption", {}, `Blue: above 0. Orange: below 0. The color of the page: 0. The full shade is ${short(most)}. The best score need not be at distance 0: that depends on the words. In the upper right half the key comes after the query. Drag the frame in the lower left half.`));
}

function summary() {
  return h("section", { class: "summary" }, h("h3", {}, "In short"), h("dl", {},
    h("dt", {}, "Why does only the distance matter?"),
    h("dd", {}, "When q and k both move on by s positions, each pair of both turns by the same angle. The angle between them stays, so their dot product stays. Only m − n changes that angle."),
    h("dt", {}, "Why rotate, and not add?"),
    h("dd", {}, "Adding changes the length and the direction of a vector, and mixes words with places in the score. Rotating keeps lengths, and positions enter the score only by their distance."),
    h("dt", {}, "What does theta do?"),
    h("dd", {}, "It sets the speed of the slow pairs. Pair 0 turns by 1 radian per position at any theta. With a larger theta all the other pairs are slower, the last one most. So more of them repeat no angle within a longer text, and words far apart are still compared by their meaning; fewer pairs are left for near distances."),
    h("dt", {}, "Why are only q and k rotated?"),
    h("dd", {}, "A score is made of both, so their rotations cancel and leave the distance. Values are added up: nothing would cancel their rotation, and the same sentence would give another output later in a text.")));
}
