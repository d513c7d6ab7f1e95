"""The table of a comparison, on a terminal."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

Facts = dict[str, Any]


def print_table(console: Console, results: Facts) -> None:
    """Print what each encoding scored, and what it cost."""
    rows, splits = results["encodings"], results["splits"]
    head, first = splits[0], rows[0]["name"]
    others = [f"BLEU {split}" for split in splits[1:]]
    scored = _table("encoding", f"BLEU {head}", "each seed", "chrF", *others)
    cost = _table("encoding", "validation loss", "parameters", "tokens/s", "peak memory")
    for row in rows:
        bleu = row["summary"][head]["bleu"]
        scored.add_row(
            row["name"],
            _number(bleu["mean"], 2),
            " ".join(_number(value, 1) for value in bleu["values"]),
            _number(row["summary"][head]["chrf"]["mean"], 2),
            *(_number(row["summary"][split]["bleu"]["mean"], 2) for split in splits[1:]),
        )
        cost.add_row(
            row["name"],
            _number(row["validation_loss"]["mean"], 3),
            f"{row['parameters']:,}",
            f"{row['tokens_per_s']['mean']:,.0f}",
            f"{row['peak_memory_bytes']['mean'] / 2**20:,.0f} MiB",
        )
    console.print()
    console.print(scored)
    for row in rows:
        for split in splits:
            versus = row["summary"][split]["versus_first"]
            if versus is not None:
                console.print(_said(row["name"], first, split, versus), highlight=False)
    if len(results["config"]["seeds"]) == 1 and len(rows) > 1:
        console.print(
            "One seed: this holds for these trained models, not for the encodings.", highlight=False
        )
    console.print()
    console.print(cost)
    for name in ("bleu", "chrf"):
        console.print(f"{name} signature: {results['signatures'][name]}", highlight=False)


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=not i)
    return table


def _said(name: str, first: str, split: str, versus: Facts) -> str:
    verdict = versus["verdict"]
    if verdict != "no difference shown":
        verdict = f"{verdict} than {first}"
    return (
        f"{name} on {split}: {versus['difference']:+.2f} BLEU against {first}, 95% interval "
        f"{versus['low']:+.2f} to {versus['high']:+.2f}, p {versus['p_holm']:.4f}: {verdict}"
    )


def _number(value: float | None, digits: int) -> str:
    return "diverged" if value is None else f"{value:.{digits}f}"
