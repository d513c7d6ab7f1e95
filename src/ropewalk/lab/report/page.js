"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const one = (selector, root = document) => root.querySelector(selector);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/* Plotly's figures take the colors of the page, in light and dark mode. */

function dressed(layout) {
  const font = { family: getComputedStyle(document.body).fontFamily, size: 12, color: color("--ink") };
  const axis = { gridcolor: color("--faint"), linecolor: color("--faint"), automargin: true, ticks: "" };
  const full = { ...layout, font, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", autosize: true };
  for (const name of Object.keys(layout)) {
    if (/^[xy]axis/.test(name)) full[name] = { ...axis, ...layout[name] };
  }
  full.shapes = (layout.shapes || []).map((shape) => ({ ...shape, line: { color: color("--soft"), width: 1 } }));
  full.hoverlabel = { bgcolor: color("--ink"), bordercolor: color("--ink"), font: { ...font, size: 13, color: color("--page") } };
  return full;
}

/* Traces have the light page's colors; each is replaced by that of the same place on this page. */
function marked(traces) {
  const replaced = data.marks.reduce((text, light, i) => text.replaceAll(light, color(`--mark${i}`)), JSON.stringify(traces));
  return JSON.parse(replaced);
}

function draw(place) {
  const spec = place.dataset.figure.split(".").reduce((held, key) => held[key], data.figures);
  Plotly.react(place, marked(spec.data), dressed(spec.layout), { displayModeBar: false, responsive: true });
}

const plots = [...document.querySelectorAll(".plot")];
plots.forEach(draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  plots.forEach(draw);
  if (panels.length) render(); // small maps are drawn on a canvas, so CSS does not recolor them
});

/* Attention maps. A weight is two characters in base 64: thousandths above -2.048. */

const DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const WORTH = Object.fromEntries([...DIGITS].map((digit, i) => [digit, i]));
const read = (text, i) => (64 * WORTH[text[2 * i]] + WORTH[text[2 * i + 1]] - 2048) / 1000;
const SVG = "http://www.w3.org/2000/svg";
const tip = document.getElementById("tip");
const sites = { encoder: "encoder self-attention", decoder: "decoder self-attention", cross: "cross-attention", self: "self-attention" };
const panels = [];
const SMALLEST = 12, LARGEST = 30; // px per cell: labels stay readable, and a short sentence does not fill the page
let shownAt = 0;

function element(name, attributes = {}, text = null, space = null) {
  const made = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  return made;
}

function chosen() {
  const of = (name) => document.getElementById(`choose-${name}`).value;
  return { site: of("site"), sentence: +of("sentence"), layer: +of("layer"), head: +of("head") };
}

/* Shows the mark of a word's beginning as a small dot. */
const plain = (token) => token.replace(/^▁/, "·");

function short(token) {
  const text = plain(token);
  return text.length > 11 ? `${text.slice(0, 10)}…` : text;
}

const labels = (tokens) => 12 + 6.7 * Math.max(...tokens.map((token) => short(token).length));

/* The weights of a layer's heads as numbers; the last entry is their mean. */
function numbers(layer, size) {
  const heads = layer.map((text) => Float32Array.from({ length: size }, (_, i) => read(text, i)));
  const mean = Float32Array.from({ length: size }, (_, i) => heads.reduce((sum, head) => sum + head[i], 0) / heads.length);
  return [...heads, mean];
}

/* The map of a sentence and site: labels, and weights as layer -> head -> numbers. */
function mapOf(encoding, state) {
  const held = encoding.sentences[state.sentence][state.site];
  const size = held.rows.length * held.columns.length;
  return { ...held, weights: held.weights.map((layer) => numbers(layer, size)) };
}

function differenceOf(state) {
  const [more, less] = ["more", "less"].map((name) => mapOf(data.attention[document.getElementById(`choose-${name}`).value], state));
  const weights = more.weights.map((layer, l) => layer.map((head, h) => head.map((value, i) => value - less.weights[l][h][i])));
  return { ...more, weights };
}

