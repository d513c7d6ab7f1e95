"""The README of a results folder, written from its numbers alone."""

from __future__ import annotations

from html import escape
from pathlib import Path

from common import markdown_table, with_marked_part
from published_pictures import FORM, pictures_of

from ropewalk.figures.picture import picture_html
from ropewalk.lab.report import findings, provenance, tables
from ropewalk.lab.report.formats import (
    Table,
    TableCell,
    code,
    code_list,
    format_count,
    language_name,
)
from ropewalk.lab.report.tables import interval_note
from ropewalk.lab.results import Results, TranslationCorpus

#: Texts that results were trained on and a clone lacks, with the command that writes each.
TEXTS = {"debian-texts": "python studies/fetch_text.py debian-texts"}

_DOTS = "dots are seeds, bars are means; the right panel shows the difference from the baseline"
_LINES = "lines are means, small dots are seeds"
_CAPTIONS = {  # what a figure shows, and how to read it
    "bleu": ("BLEU on the first test split", _DOTS),
    "bleu-by-length": ("BLEU on the first test split by sentence length", _LINES),
    "score": ("The score on the first split", _DOTS),
    "score-by-length": ("The score by length, from the trained length on", _LINES),
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
    writes = TEXTS.get(results.config.data)
    commands = f"{writes}\n{results.command}" if writes else results.command
    parts = [
        f"# {escape_markdown(findings.title(results))}",
        "<!-- Generated from results.json; the next run overwrites it. -->",
        _question(results),
        f"```sh\n{commands}\n```",
        "## Result",
        f"**{code_as_markdown(findings.headline(results))}**",
        table_as_markdown(tables.main_table(results)),
        code_as_markdown(tables.legend(results)),
        *filter(None, [escape_markdown(interval_note(results))]),
        "\n".join(f"- {code_as_markdown(sentence)}" for sentence in findings.findings(results)),
    ]
    if len(results.splits) > 1:
        others = "Other test splits" if results.is_translation else "Other lengths"
        parts += [f"### {others}", table_as_markdown(tables.splits_table(results))]
    for name in results.against:
        parts += [
            f"### Compared with {escape_markdown(name)}",
            table_as_markdown(tables.against_table(results, name)),
            f"p is corrected (Holm) for all comparisons with `{name}` on the same "
            "split; the interval is not corrected.",
        ]
    drawn = pictures_of(results) if pictures else {}
    for name in pictures:
        shown, how = (escape_markdown(text) for text in _CAPTIONS[name.partition(".")[0]])
        alt = drawn[name].alt if name in drawn else shown
        both = picture_html(name, FORM, alt)
        picture = f"![{shown}]({name})" if name == FORMER_ATTENTION else both
        if name.startswith("attention") and results.config.attention != "softmax":
            how += "; weights of linear attention outside 0 to 1 are drawn as 0 or 1"
        parts.append(f"{picture}\n\n{shown}: {how}.")
    parts += _by_length(results)
    parts += ["## Every run", TIMES, table_as_markdown(tables.runs_table(results))]
    parts += _sweep(results)
    data, scores = "Task", "each test example's score"
    if results.is_translation:
        data, scores = "Corpus", "for each sentence the counts from which BLEU is computed"
    parts += [
        f"## {data}",
        _facts(provenance.corpus_facts(results)),
        "## Conditions",
        _facts(provenance.conditions(results)),
        f"`results.json` has the full config; `encodings.zip` has the loss curves and {scores}.",
    ]
    return "\n\n".join(parts) + "\n"


def with_excerpt(text: str, name: str, results: Results) -> str:
    """Return a README's text with these results' headline and table between the marks of `name`."""
    table = table_as_markdown(_means_table(results))
    body = f"{code_as_markdown(findings.headline(results))}\n\n{table}"
    if note := interval_note(results):
        body += f"\n\n{escape_markdown(note)}"
    return with_marked_part(text, f"result: {name}", body)


def _means_table(results: Results) -> Table:
    """Return the part of the main table that a reader needs first: means and their tests."""
    table = tables.main_table(results)
    verdict = table.columns.index("verdict")
    shown = (0, 1, verdict - 3, verdict - 2, verdict)  # name, score, difference, interval, verdict
    return Table(
        [table.columns[i] for i in shown], [[row[i].text for i in shown] for row in table.cells()]
    )


def _question(results: Results) -> str:
    rows, corpus = results.encodings, results.corpus
    trained = f"with each encoding ({code_list(row.name for row in rows)}), "
    trained += f"{findings.seeds_each(rows)} each. {_others(results)}"
    if not isinstance(corpus, TranslationCorpus):
        return code_as_markdown(
            f"Task: {findings.task_description(results)}. Question: how does the position "
            f"encoding affect the score? The same model was trained {trained}"
        )
    pairs = format_count(corpus.pairs["train"], "sentence pair")
    return code_as_markdown(
        f"Question: how does the position encoding affect translation from "
        f"{language_name(corpus.source)} to {language_name(corpus.target)}? The same "
        f"model was trained on {pairs} of the corpus {code(corpus.name)} {trained}"
    )


def _others(results: Results) -> str:
    text = "All other settings are the same."
    if tables.is_tuned(results):
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
        for split in results.splits:
            table = table_as_markdown(tables.length_table(results, split))
            parts += [f"`{split}`, by the number of words in the source:", table]
        return parts
    if len(results.splits) == 1:
        return []
    return ["## By length", table_as_markdown(tables.multiples_table(results))]


def _sweep(results: Results) -> list[str]:
    if not tables.is_tuned(results):
        return []
    return [
        "## Settings of each encoding",
        code_as_markdown(tables.how_tuned(results)),
        *map(table_as_markdown, tables.trials_tables(results).values()),
    ]


def _facts(facts: list[tuple[str, str]]) -> str:
    return "\n".join(f"- {escape_markdown(name)}: {escape_markdown(text)}" for name, text in facts)


def table_as_markdown(table: Table) -> str:
    """Return a table in Markdown, with all columns but the first aligned to the right."""

    def written(cell: TableCell) -> str:
        notes = escape_markdown(" · ".join((*cell.notes, *filter(None, [cell.beside]))))
        return escape_markdown(cell.text) + (f"<br><sub>{notes}</sub>" if notes else "")

    rows = [[written(cell) for cell in row] for row in table.cells()]
    return markdown_table([*map(escape_markdown, table.columns)], rows)


def code_as_markdown(text: str) -> str:
    """Escape a sentence, except the names that are marked as code."""
    parts = text.split("`")
    return "".join(f"`{part}`" if i % 2 else escape_markdown(part) for i, part in enumerate(parts))


def escape_markdown(text: str) -> str:
    """Escape the signs that are markup in Markdown or HTML."""
    for sign in "\\`*[]|":
        text = text.replace(sign, f"\\{sign}")
    return escape(text, quote=False)
