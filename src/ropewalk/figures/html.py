"""A page in one file: it contains style, scripts and data, and loads nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from string import Template
from typing import Any

from ropewalk.figures.palette import DARK, LIGHT

#: A page under this policy cannot reach a network.
OFFLINE = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)

_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="$policy">
<title>$title</title>
<link rel="icon" href="data:,">
<style>$css</style>
</head>
<body>
$body
<script type="application/json" id="data">$data</script>
$scripts
</body>
</html>
""")


def html_page(
    title: str, body: str, *, css: str, scripts: Sequence[str], data: Any, policy: str = OFFLINE
) -> str:
    """Return a complete page; `body` is HTML, and scripts find `data` as JSON in `#data`."""
    return _PAGE.substitute(
        title=escape(title),
        body=body,
        css=css,
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
        data=script_json(data),
        policy=policy,
    )


def scheme_css() -> str:
    """Return CSS with the colors of the reader's scheme as `--page`, `--ink`, … (see `Scheme`)."""
    light, dark = (
        f":root {{ {' '.join(f'--{name}: {color};' for name, color in asdict(scheme).items())} }}\n"
        for scheme in (LIGHT, DARK)
    )
    return f"{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def picture_html(stem: str, form: str, alt: str) -> str:
    """Return the HTML of a picture in a Markdown page: of the files of `Picture.both`, the one for
    the reader's scheme.
    """
    return f"""<picture>
  <source media="(prefers-color-scheme: dark)" srcset="{stem}-dark.{form}">
  <img alt="{escape(alt)}" src="{stem}-light.{form}">
</picture>"""


def script_json(value: Any) -> str:
    """Return JSON that is safe in a script element: no `<`, and null for non-finite numbers."""
    text = json.dumps(
        without_nan(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False
    )
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def without_nan(value: Any) -> Any:
    """Return the value with every number that is not finite replaced by null, as in JSON."""
    if isinstance(value, dict):
        return {name: without_nan(held) for name, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_nan(held) for held in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
