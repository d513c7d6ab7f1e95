"""The README of a results folder, written from its numbers alone."""

from __future__ import annotations

import re
from pathlib import Path

from ropewalk.figures.picture import picture_html
from ropewalk.lab.report import findings, provenance, tables, tuned
from ropewalk.lab.report.caveats import interval_note, legend
from ropewalk.lab.report.findings import seeds_each
from ropewalk.lab.report.formats import code, code_list, format_count, language_name
from ropewalk.lab.report.pictures import FORM, pictures_of
from ropewalk.lab.report.tables import Table, TableCell
from ropewalk.lab.results import Results, TranslationCorpus

#: Texts that results were trained on and a clone lacks, with the command that writes each.
TEXTS = {"debian-texts": "python studies/fetch_text.py debian-texts"}

_DOTS = "dots are seeds, bars are means; the right panel shows the difference from the baseline"
_LINES = "lines are means, small dots are seeds"
_CAPTIONS = {  # what a figure shows, and how to read it
    "bleu": (
        "BLEU on the first test split",
        _DOTS,
    ),
    "bleu-by-length": (
        "BLEU on the first test split by sentence length",
        _LINES,
    ),
    "score": (
        "The score on the first split",
        _DOTS,
    ),
    "score-by-length": (
        "The score by length, from the trained length on",
        _LINES,
    ),
    "loss": (
        "Training loss (moving mean) and validation loss",
        "thin lines are seeds, bold lines their mean",
    ),
    "attention": (
        "Self-attention of the first seed's model on one sequence, every head",
        "layers from top to bottom, heads from left to right; in each map, rows are queries and "
        "columns are keys, in order of position; color intensity is proportional to the "
        "square root of the weight, from 0 to 1",
    ),
}


#: In folders whose attention weights were not published: drawn once, in the light scheme only.
FORMER_ATTENTION = "attention.png"

#: Stands above the table of all trainings.
TIMES = "Times depend on what else ran on the machine, so they do not compare encodings."


def pictures_in(folder: Path) -> list[str]:
    """Return the names of the pictures in a results folder, in the order of its README."""
    names = [name for name in _CAPTIONS if (folder / f"{name}-light.{FORM}").exists()]
    return names + [FORMER_ATTENTION] * (folder / FORMER_ATTENTION).exists()


def readme(results: Results, pictures: list[str]) -> str:
    """Return the README of a results folder, in Markdown, written from its numbers alone."""
    parts = [
        f"# {_escape(findings.title(results))}",
        "<!-- Generated from results.json; the next run overwrites it. -->",
        _question(results),
        f"```sh\n{_commands(results)}\n```",
        "## Result",
        f"**{_prose(findings.headline(results))}**",
        _markdown(tables.main_table(results)),
        _prose(legend(results)),
        *filter(None, [_escape(interval_note(results))]),
        "\n".join(f"- {_prose(sentence)}" for sentence in findings.findings(results)),
    ]
    if len(results.splits) > 1:
        others = "Other test splits" if results.is_translation else "Other lengths"
        parts += [f"### {others}", _markdown(tables.splits_table(results))]
    for name in results.against:
        parts += [
            f"### Compared with {_escape(name)}",
            _markdown(tables.against_table(results, name)),
            f"p is corrected (Holm) for all comparisons with `{name}` on the same "
            "split; the interval is not corrected.",
        ]
    drawn = pictures_of(results) if pictures else {}
    for name in pictures:
        shown, how = (_escape(text) for text in _CAPTIONS[name.partition(".")[0]])
        alt = drawn[name].alt if name in drawn else shown
        both = picture_html(name, FORM, alt)
        picture = f"![{shown}]({name})" if name == FORMER_ATTENTION else both
        if name.startswith("attention") and results.config.attention != "softmax":
            how += "; weights of linear attention outside 0 to 1 are drawn as 0 or 1"
        parts.append(f"{picture}\n\n{shown}: {how}.")
    parts += _by_length(results)
    parts += ["## Every run", TIMES, _markdown(tables.runs_table(results))]
    parts += _sweep(results)
    data = "Corpus" if results.is_translation else "Task"
    parts += [f"## {data}", _facts(provenance.corpus_facts(results))]
    parts += ["## Conditions", _facts(provenance.conditions(results))]
    each = (
        "for each sentence the counts from which BLEU is computed"
        if results.is_translation
        else "each test example's score"
    )
    parts += [
        f"`results.json` has the full config; `encodings.zip` has the loss curves and {each}."
    ]
    return "\n\n".join(parts) + "\n"


