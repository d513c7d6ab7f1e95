/* Dragging in a drawing, by mouse, pen or finger. What can be dragged has a slider too. */

/** @typedef {{x: number, y: number}} Point */
/** @typedef {{part: string, at: Point, from: Point, begins: boolean}} Drag
      part: the data-drag of the part where the drag began. at, from: now and there, in units of the drawing. */

const SWIPE = 8; // a finger that moves less to the side may scroll the page

/** Call `moved` when a part of the drawing in a place is dragged. The drawing may be replaced meanwhile.
    A part of class `across` covers its drawing: there, a finger that moves up or down scrolls the page.
    @param {HTMLElement} place @param {(drag: Drag) => void} moved */
export function drags(place, moved) {
  /** @type {{part: string, from: Point, begun: boolean} | undefined} */
  let held;
  /** @param {Point} at */
  const move = (at) => {
    if (!held) return;
    const begins = !held.begun;
    held.begun = true;
    moved({ part: held.part, from: held.from, at, begins });
  };
  // Of a drawing, browsers read touch-action at its root only, not at the part under the finger.
  place.addEventListener("touchstart", (event) => {
    if (partOf(event) && !isAcross(event)) event.preventDefault();
  }, { passive: false });
  place.addEventListener("pointerdown", (event) => {
    const part = partOf(event)?.getAttribute("data-drag"), from = pointIn(place, event);
    if (!part || !from || !event.isPrimary || event.button !== 0) return;
    held = { part, from, begun: false };
    place.setPointerCapture(event.pointerId);
    event.preventDefault(); // no selection of words
    if (event.pointerType !== "touch" || !isAcross(event)) move(from);
  });
  place.addEventListener("pointermove", (event) => {
    const at = held && pointIn(place, event);
    if (held && at && (held.begun || Math.abs(at.x - held.from.x) > SWIPE)) move(at);
  });
  place.addEventListener("pointerup", () => {
    if (held && !held.begun) move(held.from); // a tap
  });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) place.addEventListener(end, () => { held = undefined; });
}

/** Return the part that an event meets. @param {Event} event */
const partOf = (event) => (event.target instanceof Element ? event.target.closest("[data-drag]") : null);

/** @param {Event} event */
const isAcross = (event) => partOf(event)?.classList.contains("across") ?? false;

/** @param {HTMLElement} place @param {PointerEvent} event @returns {Point | undefined} */
function pointIn(place, event) {
  const drawing = place.querySelector("svg[role=img]");
  if (!(drawing instanceof SVGSVGElement)) return undefined;
  const box = drawing.getBoundingClientRect(), { width, height } = drawing.viewBox.baseVal;
  return { x: ((event.clientX - box.left) * width) / box.width, y: ((event.clientY - box.top) * height) / box.height };
}

/** Return the whole number nearest to x, within bounds. @param {number} x @param {number} min @param {number} max */
export function whole(x, min, max) {
  return Math.min(Math.max(Math.round(x), min), max);
}
