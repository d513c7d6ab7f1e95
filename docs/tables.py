"""Write the tables of some pages: `python docs/tables.py`.

The numbers are those of benchmarks/results and results/frequency-usage; the faults are those of
`ropewalk.tools`. A table is between `<!-- table: NAME -->` and `<!-- end -->`, and NAME is a
function of this file, or what a script of benchmarks prints.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
NAMES = (
    "precision", "performance", "faults", "frequency-usage", "do-i-need-it", "choosing-theta",
    "image-and-video",
)  # fmt: skip
PAGES = (*(DOCS / f"{name}.md" for name in NAMES), DOCS.parent / "benchmarks" / "README.md")
USAGE = DOCS.parent / "results" / "frequency-usage" / "README.md"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

CONFIGS = DOCS.parent / "tests" / "rotary" / "config" / "published_configs"
THETAS = (  # of `thetas`: without a scaling rule, by context
    *(
        "llama-2-7b",
        "llama-3-8b",
        "codellama-7b",
        "mistral-7b-instruct-v0.3",
        "qwen2.5-3b-instruct",
    ),
    *("smollm3-3b", "yi-34b-200k", "qwen3-4b-thinking-2507"),
)
SCRIPTS = ("translation", "serving", "flex")  # of benchmarks; their tables are shown as printed
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


def thetas() -> str:
    """Return the context, head size and theta of some published models."""
    from ropewalk import ModelSpec

    sources = json.loads((CONFIGS / "sources.json").read_text(encoding="utf-8"))
    lines = []
    for name in THETAS:
        config = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
        ropes = [layer.rope for layer in ModelSpec.from_config(config).layers if layer.rope]
        numbers = (config["max_position_embeddings"], ropes[0].head_dim, round(ropes[0].theta))
        lines.append([sources[name]["model"], *(f"{number:,}" for number in numbers)])
    return as_table(["model", "context", "head_dim", "theta"], lines)


def faults() -> str:
    """Return the faults that `ropewalk verify` names."""
    from ropewalk.tools.verify import FAULTS

    return as_table(
        ["identifier", "what is wrong", "likely cause"],
        [[f"`{name}`", fault.what, fault.cause] for name, fault in FAULTS.items()],
    )


def image_ropes() -> str:
    """Return the rope and the positions of each class of diffusers, and how far its own are off."""
    same: dict[tuple[str, str, str], list[Any]] = {}
    for row in _results("diffusers-ropes")["rows"]:
        same.setdefault((row["spec"], row["positions"], row["stack"]), []).append(row)
    lines = []
    for (spec, positions, stack), rows in same.items():
        names = sorted(name for row in rows for name in row["classes"])
        short = [re.sub(r"Transformer(\dD)?(Model)?$|Model$", "", name) for name in names]
        off = f"{max(row['table_error'] for row in rows):.0e}"
        angle = max(row["angle"] for row in rows)
        named = ", ".join(short) + (f" ({stack})" if stack else "")
        lines.append([named, f"`{spec}`", f"`{positions}`", off, f"{angle:,.0f}"])
    return as_table(["model", "rope", "positions", "off by", "angles to"], sorted(lines))


def patched_steps() -> str:
    """Return how many times faster `patch` makes models of diffusers."""
    found = _results("patch-diffusers")
    lines = [
        [f"{row['model']}, {row['part']}", row["dtype"],
         *(_time(seconds) for seconds in row["seconds"].values()),
         f"{row['times_faster']['median']:.2f}"]
        for row in found["rows"]
    ]  # fmt: skip
    return as_table(["", "", "unpatched", "patched", "times faster"], lines)


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


def rotation_targets() -> str:
    """Return the targets of `rotation`, and what was measured, in float32 and bfloat16."""
    times = [{r["name"]: r["seconds"] for r in t["rows"]} for t in _results("rotation")["tables"]]
    own = [rows["ropewalk"] for rows in times]
    copying = [f"{own[i] / next(iter(times[i].values())):.2f}" for i in range(4)]
    other = [times[i % 2 if i < 4 else i]["transformers"] for i in range(8)]  # never in place
    faster = [f"{theirs / ours:.1f}" for theirs, ours in zip(other, own, strict=False)]
    lines = {
        "prefill in place: at most 1.2 of copying": copying[2:],
        "prefill into new memory: at most 1.3 of `clone`": copying[:2],
        "prefill in place: 15 and 25 times as fast as transformers into new memory": faster[2:4],
        "prefill into new memory: 4 times as fast as transformers": faster[:2],
        "training, forward and backward: 8 and 4 times as fast": faster[4:6],
        "decode at batch 1, tables included: 4 times as fast": faster[6:],
        "decode at batch 1, tables included: at most 12 µs": [_time(each) for each in own[6:8]],
    }
    return as_table(["target", "float32", "bfloat16"], [[t, *found] for t, found in lines.items()])


def instruction_sets() -> str:
    """Return the time of rotation by instruction set, as multiples of copying with AVX2."""
    ranges = [
        [each["dtype"], *(f"{min(n):.2f} to {max(n):.2f}" for n in each["of_copy"].values())]
        for each in _results("rotation-sets")["dtypes"]
    ]
    return as_table(["× copying", "AVX2", "AVX-512"], ranges)


def serving_targets() -> str:
    """Return how ropewalk's translation compares with the targets, greedily and with a beam."""
    lines: dict[str, list[str]] = {}
    for name in ("serving", "serving-avx2"):
        for search, start in (("greedy", 0), ("beam 4", 4)):
            ours, one, per_core, generate = _results(name)["rows"][start : start + 4]
            found = (generate["seconds"] / ours["seconds"], max(one["ratio"], per_core["ratio"]))
            goals = ("at least 3 times the speed of `generate`", "CTranslate2 at most × 1.5")
            for goal, number, kept in zip(
                goals, found, (found[0] >= 3, found[1] <= 1.5), strict=True
            ):
                verdict = f"{number:.2f}: {'reached' if kept else 'missed'}"
                lines.setdefault(f"{search}: {goal}", []).append(verdict)
    return as_table(
        ["target", "AVX-512", "AVX2"], [[goal, *found] for goal, found in lines.items()]
    )


