"""Publish a run in a folder for version control: numbers and figures, never corpus sentences.

`python studies/publish.py RUN_FOLDER FOLDER` writes the folder in the form that
`ropewalk.lab.published` describes, with the answers if the project generates the data. With a
README as third argument, the table between its marks `<!-- result: FOLDER -->` and `<!-- end -->`
is rewritten too. `--add` adds the run's cells to a published folder of the same comparison:
everything that decides a score must be the same in all parts (the task, its data, the config except
for what is compared, the precision, torch). Each part stores its own conditions with its cells.
`--readme FOLDER… [--overview README]` rewrites the READMEs of published folders from their numbers,
for when the wording has changed; numbers and pictures stay as they are. With `--draw`, the pictures
are drawn again too. `--retest FOLDER… [--against NAME]` repeats the tests on published scores, and
rewrites what depends on them.

Answers are published only if the project generates the data. The file of a cell and a split has a
line for each item: the translations of the built-in phrases, in the file whose SHA-256 is in the
scores; or the words of a generated task's answer, `=` if it is right. No sentence of any other
corpus is published.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from published_files import ANSWERS, item_columns, read_answers, write_published
from published_pictures import FORM, pictures_of, score_pictures
from published_readme import FORMER_ATTENTION, pictures_in, readme, with_excerpt

from ropewalk.checks import shown
from ropewalk.figures.interactive import without_nan
from ropewalk.figures.picture import Picture
from ropewalk.files import (
    MOST_DATA_BYTES,
    Facts,
    read_bytes,
    read_checked_json,
    read_json,
    write_bytes,
)
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS
from ropewalk.lab.report.verdicts import summarize, with_verdicts
from ropewalk.lab.results import (
    CONDITIONS,
    Attention,
    MetricFacts,
    Results,
    read_attention,
    read_results,
    read_summary,
)
from ropewalk.lab.tasks import CLASSES

BUILT_IN = "phrases"


def free_hypotheses(run: Path, results: Results) -> dict[str, bytes]:
    """Return the answers of a run that may be published: name in the archive -> content."""
    answers = {}
    for row in results.encodings:
        for cell in row.cells:
            folder = row.cell(cell.seed).folder(run)
            for split in results.splits:
                content = _content(folder, results, split)
                if content is None:
                    continue
                scored = cell.scores[split].hypotheses_sha256
                if scored not in (None, hashlib.sha256(content).hexdigest()):
                    raise ValueError(
                        "run must contain the translations that were scored, but "
                        f"{folder / split} has changed since; run the command of the run again"
                    )
                answers[f"{ANSWERS}/{row.slug}/seed-{cell.seed}.{split}.txt"] = content
    return answers


def _content(folder: Path, results: Results, split: str) -> bytes | None:
    if results.is_translation:
        path = folder / f"{split}.hypotheses.txt"
        # A user's own folder of this name has sentences of theirs.
        built_in = results.corpus.name == results.config.data == BUILT_IN
        return read_bytes(path, MOST_DATA_BYTES) if built_in and path.exists() else None
    path = folder / f"{split}.json"
    if results.task not in SEQUENCE_TASKS or not path.exists():
        return None
    facts = read_checked_json(path, most_bytes=MOST_DATA_BYTES)
    if "predictions" not in facts:
        return None
    words = SEQUENCE_TASKS[results.task].words
    pairs = zip(facts["predictions"], facts["statistics"]["exact"], strict=True)
    lines = ["=" if right else " ".join(words[i] for i in ids) for ids, right in pairs]
    return "".join(f"{line}\n" for line in lines).encode()


def publish(run: Path, folder: Path) -> None:
    """Write `results.json`, `encodings.zip`, figures and a README into `folder`.

    The same run gives the same bytes. Raises ValueError if the run has no `results.json`.
    """
    results = _results_of_run(run)
    write_published(folder, results.as_json(), free_hypotheses(run, results))
    rewrite_readme(folder, draw=True)


def add(run: Path, folder: Path) -> list[str]:
    """Add a run's cells to the published ones in `folder`, and rewrite what depends on them.

    Returns which packages had other versions. Raises ValueError that says what differs if the run
    is of another comparison; then nothing is written.
    """
    if not (folder / "results.json").exists():
        publish(run, folder)
        return []
    results, part = _published(folder), _results_of_run(run)
    there, here = results.as_json(), part.as_json()
    whole = with_part(there, here)
    readme(Results.model_validate(whole), [])  # an error is raised before anything is written
    write_published(folder, whole, read_answers(folder) | free_hypotheses(run, part))
    rewrite_readme(folder, draw=True)
    return other_versions(there, here)


def _results_of_run(run: Path) -> Results:
    """Return a run's results, its data's digest, and self-attention on the middle example."""
    if not os.path.exists(run / "results.json"):
        raise ValueError(f"run must be a finished run's folder, got {run}: it has no results.json")
    facts: Facts = without_nan(read_results(run).as_json())
    corpus = run / "corpus.json"
    if corpus.exists():
        facts["data_digest"] = read_summary(corpus, "digest")["digest"]
    for imported in facts["config"].get("imports", ()):  # identified by its digest; its path stays
        imported["source"] = Path(imported["source"]).name  # private
    results = Results.model_validate(facts)
    if not (run / "attention.json").exists():
        return results
    maps, rows = read_attention(run), list(results.encodings)
    middle, site = len(maps.sentences) // 2, "encoder" if results.is_translation else "self"
    for place, row in enumerate(rows):
        if maps.sentences and row.slug in maps.encodings:
            own, index = maps.encodings[row.slug], maps.sentences[middle].index
            weights = own.sentences[middle][site].weights
            shown = Attention(seed=own.seed, index=index, weights=weights)
            rows[place] = row.with_changes(attention=shown)
    return results.with_changes(encodings=tuple(rows))


def _write(folder: Path, drawn: Mapping[str, Picture]) -> None:
    for stem, picture in drawn.items():
        for name, content in picture.both(stem, FORM).items():
            write_bytes(folder / name, content)


def rewrite_readme(folder: Path, *, draw: bool = False) -> None:
    """Rewrite a published folder's README from its numbers; its pictures stay, unless `draw`.

    A picture of attention stays if the weights of one of the encodings are not known. Raises
    ValueError if the folder has no comparison.
    """
    results = _published(folder)
    if draw:
        drawn = pictures_of(results)
        _write(folder, drawn)
        if "attention" in drawn:
            (folder / FORMER_ATTENTION).unlink(missing_ok=True)
    text = readme(results, pictures_in(folder))
    write_bytes(folder / "README.md", text.encode())


def retest(folder: Path, against: Sequence[str] | None = None) -> None:
    """Repeat the tests on a published folder's scores; rewrite numbers, score figures and README.

    against: encodings to test against besides the first; if not given, those of last time. Raises
    ValueError if the folder has no comparison, or no encoding of such a name.
    """
    results = _published(folder)
    metrics = tuple(
        MetricFacts.model_validate(metric.facts()) for metric in CLASSES[results.task].metrics
    )
    judged = _judged(
        results.with_changes(metrics=metrics),
        results.against if against is None else against,
        set(results.against) - set(results.tested_later),
    )
    write_published(folder, judged.as_json(), read_answers(folder))
    _write(folder, score_pictures(judged))
    rewrite_readme(folder)


def _published(folder: Path) -> Results:
    path = folder / "results.json"
    if not path.exists() or "ropewalk" not in read_json(path):
        raise ValueError(f"folder must contain a published comparison, got {folder}")
    return read_results(folder)


def write_excerpt(overview: Path, folder: str) -> None:
    """Rewrite a folder's headline and table between its marks in a README."""
    text = with_excerpt(overview.read_text("utf-8"), folder, read_results(Path(folder)))
    write_bytes(overview, text.encode())


