"""Listings as plain text: columns of at most 100 characters a line, without colors."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from ropewalk.cli.common import one_line

WIDTH = 100
WIDEST = 40  # indent of the last column; a longer name pushes its own line to the right


def print_rows(rows: Iterable[Sequence[str]], widest: int = WIDEST) -> None:
    """Print rows in aligned columns; the last column wraps below itself."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    columns = list(zip(*(row[:-1] for row in cells), strict=True))
    widths = [min(max(map(len, column)), widest) for column in columns]
    for row in cells:
        start = "".join(f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False))
        indent = " " * sum(width + 2 for width in widths)
        print(
            textwrap.fill(
                row[-1],
                WIDTH,
                initial_indent=start,
                subsequent_indent=indent,
                break_on_hyphens=False,
            ).rstrip()
            or start.rstrip()
        )


def summary(docstring: str | None) -> str:
    """Return the first line of a docstring, without the backticks around its code."""
    lines = (docstring or "").strip().splitlines()
    return lines[0].strip().replace("`", "") if lines else "(no description)"