const headName = (layer, h) => h === layer.length - 1 ? "mean" : `head ${h + 1}`;

/* A panel of one encoding or of a difference: the chosen head large, all heads small. */
function panel(root, mapFor) {
  const box = one(".map", root), said = one(".said", root), heads = one(".heads", root);
  const signed = root.dataset.name === "difference", what = signed ? "difference" : "weight";
  const tint = (value) => value < 0 && signed ? "--below" : "--above";
  const strength = (value) => Math.sqrt(Math.min(signed ? Math.abs(value) : Math.max(value, 0), 1));
  const written = (value) => signed && value > 0 ? `+${value.toFixed(3)}` : value.toFixed(3);
  let map, values, svg, cell, left, top, row = -1, column = -1;

  function show(r, c) {
    for (const each of panels) each.point(r, c);
  }

  function point(r, c) {
    row = r; column = c;
    for (const mark of svg.querySelectorAll(".cursor, .cross")) mark.remove();
    if (r < 0) { said.textContent = ""; return; }
    const add = (kind, x, y, width, height) => svg.append(element("rect", { class: kind, x, y, width, height }, null, SVG));
    add("cross", left, top + r * cell, map.columns.length * cell, cell);
    add("cross", left + c * cell, top, cell, map.rows.length * cell);
    add("cursor", left + c * cell, top + r * cell, cell, cell);
    said.textContent = `${pair(r, c)}: ${written(weight(r, c))}`;
  }

  const pair = (r, c) => `${plain(map.rows[r])} → ${plain(map.columns[c])}`;
  const weight = (r, c) => values[r * map.columns.length + c];

  function at(event) {
    const frame = svg.getBoundingClientRect();
    const c = Math.floor((event.clientX - frame.left - left) / cell);
    const r = Math.floor((event.clientY - frame.top - top) / cell);
    return r >= 0 && c >= 0 && r < map.rows.length && c < map.columns.length ? [r, c] : null;
  }

  function hover(event) {
    const found = at(event);
    if (!found) { hide(); return; }
    show(...found);
    place(event.clientX, event.clientY);
  }

  function place(x, y) {
    tip.replaceChildren(pair(row, column), element("b", {}, `${what} ${written(weight(row, column))}`));
    tip.hidden = false;
    shownAt = scrollY;
    const size = tip.getBoundingClientRect();
    const fit = (wanted, length, room) => Math.max(4, Math.min(wanted, room - length - 4));
    tip.style.left = `${fit(x + 14, size.width, document.documentElement.clientWidth)}px`;
    tip.style.top = `${fit(y - size.height - 14 < 4 ? y + 18 : y - size.height - 14, size.height, innerHeight)}px`;
  }

  function hide() {
    tip.hidden = true;
    show(-1, -1);
  }

  function step(event) {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.key === "Escape") { hide(); return; }
    if (!moves[event.key]) return;
    event.preventDefault();
    const [down, right] = moves[event.key];
    const within = (value, length) => Math.max(0, Math.min(length - 1, value));
    show(row < 0 ? 0 : within(row + down, map.rows.length), row < 0 ? 0 : within(column + right, map.columns.length));
    const frame = svg.getBoundingClientRect();
    place(frame.left + left + (column + 1) * cell, frame.top + top + row * cell);
  }

  function large(state) {
    left = labels(map.rows);
    top = labels(map.columns);
    const room = Math.min(640, root.clientWidth - left - 2);
    cell = Math.max(SMALLEST, Math.min(LARGEST, Math.floor(room / map.columns.length)));
    const width = left + cell * map.columns.length + 2, height = top + cell * map.rows.length + 2;
    const label = `${root.dataset.name}, ${sites[state.site]}, layer ${state.layer + 1}, ${headName(map.weights[0], state.head)}: `
      + `${map.rows.length} by ${map.columns.length} weights; use the arrow keys to read them`;
    svg = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": label }, null, SVG);
    map.columns.forEach((token, c) => {
      const x = left + (c + 0.5) * cell + 4;
      svg.append(element("text", { x, y: top - 5, transform: `rotate(-90 ${x} ${top - 5})` }, short(token), SVG));
    });
    map.rows.forEach((token, r) => {
      svg.append(element("text", { x: left - 5, y: top + (r + 0.5) * cell + 4, "text-anchor": "end" }, short(token), SVG));
      map.columns.forEach((_, c) => {
        const value = weight(r, c), opacity = strength(value);
        if (opacity > 0) {
          svg.append(element("rect", { x: left + c * cell, y: top + r * cell, width: cell, height: cell, style: `fill: var(${tint(value)})`, "fill-opacity": opacity.toFixed(3) }, null, SVG));
        }
      });
    });
    svg.append(element("rect", { class: "frame", x: left, y: top, width: cell * map.columns.length, height: cell * map.rows.length }, null, SVG));
    svg.addEventListener("pointermove", (event) => { if (event.pointerType !== "touch") hover(event); });
    svg.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hide(); });
    svg.addEventListener("click", hover);
    svg.addEventListener("keydown", step);
    svg.addEventListener("blur", hide);
    box.replaceChildren(svg);
  }

  function small(state) {
    const layers = map.weights;
    const label = (text) => element("span", { "aria-hidden": "true" }, text);
    heads.style.gridTemplateColumns = `auto repeat(${layers[0].length}, 2.5rem)`;
    const titles = [label(""), ...layers[0].map((_, h) => label(headName(layers[0], h)))];
    heads.replaceChildren(...titles, ...layers.flatMap((layer, l) => [label(`layer ${l + 1}`), ...layer.map((weights, h) => {
      const pressed = l === state.layer && h === state.head;
      const name = `layer ${l + 1}, ${headName(layer, h)}`;
      const button = element("button", { type: "button", "aria-pressed": pressed, "aria-label": name, title: name });
      button.append(thumbnail(weights));
      button.addEventListener("click", () => {
        document.getElementById("choose-layer").value = l;
        document.getElementById("choose-head").value = h;
        render();
        heads.querySelector(`[title="${name}"]`).focus();
      });
      return button;
    })]));
  }

  function thumbnail(weights) {
    const canvas = element("canvas", { width: map.columns.length, height: map.rows.length });
    const paper = canvas.getContext("2d");
    const colors = Object.fromEntries(["--above", "--below"].map((name) => [name, color(name)]));
    map.rows.forEach((_, r) => map.columns.forEach((_, c) => {
      const value = weights[r * map.columns.length + c];
      paper.fillStyle = colors[tint(value)];
      paper.globalAlpha = strength(value);
      paper.fillRect(c, r, 1, 1);
    }));
    return canvas;
  }

  function draw_(state) {
    map = mapFor(state);
    values = map.weights[state.layer][state.head];
    row = column = -1;
    said.textContent = "";
    large(state);
    small(state);
  }

  return { render: draw_, point, hide };
}

function render() {
  tip.hidden = true;
  const state = chosen();
  const { rows, columns } = Object.values(data.attention)[0].sentences[state.sentence][state.site];
  const widest = Math.max(320, labels(rows) + SMALLEST * columns.length + 4);
  one(".maps").style.setProperty("--panel", `${widest}px`); // long sentences get fewer maps per row
  for (const each of panels) each.render(state);
}

if (data.attention) {
  for (const root of document.querySelectorAll(".panel")) {
    const encoding = data.attention[root.dataset.slug];
    panels.push(panel(root, encoding ? (state) => mapOf(encoding, state) : differenceOf));
  }
  for (const select of document.querySelectorAll(".choose select")) select.addEventListener("change", render);
  document.addEventListener("pointerdown", (event) => {
    if (!tip.hidden && !event.target.closest(".map svg")) panels[0].hide();
  });
  addEventListener("scroll", () => {
    if (Math.abs(scrollY - shownAt) > 12) tip.hidden = true; // a tap on a phone may scroll the page a little
  }, { passive: true });
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; render(); } });
  render();
}
