"""The page of benchmarks has the numbers of the committed results.

Fails if a row of a table is not one that its script prints, or if results were replaced and the
sentences about them stayed.
"""

import json
import re
from pathlib import Path

from scripts import load_scripts

FOLDER = Path(__file__).parents[2] / "benchmarks"
PAGE = (FOLDER / "README.md").read_text("utf-8")
TEXT = " ".join(PAGE.split())
SCRIPTS = ("training", "training_peers", "translation", "serving", "exactness_report", "flex")


def results(name: str):
    return json.loads((FOLDER / "results" / f"{name}.json").read_text("utf-8"))


def test_rows_of_tables_are_those_that_the_scripts_print():
    training, peers, translation, serving, exactness, flex = load_scripts("benchmarks", *SCRIPTS)
    printed = [
        *(training.shown(name, each) for name, each in results("training")["models"].items()),
        peers.shown("cpu", results("training-peers")["models"]["cpu"]["rows"]),
        *(m.shown(results(n)) for m, n in ((translation, "translation"), (serving, "serving"))),
        *(m.shown(results(n)) for m, n in ((exactness, "exactness"), (flex, "flex"))),
    ]
    lines = {re.sub(r" +", " ", line) for text in printed for line in text.splitlines()}
    generated = re.sub(r"<!-- table: .*?<!-- end -->", "", PAGE, flags=re.DOTALL)
    rows = re.findall(r"^\|(?: .*)?(?:\| .*){4,}\|$", generated, re.MULTILINE)
    assert len(rows) > 50
    assert [row for row in rows if row not in lines and not row.startswith("| ---")] == []
    assert {line for line in lines if "(claimed" in line} <= set(re.findall(r"^- (.*)", PAGE, re.M))


def test_sentences_have_the_numbers_of_the_results():
    tables = [{r["name"]: r for r in each["rows"]} for each in results("rotation")["tables"]]
    copying = [f"{rows['ropewalk']['of_copy']:.2f}" for rows in tables[:4]]
    theirs = [tables[i % 2 if i < 4 else i]["transformers"]["seconds"] for i in range(8)]
    faster = [f"{t / r['ropewalk']['seconds']:.1f}" for t, r in zip(theirs, tables, strict=False)]
    phrases = [
        f"{copying[2]} (float32), {copying[3]} (bfloat16)",
        f"| {copying[0]}, {copying[1]} |",
    ]
    phrases += [f"| {faster[i]}, {faster[i + 1]}" for i in (0, 2, 4, 6)]
    for each in results("rotation-sets")["dtypes"]:
        ranges = [f"{min(found):.2f} to {max(found):.2f}" for found in each["of_copy"].values()]
        phrases.append(f"| {each['dtype']} | {' | '.join(ranges)} |")
    for rows in (results("serving")["rows"], results("serving-avx2")["rows"]):
        for ours, one_worker, workers, generate in (rows[:4], rows[4:8]):
            faster, best = (
                generate["seconds"] / ours["seconds"],
                max(one_worker["ratio"], workers["ratio"]),
            )
            phrases += [
                f"| {faster:.1f}: {'reached' if faster >= 3 else 'missed'}",
                f"| {best:.2f}: reached",
            ]
    dragged = [row["work_ms"] for row in results("dragging")["rows"]]
    work = [ms for moves in dragged for ms in moves]
    late = max(sorted(moves)[int(0.95 * (len(moves) - 1))] for moves in dragged)
    phrases += [f"needs {late:.1f} ms", f"Of all {len(work)} moves", f"frame: {max(work):.0f} ms"]
    assert [phrase for phrase in phrases if phrase not in TEXT] == []
