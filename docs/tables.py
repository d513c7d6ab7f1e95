"""Write the tables of some pages: `python docs/tables.py`.

The numbers are those of benchmarks/results and results/frequency-usage; the faults are those of
`ropewalk.tools`. A table is between `<!-- table: NAME -->` and `<!-- end -->`, and NAME is a
function of this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
NAMES = ("precision", "performance", "faults", "frequency-usage", "do-i-need-it")
PAGES = (*(DOCS / f"{name}.md" for name in NAMES), DOCS.parent / "benchmarks" / "README.md")
USAGE = DOCS.parent / "results" / "frequency-usage" / "README.md"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

LENGTHS = (512, 2048, 8192)  # of `cost`
THETA, LARGE_THETA = 10_000, 500_000  # of `exactness`


def exactness() -> str:
    """Return the worst error of cos and sin for each way to compute them, by position."""
    rows = _results("exactness")["rows"]
    ends = sorted({row["end"] for row in rows})
    worst = {(row["name"], row["theta"], row["end"]): row["worst"] for row in rows}
    lines = []
    for name in dict.fromkeys(row["name"] for row in rows):
        places = [(name, THETA, end) for end in ends] + [(name, LARGE_THETA, ends[-1])]
        lines.append([name, *(f"{worst[p]:.1e}" if p in worst else "–" for p in places)])
    columns = [*(f"{end:,}" for end in ends), f"{ends[-1]:,}, theta {LARGE_THETA:,}"]
    return as_table([f"theta {THETA:,}", *columns], lines)


def far() -> str:
    """Return the worst error at positions up to 2^31 under each scaling rule."""
    lines = []
    for row in _results("exactness")["rules"]:
        rule = "" if row["rule"] == "none" else f", {row['rule']}"
        errors = [f"{row[key]:.1e}" for key in ("worst", "rms", "output")]
        lines.append([row["name"] + rule, f"{row['theta']:,.0f}", *errors])
    return as_table(["up to ±2^31", "theta", "worst", "rms", "rotated vector"], lines)


def scores() -> str:
    """Return by how much each stack's rotation moves scores, in percent of their deviation."""
    found = _results("scores")
    lengths = [key for key in found["rows"][0] if key.isdigit()]
    lines = [
        [f"{row['name']}, {row['dtype']}", *(_percent(row[length]["rms"]) for length in lengths)]
        for row in found["rows"]
    ]
    return as_table(["tokens", *(f"{int(length):,}" for length in lengths)], lines)


def faults() -> str:
    """Return the faults that `ropewalk verify` names."""
    from ropewalk.tools.verify import FAULTS

    return as_table(
        ["identifier", "what is wrong", "likely cause"],
        [[f"`{name}`", fault.what, fault.cause] for name, fault in FAULTS.items()],
    )


def rotation() -> str:
    """Return the times of rotation next to copying and transformers."""
    lines = []
    for table in _results("rotation")["tables"]:
        rows = {row["name"]: row for row in table["rows"]}
        limit, own = table["rows"][0], rows["ropewalk"]
        other = rows.get("transformers")
        lines.append(
            [
                f"{table['work']}, {table['form']}".replace("into new memory, tables", "tables"),
                table["dtype"],
                _time(limit["seconds"]),
                _time(own["seconds"]),
                f"{own['of_copy']:.2f}",
                _time(rows["ropewalk without its kernel"]["seconds"]),
                _time(other["seconds"]) if other else "–",
            ]
        )
    columns = ["work", "dtype", "copying", "ropewalk", "× copying", "no kernel", "transformers"]
    return as_table(columns, lines)


def cost() -> str:
    """Return what encodings cost, as multiples of no encoding, and their memory."""
    results = _results("cost")
    places = [results["lengths"].index(length) for length in LENGTHS]
    lines = []
    for row in results["rows"][1:]:
        times = [row[kind][place]["ratio"] for kind in ("train", "decode") for place in places]
        memory = [f"{row[kind][-1]['bytes'] / 2**20:,.0f}" for kind in ("train", "decode")]
        lines.append([row["name"], *(f"{each:.2f}" for each in times), *memory])
    columns = [f"{kind}, {length:,}" for kind in ("training", "decode") for length in LENGTHS]
    return as_table(["× no encoding", *columns, "MiB, training", "MiB, decode"], lines)


def measured_costs() -> dict[str, list[str]]:
    """Return the times of each encoding's training step and decoded token at 2,048 tokens."""
    results = _results("cost")
    place = results["lengths"].index(2048)
    return {
        row["name"].partition("(")[0]: [
            f"{row[k][place]['ratio']:.2f}" for k in ("train", "decode")
        ]
        for row in reversed(results["rows"])  # the plainest form of each comes first in the results
    }


def usage_norms() -> str:
    """Return the shares of the squared norm that pairs of a small model have."""
    return _below("Squared norm by wavelength")


def usage_heads() -> str:
    """Return what distance explains of each head's scores."""
    return _below("Heads")


def usage_cost() -> str:
    """Return what p-RoPE costs without training."""
    return _below("p-RoPE without training")


def _below(title: str) -> str:
    """Return the table below a title in the results on frequency usage."""
    section = USAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    return "".join(f"{line}\n" for line in section.splitlines() if line.startswith("|"))


def written(page: Path) -> str:
    """Return the text of a page with its tables written again."""
    makers: dict[str, Callable[[], str]] = {
        make.__name__: make
        for make in (
            exactness,
            far,
            scores,
            rotation,
            cost,
            faults,
            usage_norms,
            usage_heads,
            usage_cost,
        )
    }
    text = page.read_text(encoding="utf-8")
    return BLOCK.sub(lambda found: f"{found[1]}{makers[found[2]]()}{found[3]}", text)


def _results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _time(seconds: float) -> str:
    number, unit = (seconds * 1e3, "ms") if seconds >= 1e-3 else (seconds * 1e6, "µs")
    return f"{number:.3g} {unit}" if number >= 100 else f"{number:#.3g} {unit}"


def _percent(share: float) -> str:
    percent = 100 * share
    if percent < 0.001:
        return "< 0.001 %"
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def as_table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns of numbers are aligned to the right."""
    numbers = [all(re.match(r"[\d–]", line[i]) for line in lines) for i in range(len(columns))]
    rule = ["--:" if is_number else "---" for is_number in numbers]
    return "".join(f"| {' | '.join(line)} |\n" for line in (columns, rule, *lines))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page), encoding="utf-8")
        print(page)
