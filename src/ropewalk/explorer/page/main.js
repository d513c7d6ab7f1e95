/* The page: which room is open, the state in its link, and one drawing for each frame. */

import { h } from "./draw.js";
import { readState, writeState } from "./fields.js";
import { ROOMS } from "./rooms.js";

/** @typedef {import("./fields.js").Field} Field */
/** @typedef {import("./fields.js").State} State */
/** @typedef {(part: State) => void} Change  sets some fields; the room is drawn again */
/** @typedef {{id: string, title: string, fields: Field[],
      open: (place: HTMLElement, change: Change) => (state: State) => void}} Room */

const place = /** @type {HTMLElement} */ (document.getElementById("room"));
const list = /** @type {HTMLElement} */ (document.getElementById("rooms"));

/** @type {Room | undefined} */
let room;
/** @type {State} */
let state = {};
/** @type {(state: State) => void} */
let draw = () => {};
let waiting = false;
const trouble = h("p", { class: "mistake", role: "alert" });

for (const { id, title } of ROOMS) list.append(h("li", {}, h("a", { href: `#${id}` }, title)));
document.querySelector(".skip")?.addEventListener("click", (event) => {
  event.preventDefault(); // the link in the address is that of the state
  place.focus();
});
window.addEventListener("hashchange", follow);
window.addEventListener("resize", () => change({})); // drawings have the width of their place
follow();

/** Open what the link names. */
function follow() {
  const [id, query = ""] = location.hash.slice(1).split("?");
  const wanted = ROOMS.find((each) => each.id === id) ?? ROOMS[0];
  const read = readState(wanted.fields, query);
  // A box that is removed while it is edited still reports its number: to the state of its room.
  if (wanted !== room) enter(wanted);
  state = read.state;
  const unknown = id && id !== wanted.id ? [`There is no room ${id.slice(0, 40)}; this is the first one.`] : [];
  say([...unknown, ...read.mistakes].join(" "));
  show();
}

/** @param {Room} wanted */
function enter(wanted) {
  const came = room !== undefined;
  room = wanted;
  document.title = `${wanted.title} · ropewalk explorer`;
  for (const link of list.querySelectorAll("a")) {
    if (link.getAttribute("href") === `#${wanted.id}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const inside = h("div", { class: `room ${wanted.id}` });
  place.replaceChildren(h("h1", {}, wanted.title), trouble, inside);
  draw = wanted.open(inside, change);
  if (came) place.focus();
}

/** @param {State} part */
function change(part) {
  Object.assign(state, part);
  if (Object.keys(part).length) say("");
  if (waiting) return;
  waiting = true; // several changes within a frame are drawn once
  requestAnimationFrame(() => {
    waiting = false;
    const query = room ? writeState(room.fields, state) : "";
    try {
      history.replaceState(null, "", `#${room?.id}${query && `?${query}`}`);
    } catch {
      // Safari refuses more than 100 within 30 seconds; a later change writes the link.
    }
    show();
  });
}

function show() {
  try {
    draw(state);
  } catch (error) {
    say(error instanceof Error ? `${error.message}.` : String(error));
  }
}

/** @param {string} text */
function say(text) {
  trouble.textContent = text;
  trouble.hidden = !text;
}