def far_scores() -> str:
    """Return the errors of tables, vectors and scores just below the farthest position."""
    rows = [r for r in _results("exactness")["rows"] if (r["theta"], r["end"]) == (THETA, 10**7)]
    kinds = ("worst", "rms", "output", "score")
    lines = [[row["name"], *(f"{row[kind]:.1e}" for kind in kinds)] for row in rows]
    return as_table(["below 10,000,000, theta 10,000", *kinds], lines)


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


def _below(title: str) -> str:
    """Return the table below a title in the results on frequency usage."""
    section = USAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    return "".join(f"{line}\n" for line in section.splitlines() if line.startswith("|"))


def written(page: Path) -> str:
    """Return the text of a page with its tables written again."""
    models, peers = (_results(name)["models"] for name in ("training", "training-peers"))
    others: dict[str, Callable[[], str]] = {
        "usage_norms": partial(_below, "Squared norm by wavelength"),
        "usage_heads": partial(_below, "Heads"),
        "usage_cost": partial(_below, "p-RoPE without training"),
        "training": partial(_printed, "training", "base", models["base"]),
        "training_peers": partial(_printed, "training_peers", "cpu", peers["cpu"]["rows"]),
        **{name: partial(_printed, name, _results(name)) for name in SCRIPTS},
    }

    def table(found: re.Match[str]) -> str:
        make = others.get(found[2]) or globals()[found[2]]
        return f"{found[1]}{make()}{found[3]}"

    return BLOCK.sub(table, page.read_text(encoding="utf-8"))


def _printed(script: str, *given: Any) -> str:
    """Return the first table that a script of benchmarks prints for these results."""
    sys.path.insert(0, str(RESULTS.parent))
    sys.modules.pop("common", None)  # studies have a module of this name too
    try:
        shown = importlib.import_module(script).shown(*given)
    finally:
        sys.path.remove(str(RESULTS.parent))
        sys.modules.pop("common", None)
    return re.sub(r" +", " ", shown.partition("\n\n")[0]) + "\n"


def _results(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _time(seconds: float) -> str:
    number, unit = (seconds * 1e3, "ms") if seconds >= 1e-3 else (seconds * 1e6, "µs")
    return f"{number:.3g} {unit}" if number >= 100 else f"{number:#.3g} {unit}"


def _percent(share: float) -> str:
    percent = 100 * share
    if percent < 0.001:
        return "<\u00a00.001\u00a0%"
    return f"{percent:.0f}\u00a0%" if percent >= 10 else f"{percent:.2g}\u00a0%"


def as_table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns of numbers are aligned to the right."""
    numbers = [all(re.match(r"[\d–]", line[i]) for line in lines) for i in range(len(columns))]
    rule = ["--:" if is_number else "---" for is_number in numbers]
    return "".join(f"| {' | '.join(line)} |\n" for line in (columns, rule, *lines))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(written(page), encoding="utf-8")
        print(page)
