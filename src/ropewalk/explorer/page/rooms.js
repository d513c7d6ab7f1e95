/* The rooms, in the order of the navigation. */

import { why } from "./rooms/why.js";
import { turn } from "./rooms/turn.js";
import { relative } from "./rooms/relative.js";
import { stretch } from "./rooms/stretch.js";
import { mistakes } from "./rooms/mistakes.js";
import { encodings } from "./rooms/encodings.js";
import { attention } from "./rooms/attention.js";
import { heads } from "./rooms/heads.js";

/** @type {import("./main.js").Room[]} */
export const ROOMS = [why, turn, relative, stretch, mistakes, encodings, attention, heads];
