/* A part of a room drawn anew, without losing the reader's place in it. */

/** Replace what is in a place. The control that had the focus has it again, and what was unfolded
    or scrolled stays so; all are known by their words. @param {HTMLElement} place @param {...(Node | string)} children */
export function replace(place, ...children) {
  const focused = document.activeElement;
  const name = focused && focused !== place && place.contains(focused) ? nameOf(focused) : "";
  const open = new Set([...place.querySelectorAll("details[open] > summary")].map(nameOf));
  const scrolled = new Map([...place.querySelectorAll(".scroll")].map((each) => [nameOf(each), each.scrollLeft]));
  place.replaceChildren(...children);
  for (const summary of place.querySelectorAll("summary")) {
    if (open.has(nameOf(summary))) summary.parentElement?.setAttribute("open", "");
  }
  for (const each of place.querySelectorAll(".scroll")) each.scrollLeft = scrolled.get(nameOf(each)) ?? 0;
  if (name) find(place, name)?.focus({ preventScroll: true });
}

/** @param {HTMLElement} place @param {string} name */
function find(place, name) {
  const controls = /** @type {HTMLElement[]} */ ([...place.querySelectorAll("button, summary, a, [tabindex]")]);
  return controls.find((each) => nameOf(each) === name);
}

/** @param {Element} element */
const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent ?? "";
