"""The HTML page of a run: its sections, the data of its figures, and compact attention maps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

from ropewalk.figures import interactive
from ropewalk.figures.interactive import html_page, scheme_css
from ropewalk.files import MOST_DATA_BYTES, Facts, write_bytes
from ropewalk.lab.report import conditions, findings, tables, tuned
from ropewalk.lab.report.figure_data import by_length, by_multiple, curves, outcomes
from ropewalk.lab.report.formats import code_as_html
from ropewalk.lab.report.legend import interval_note, legend
from ropewalk.lab.report.metrics import (
    column_title,
    headline_metric,
    is_translation,
    tested_metric,
)
from ropewalk.lab.report.sections import section_attention, section_examples, table_html
from ropewalk.lab.results import read_results, read_summary

LIMIT = 9_500_000  # bytes; the documentation promises reports under 10 MB
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def write_report(run: Path) -> Path:
    """Write `report.html` of a run from its results, examples and attention; return its path."""
    results = read_results(run)
    examples = read_summary(run / "examples.json", "sentences")
    attention = read_summary(run / "attention.json", "sentences", most_bytes=MOST_DATA_BYTES)
    path = run / "report.html"
    write_bytes(path, report(results, examples, attention).encode())
    return path


def report(results: Facts, examples: Facts, attention: Facts, limit: int = LIMIT) -> str:
    """Return the page; maps of the last sentences are left out to stay within `limit` bytes."""
    shown = len(attention["sentences"])
    while True:
        page = _page(results, examples, attention, shown)
        if shown == 0 or len(page.encode()) <= limit:
            return page
        shown -= 1


def pack_weights(weights: Sequence[Sequence[float]]) -> str:
    """Return attention weights (S, T) as text, row by row, each as two digits in base 64.

    A number is in thousandths above -2.048, because linear attention can have weights outside
    0..1. Weights beyond -2.048 and 2.047 are clipped.
    """
    thousandths = (round(1000 * weight) for row in weights for weight in row)
    numbers = (min(max(n + 2048, 0), 4095) for n in thousandths)
    return "".join(_DIGITS[n // 64] + _DIGITS[n % 64] for n in numbers)


def _page(results: Facts, examples: Facts, attention: Facts, shown: int) -> str:
    translated = is_translation(results)
    several = len(results["splits"]) > 1
    sections = {
        "Results": _results(results),
        **({"Sentence length": _length(results)} if translated else {}),
        **({"Length": _multiples(results)} if several and not translated else {}),
        "Training": _training(results),
        **({"Settings": _sweep(results)} if tuned.is_tuned(results) else {}),
        "Translations" if translated else "Examples": section_examples(results, examples),
        "Attention": section_attention(results, attention, shown),
        "Corpus" if translated else "Task": _facts(conditions.corpus_facts(results)),
        "Conditions": _facts(conditions.conditions(results)) + _config(results),
    }
    body = Template(_asset("page.html")).substitute(
        title=escape(findings.title(results)),
        headline=code_as_html(findings.headline(results)),
        contents="".join(f'<li><a href="#{_id(name)}">{name}</a></li>' for name in sections),
        sections="\n".join(
            f'<section id="{_id(name)}" aria-labeledby="{_id(name)}-title">'
            f'<h2 id="{_id(name)}-title">{name}</h2>\n{body}</section>'
            for name, body in sections.items()
        ),
    )
    return html_page(
        findings.title(results),
        body.strip(),
        css=scheme_css() + _asset("page.css"),
        scripts=[_asset("plotly-basic.min.js"), _asset("page.js")],
        data={"figures": _figures(results), "attention": _attention(attention, shown)},
    )


def _results(results: Facts) -> str:
    rows, splits = results["encodings"], results["splits"]
    name = headline_metric(results)["name"]
    label = f"{_capital(name)} on {splits[0]}: dots are seeds, bars are means"
    plots = [_plot("outcome.score", label, rows=len(rows))]
    if any(row["summary"][splits[0]].get("versus_first") for row in rows):
        name = tested_metric(results)["name"]
        label = f"Difference in mean {name} from {rows[0]['name']}, with its 95 % interval"
        plots.append(_plot("outcome.difference", label, rows=len(rows)))
    parts = [
        table_html(results, tables.main_table(results), "All encodings"),
        f'<p class="note long">{code_as_html(legend(results))}</p>',
        f'<p class="note">{escape(note)}</p>' if (note := interval_note(results)) else "",
        f'<div class="pair">{"".join(plots)}</div>',
        "<h3>What the numbers show, and what they do not</h3>",
        _list(findings.findings(results)),
    ]
    if len(splits) > 1:
        others = "Other test splits" if is_translation(results) else "Other lengths"
        parts.append(f"<h3>{others}</h3>")
        parts.append(table_html(results, tables.splits_table(results), others))
    for name in results.get("against", ()):
        title = f"Compared with {name}"
        parts.append(f"<h3>{escape(title)}</h3>")
        parts.append(table_html(results, tables.against_table(results, name), title))
    runs = table_html(results, tables.runs_table(results), "Every run")
    parts.append(f"<details><summary>Every run</summary>{runs}</details>")
    if "signatures" in results:
        signatures = "<br>".join(
            f"<code>{escape(s)}</code>" for s in results["signatures"].values()
        )
        parts.append(f'<p class="note">Scores by sacrebleu:<br>{signatures}</p>')
    return "\n".join(parts)


def _length(results: Facts) -> str:
    parts = []
    for place, split in enumerate(results["splits"]):
        if not any(by_length(results, split)[1].values()):
            continue  # no run has a score on this split: the plot would be empty
        label = f"BLEU on {split} by sentence length: lines are means, dots are seeds"
        table = table_html(results, tables.length_table(results, split), f"BLEU on {split}")
        parts.append(
            f"<div><h3>{escape(split)}</h3>{_plot(f'length.{place}', label)}"
            f"<details><summary>Numbers</summary>{table}</details></div>"
        )
    if not parts:
        return '<p class="note">No run has a score.</p>'
    return f'<div class="pair">{"".join(parts)}</div>'


def _multiples(results: Facts) -> str:
    name, lengths = headline_metric(results)["name"], results["lengths"]
    label = (
        f"{_capital(name)} by length, trained on up to {lengths['trained']:,} {lengths['unit']}: "
        "lines are means, dots are seeds"
    )
    table = table_html(results, tables.multiples_table(results), f"{name} by length")
    return f"{_plot('multiples', label)}<details><summary>Numbers</summary>{table}</details>"


def _training(results: Facts) -> str:
    panels = "".join(
        f"<div><h3>{label}</h3>{_plot(f'loss.{kind}', label, caption=False)}</div>"
        for kind, label in (("training", "Training loss"), ("validation", "Validation loss"))
    )
    smoothing = "label smoothing, and with " if is_translation(results) else ""
    note = (
        "Thin lines are seeds, bold lines their mean; a cross marks a run that diverged. "
        "Training loss is a moving mean over batches. It is computed with "
        f"{smoothing}dropout if the config has it. So its level cannot be compared with that of "
        "validation loss. The first steps may be off the chart."
    )
    return f'<div class="pair">{panels}</div><p class="note long">{note}</p>'


def _sweep(results: Facts) -> str:
    parts = [f'<p class="note long">{code_as_html(" ".join(tuned.sentences(results)))}</p>']
    for table, title in (
        (tuned.training_trials(results), "Validation loss with each setting"),
        (tuned.decoding_trials(results), "Decoding settings on validation data"),
    ):
        if table is not None:
            parts.append(f"<h3>{title}</h3>{table_html(results, table, title)}")
    return "".join(parts)


def _figures(results: Facts) -> Facts:
    headline = outcomes(results, results["splits"][0])
    metric, tested = headline_metric(results), tested_metric(results)
    figures: Facts = {
        "outcome": {
            "score": interactive.score_by_encoding(headline, column_title(metric)),
            "difference": interactive.differences(headline, tested["name"]),
        },
        "loss": {
            kind: interactive.loss_curves(curves(results, kind), "steps")
            for kind in ("training", "validation")
        },
    }
    if is_translation(results):
        figures["length"] = [
            interactive.score_by_length(*by_length(results, split)) for split in results["splits"]
        ]
    elif len(results["splits"]) > 1:
        figures["multiples"] = interactive.score_by_length(**by_multiple(results))
    return figures


def _attention(attention: Facts, shown: int) -> Facts | None:
    """Return the maps of the first sentences in the form that the page's script reads."""
    if not shown or not attention["encodings"]:
        return None
    return {
        slug: {
            "sentences": [
                {
                    site: {
                        "rows": held["rows"],
                        "columns": held["columns"],
                        "weights": [
                            [pack_weights(head) for head in layer] for layer in held["weights"]
                        ],
                    }
                    for site, held in sentence.items()
                }
                for sentence in maps["sentences"][:shown]
            ]
        }
        for slug, maps in attention["encodings"].items()
    }


def _plot(figure: str, label: str, *, rows: int = 0, caption: bool = True) -> str:
    """Return the element of a figure; with `rows`, it is high enough for that many encodings."""
    height = f' style="height:{4 + 2.2 * rows:.1f}rem"' if rows else ""
    figcaption = f"<figcaption>{escape(label)}.</figcaption>" if caption else ""
    return (
        f'<figure><div class="plot" data-figure="{figure}" role="img" aria-label="{escape(label)}"'
        f"{height}></div>{figcaption}</figure>"
    )


def _facts(facts: list[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    return f'<dl class="facts">{rows}</dl>'


def _config(results: Facts) -> str:
    facts = [(name, json.dumps(v, ensure_ascii=False)) for name, v in results["config"].items()]
    return f"<details><summary>Full config</summary>{_facts(facts)}</details>"


def _list(sentences: list[str]) -> str:
    return f'<ul class="findings">{"".join(f"<li>{code_as_html(s)}</li>" for s in sentences)}</ul>'


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _id(name: str) -> str:
    return name.lower().replace(" ", "-")


def _asset(name: str) -> str:
    return files("ropewalk.lab.report").joinpath(name).read_text(encoding="utf-8")