#: Fields of a config that may differ: what is compared, and what does not change a score.
FREE = ("encodings", "seeds", "preset", "device", "splits", "imports")
#: Facts of the data that must be the same if both parts have them.
DATA = (
    "data_digest",
    "corpus",
    "about",
    "splits",
    "lengths",
    "length_bins",
    "documents",
    "share_beyond_training",
    "signatures",
)
#: Facts that all seeds of an encoding share.
OF_AN_ENCODING = ("parameters", "settings")
MOST_NAMED = 5  # most differences that a message lists


def with_part(results: Facts, part: Facts) -> Facts:
    """Return results with the cells of a part added, with new verdicts.

    New encodings come after the others; a cell that was there is replaced.

    Raises:
        ValueError: the part is of another comparison; the message says what differs.
    """
    if mistakes := differences(results, part):
        more = f" and {len(mistakes) - MOST_NAMED} more" if len(mistakes) > MOST_NAMED else ""
        raise ValueError(
            f"run must be of the same comparison as the published results, but "
            f"{'; '.join(mistakes[:MOST_NAMED])}{more}; publish it into a folder of its own"
        )
    rows = {row["name"]: row for row in results["encodings"]}
    for row in part["encodings"]:
        rows[row["name"]] = _with_cells(rows[row["name"]], row) if row["name"] in rows else row
    metrics = [metric.facts() for metric in CLASSES[results["task"]].metrics]
    merged = {**part, **results, "metrics": metrics, "encodings": list(rows.values())}
    merged["config"] = _merged_config(results["config"], part["config"], merged["encodings"])
    summarize(merged["encodings"], merged["splits"], [metric["key"] for metric in metrics])
    against = results["against"] + part["against"]
    in_a_run = set[str]()
    for facts in (results, part):
        in_a_run |= set(facts["against"]) - set(facts.get("tested_later", ()))
    judged = _judged(Results.model_validate(merged), against, in_a_run)
    return with_conditions(judged.as_json(), _parts_with(parts_of(results), part))


