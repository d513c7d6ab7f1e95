/* Whether Python answers behind the page; `ropewalk explore --export` writes false. */

export const SERVED = true;