def with_excerpt(text: str, name: str, results: Results) -> str:
    """Return a README's text with these results' headline and table between the marks of `name`."""
    marks = rf"(<!-- result: {re.escape(name)} -->\n).*?(<!-- end -->)"
    table = _means_table(results)
    body = f"{_prose(findings.headline(results))}\n\n{_markdown(table)}\n"
    if note := interval_note(results):
        body += f"\n{_escape(note)}\n"
    new, found = re.subn(marks, lambda m: f"{m[1]}{body}{m[2]}", text, flags=re.DOTALL)
    if not found:
        raise ValueError(f"the README has no marks <!-- result: {name} --> and <!-- end -->")
    return new


def _means_table(results: Results) -> Table:
    """Return the part of the main table that a reader needs first: means and their tests."""
    table = tables.main_table(results)
    verdict = table.columns.index("verdict")
    shown = (0, 1, verdict - 3, verdict - 2, verdict)  # name, score, difference, interval, verdict
    rows = tuple(tuple(TableCell(row[i].main) for i in shown) for row in table.rows)
    return Table(tuple(table.columns[i] for i in shown), rows)


def _question(results: Results) -> str:
    rows, corpus = results.encodings, results.corpus
    names = code_list(row.name for row in rows)
    seeds = seeds_each(rows)
    if not isinstance(corpus, TranslationCorpus):
        return _prose(
            f"Task: {findings.task_description(results)}. Question: how does the position "
            f"encoding affect the score? The same model was trained with each encoding "
            f"({names}), {seeds} each. {_others(results)}"
        )
    train = format_count(corpus.pairs["train"], "sentence pair")
    return _prose(
        f"Question: how does the position encoding affect translation from "
        f"{language_name(corpus.source)} to {language_name(corpus.target)}? The same "
        f"model was trained on {train} of the corpus {code(corpus.name)} with each encoding "
        f"({names}), {seeds} each. {_others(results)}"
    )


def _commands(results: Results) -> str:
    """Return the commands that make the results, with the one that writes their text."""
    writes = TEXTS.get(results.config.data)
    return f"{writes}\n{results.command}" if writes else results.command


def _others(results: Results) -> str:
    text = "All other settings are the same."
    if tuned.is_tuned(results):
        fields = code_list(results.config.sweep)
        verb = "was" if len(results.config.sweep) == 1 else "were"
        text = f"For each encoding, {fields} {verb} tuned; all other settings are the same."
    if results.config.imports:
        text += " The docstrings of the file after `--import` say what its encodings do."
    commits = {part.commit for part in results.parts}
    if len(commits) < 2:
        return text
    return (
        f"{text} The comparison was run in parts. They were scored at {len(commits)} commits of "
        "the code, and trained at these or earlier ones (see “Conditions”)."
    )


def _by_length(results: Results) -> list[str]:
    if results.is_translation:
        parts = ["## By sentence length"]
        for each in results.splits:
            table = _markdown(tables.length_table(results, each))
            parts += [f"`{each}`, by the number of words in the source:", table]
        return parts
    if len(results.splits) == 1:
        return []
    return ["## By length", _markdown(tables.multiples_table(results))]


def _sweep(results: Results) -> list[str]:
    if not tuned.is_tuned(results):
        return []
    tried = (tuned.training_trials(results), tuned.decoding_trials(results))
    return [
        "## Settings of each encoding",
        _prose(" ".join(tuned.sentences(results))),
        *(_markdown(table) for table in tried if table is not None),
    ]


def _markdown(table: Table) -> str:
    lines = [tuple(map(_escape, table.columns))]
    lines.append(tuple("---" if i == 0 else "--:" for i in range(len(table.columns))))
    lines += [tuple(_markdown_cell(cell) for cell in row) for row in table.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _markdown_cell(cell: TableCell) -> str:
    seeds = f"<br><sub>{_escape(' · '.join(cell.seeds))}</sub>" if cell.seeds else ""
    return f"{_escape(cell.main)}{seeds}"


def _facts(facts: list[tuple[str, str]]) -> str:
    return "\n".join(f"- {_escape(name)}: {_escape(text)}" for name, text in facts)


def _prose(text: str) -> str:
    """Escape a sentence, except the names that are marked as code."""
    parts = text.split("`")
    return "".join(f"`{part}`" if i % 2 else _escape(part) for i, part in enumerate(parts))


def _escape(text: str) -> str:
    """Escape the signs that are markup in Markdown or HTML."""
    for sign in "\\`*[]|":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
