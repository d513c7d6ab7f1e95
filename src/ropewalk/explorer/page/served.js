/* Whether Python answers behind the page; `ropewalk explore --export` writes false. */
"use strict";

export const SERVED = true;