def _judged(results: Results, against: Sequence[str], in_a_run: Collection[str]) -> Results:
    """Return results with new verdicts; those against encodings not `in_a_run` are made later."""
    judged = with_verdicts(results, against)
    later = tuple(name for name in judged.against if name not in in_a_run)
    return judged.with_changes(tested_later=later) if later else judged.without("tested_later")


def differences(results: Facts, part: Facts) -> list[str]:
    """Return how the comparison of a part differs from that of these results."""
    if part["task"] != results["task"]:
        return [f"task is {part['task']}, published {results['task']}"]
    known = all("data_digest" in facts for facts in (results, part))
    texts = _different(*(_shared_facts(facts, known) for facts in (results, part)))
    for split in results["splits"]:
        there, here = (item_columns(facts, split) for facts in (results, part))
        if there and here and there != here:
            texts.append(f"the items of {split} differ")
    rows = {row["name"]: row for row in results["encodings"]}
    for row in part["encodings"]:
        if published := rows.get(row["name"]):
            own = ({k: r.get(k) for k in OF_AN_ENCODING} for r in (published, row))
            texts += [f"{row['name']}: {text}" for text in _different(*own)]
            if "settings" in published and not _replaces(row, published):
                texts.append(
                    f"the settings of {row['name']} were chosen with all of its seeds, so all must "
                    f"be replaced"
                )
    return texts


def other_versions(results: Facts, part: Facts) -> list[str]:
    """Return which packages had other versions in a part, among those that may differ."""
    there, here = (
        {"ropewalk": facts["ropewalk"], **facts["versions"]} for facts in (results, part)
    )
    return [
        f"{name} is {here[name]}, published {there[name]}"
        for name in here
        if name != "torch" and name in there and here[name] != there[name]
    ]


def parts_of(results: Facts) -> list[Facts]:
    """Return the conditions of each part of results, and its cells: encoding -> seeds."""
    if "parts" in results:
        return list(results["parts"])
    cells = {row["name"]: [c["seed"] for c in row["cells"]] for row in results["encodings"]}
    return [{**{k: results[k] for k in CONDITIONS if k in results}, "cells": cells}]


def with_conditions(results: Facts, parts: Sequence[Facts]) -> Facts:
    """Return results with the conditions of these parts; one part alone needs no list of parts.

    With several parts, the command has a line for each, the start is the first, and durations are
    added.
    """
    plain = {name: value for name, value in results.items() if name != "parts"}
    plain |= {name: parts[0][name] for name in CONDITIONS if name in parts[0]}
    if len(parts) == 1:
        return plain
    return plain | {
        "parts": list(parts),
        "command": "\n".join(part["command"] for part in parts),
        "note": None,
        "sittings": sum(part["sittings"] for part in parts),
        "duration_s": round(sum(part["duration_s"] for part in parts), 1),
    }


def _parts_with(parts: Sequence[Facts], part: Facts) -> list[Facts]:
    """Return the parts with those of another, which replace the same cells in the old ones."""
    added = parts_of(part)
    taken = {(name, s) for new in added for name, seeds in new["cells"].items() for s in seeds}
    kept = []
    for old in parts:
        cells = {
            name: left
            for name, seeds in old["cells"].items()
            if (left := [seed for seed in seeds if (name, seed) not in taken])
        }
        if cells:
            kept.append({**old, "cells": cells})
    return sorted([*kept, *added], key=lambda facts: (facts["started"], facts["command"]))


def _replaces(row: Facts, published: Facts) -> bool:
    """Return whether a row has a cell for every seed of the published row."""
    here, there = ({cell["seed"] for cell in facts["cells"]} for facts in (row, published))
    return there <= here


