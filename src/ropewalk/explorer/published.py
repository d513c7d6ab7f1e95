"""Published configs that the room Stretch has built in, read from the page's own file."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def published() -> dict[str, dict[str, Any]]:
    """Return the name on the hub and the config of each model, by its short name."""
    page = files("ropewalk.explorer") / "page"
    text = (page / "published.js").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text.partition(" = ")[2].rstrip(";\n"))
    return found
