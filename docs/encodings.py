"""Write docs/encodings.md from the docstring of each encoding: `python docs/encodings.py`."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from tables import as_table, measured_costs

from ropewalk.encodings import REGISTRY
from ropewalk.explorer.encodings_room import called

HEAD = """# Encodings

<!-- Written by `python docs/encodings.py` from the docstrings of the classes. -->

What each position encoding does, what it costs and where it comes from. Select one by its name in
`--encodings`, with arguments as in `rotary(theta=1e6)`; `sinusoidal+rotary` acts together: any
number on embeddings, at most one inside attention. Those that act inside attention take
`cross=True` to act in cross-attention too: i is then a target and j a source position.
[How to add one](adding-an-encoding.md).

Unless its text says otherwise, an encoding accepts any position, and keys can be cached. Times are
those of a small model at 2,048 tokens, as multiples of `none`
([all lengths](../benchmarks/README.md#encodings)).

"""
SYMBOLS = """
Symbols: a query is at position i (or m), a key at j (or n). D is the size of a head, H the number
of query heads, S and T are the numbers of queries and keys, h is one head.
"""
ACTS = re.compile(r"\bActs? on ([\w ]+?)(?: of every layer)?; (\w+)")
#: What the table and the text above it say.
SAID = re.compile(
    rf"{ACTS.pattern}\.\s+|\s+Accepts\s+any\s+position\.|\s+Keys\s+can\s+be\s+cached\.(?=\s)"
)


def page() -> str:
    """Return the page: a table, then for each encoding its arguments and its docstring."""
    costs = measured_costs()
    lines = []
    for name, make in REGISTRY.items():
        found = ACTS.search(" ".join((make.__doc__ or "").split()))
        acts = found.groups() if found else ("nothing", "–")
        lines.append([f"[{name}](#{name})", *acts, *costs[name]])
    table = as_table(["encoding", "acts on", "position", "training", "decode"], lines)
    return HEAD + table + SYMBOLS + "".join(_section(n, make) for n, make in REGISTRY.items())


def _section(name: str, make: object) -> str:
    assert callable(make)
    parameters = inspect.signature(make).parameters.values()
    text = SAID.sub("", inspect.cleandoc(make.__doc__ or ""))
    name_of = "|".join(p.name for p in parameters if p.name != "shape")
    listed = rf"^((?:{name_of})(?:, (?:{name_of}))*): "
    text = re.sub(listed, r"- `\1`: ", text, flags=re.MULTILINE) if name_of else text
    return f"\n## {name}\n\n`{called(name, make)}`\n\n{text}\n"


if __name__ == "__main__":
    path = Path(__file__).with_name("encodings.md")
    path.write_text(page(), encoding="utf-8")
    print(path)