def _with_cells(row: Facts, other: Facts) -> Facts:
    """Return a row with the cells of another run of the same encoding added."""
    if _replaces(other, row):
        return other
    cells = {cell["seed"]: cell for facts in (row, other) for cell in facts["cells"]}
    whole = {**other, **row, "cells": [cells[seed] for seed in sorted(cells)]}
    maps = [facts["attention"] for facts in (other, row) if "attention" in facts]
    if maps:  # for the same seed, the other run's: its cell has replaced the old one
        whole["attention"] = min(maps, key=lambda attention: attention["seed"])
    return whole


def _merged_config(config: Facts, other: Facts, rows: Sequence[Facts]) -> Facts:
    merged = dict(config)
    merged["encodings"] = [row["name"] for row in rows]
    merged["seeds"] = sorted({cell["seed"] for row in rows for cell in row["cells"]})
    imports = {
        imported["digest"]: imported
        for facts in (other, config)
        for imported in facts.get("imports", ())
    }
    if imports:
        merged["imports"] = [imports[digest] for digest in sorted(imports)]
    return merged


def _shared_facts(results: Facts, known: bool) -> Facts:
    """Return the facts that all parts share; of sentences about the data their numbers, since words
    may change. The path of the data is one of them unless both parts know its digest (`known`).
    """
    free = (*FREE, "data") if known else FREE
    fields = {"sweep": {}, **results["config"]}
    facts = {f"config {name}": value for name, value in fields.items() if name not in free}
    facts |= {name: results[name] for name in DATA if name in results}
    if "facts" in (corpus := results["corpus"]):
        numbers = [re.findall(r"\d[\d,.]*", text) for _, text in corpus["facts"]]
        facts["corpus"] = corpus | {"facts": numbers}
    facts["torch"] = results["versions"]["torch"].partition("+")[0]  # after the +: the build
    facts["precision"] = results["machine"]["precision"]
    return facts


def _different(there: Facts, here: Facts) -> list[str]:
    """Return the facts that both have and that differ."""
    return [
        f"{name} is {_short(here[name], there[name])}, published {_short(there[name], here[name])}"
        for name in there
        if name in here and there[name] != here[name]
    ]


def _short(value: Any, other: Any) -> str:
    """Show a value; of a dictionary, only the entries that differ from the other."""
    if isinstance(value, dict) and isinstance(other, dict):
        value = {name: own for name, own in value.items() if other.get(name) != own}
    return shown(value)


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish a run, and write its table into a README if one is given."""
    program = "python studies/publish.py"
    parser = argparse.ArgumentParser(prog=program, description="Publish a run.")
    option, marked = parser.add_argument, "a README with marks for the table"
    option("run", type=Path, nargs="?", help="folder of a finished run")
    option("folder", nargs="?", help="folder for results.json, figures and README")
    option("overview", type=Path, nargs="?", help=marked)
    option("--add", action="store_true", help="add the run's cells to those in the folder")
    option("--readme", nargs="+", metavar="FOLDER", help="rewrite these READMEs only")
    option("--draw", action="store_true", help="with --readme: draw pictures too")
    option("--retest", nargs="+", metavar="FOLDER", help="repeat the tests on the scores in these")
    against = "with --retest: test against this encoding too"
    option("--against", action="append", metavar="NAME", help=against)
    marked = f"with --readme and --retest: {marked}"
    option("--overview", type=Path, dest="marked", metavar="README", help=marked)
    options = parser.parse_args(arguments)
    try:
        if options.draw and options.readme is None:
            raise ValueError("--draw needs --readme with folders")
        if rewritten := [*(options.readme or ()), *(options.retest or ())]:
            if options.run is not None or options.add:
                raise ValueError(
                    "--readme and --retest take only their own folders, not a run or --add"
                )
            for folder in options.readme or ():
                rewrite_readme(Path(folder), draw=options.draw)
            for folder in options.retest or ():
                retest(Path(folder), options.against)
            for folder in rewritten:
                mark = f"<!-- result: {folder} -->"
                if options.marked is not None and mark in options.marked.read_text("utf-8"):
                    write_excerpt(options.marked, folder)
            return
        if options.folder is None:
            raise ValueError("give a run and a folder, or --readme or --retest with folders")
        if options.add:
            for text in add(options.run, Path(options.folder)):
                print(f"warning: {text}", file=sys.stderr)
        else:
            publish(options.run, Path(options.folder))
        if options.overview is not None:
            write_excerpt(options.overview, options.folder)
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
