"""Write docs/encodings.md from the docstring of each encoding: `python docs/encodings.py`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from ropewalk.encodings import REGISTRY
from ropewalk.explorer.encodings_room import called

HEAD = """# Encodings

<!-- Written by `python docs/encodings.py` from the docstrings of the classes. -->

Select one by its name in `--encodings`, with arguments as in `rotary(theta=1e6)`. Encodings that
act inside attention take `cross=True` to act in cross-attention too. Names joined by +, such as
`sinusoidal+rotary`, act together: any number of them on embeddings, at most one inside attention.

Symbols: a query is at position i (or m), a key at j (or n). D is the size of a head, H the number
of query heads, S and T are the numbers of queries and keys, h is one head.

[How to add one](adding-an-encoding.md).
"""


def page() -> str:
    """Return the page: for each encoding its arguments with their defaults, and its docstring."""
    return HEAD + "".join(_section(name, make) for name, make in REGISTRY.items())


def _section(name: str, make: object) -> str:
    assert callable(make)
    parameters = inspect.signature(make).parameters.values()
    text = inspect.cleandoc(make.__doc__ or "")
    name_of = "|".join(p.name for p in parameters if p.name != "shape")
    listed = rf"^((?:{name_of})(?:, (?:{name_of}))*): "
    text = re.sub(listed, r"- `\1`: ", text, flags=re.MULTILINE) if name_of else text
    return f"\n## {name}\n\n`{called(name, make)}`\n\n{text}\n"


if __name__ == "__main__":
    path = Path(__file__).with_name("encodings.md")
    path.write_text(page(), encoding="utf-8")
    print(path)
