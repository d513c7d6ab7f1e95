"""The page: sections in their order, the figures' data, and the maps packed small."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from ropewalk.figures import interactive
from ropewalk.lab.report import findings, tables
from ropewalk.lab.checkpoint import read_json, write_bytes
from ropewalk.lab.report.series import by_length, curves, outcomes
from ropewalk.lab.report.parts import section_attention, section_translations, table_html

Facts = dict[str, Any]

LIMIT = 9_500_000  # bytes; the report is promised to stay under 10 MB
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def write_report(run: Path) -> Path:
    """Write ``report.html`` of a run from its results, examples and attention, and give its path."""
    results, examples, attention = (
        read_json(run / f"{name}.json") for name in ("results", "examples", "attention")
    )
    path = run / "report.html"
    write_bytes(path, report(results, examples, attention).encode())
    return path


def report(results: Facts, examples: Facts, attention: Facts, limit: int = LIMIT) -> str:
    """Give the page; sentences with attention maps are left out from the last on to keep the limit."""
    shown = len(attention["sentences"])
    while True:
        page = _page(results, examples, attention, shown)
        if shown == 0 or len(page.encode()) <= limit:
            return page
        shown -= 1


def script_json(value: Any) -> str:
    """Write JSON that can stand in a script element: no ``<``, and null for what is no number."""
    text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def packed(weights: Sequence[Sequence[float]]) -> str:
    """Write attention weights (S, T), row after row, as two characters each: thousandths in base 64."""
    thousandths = (round(1000 * weight) for row in weights for weight in row)
    return "".join(_DIGITS[n // 64] + _DIGITS[n % 64] for n in thousandths)


def _page(results: Facts, examples: Facts, attention: Facts, shown: int) -> str:
    from plotly.offline import get_plotlyjs  # late: only a report needs its script

    sections = {
        "Results": _results(results),
        "Sentence length": _length(results),
        "Training": _training(),
        "Translations": section_translations(results, examples),
        "Attention": section_attention(results, attention, shown),
        "Corpus": _facts(findings.corpus_facts(results)),
        "Conditions": _facts(findings.conditions(results)) + _config(results),
    }
    data = {"figures": _figures(results), "attention": _attention(attention, shown)}
    return Template(_asset("html")).substitute(
        title=escape(findings.title(results)),
        headline=escape(findings.headline(results)),
        contents="".join(f'<li><a href="#{_id(name)}">{name}</a></li>' for name in sections),
        sections="\n".join(
            f'<section id="{_id(name)}" aria-labelledby="{_id(name)}-title">'
            f'<h2 id="{_id(name)}-title">{name}</h2>\n{body}</section>'
            for name, body in sections.items()
        ),
        css=_asset("css"),
        js=_asset("js"),
        plotly=get_plotlyjs(),
        data=script_json(data),
    )


def _results(results: Facts) -> str:
    first = results["encodings"][0]["name"]
    note = (
        "Large: the mean; small: every seed, in the order of the config. "
        f"“Against {first}”: difference in mean BLEU and its 95 % interval. “At equal time”: validation "
        "loss after as much training time as the fastest run took. Extra parameters are those above "
        "the leanest model. tokens/s: real target tokens in training. Memory: peak, training and all."
    )
    parts = [
        table_html(results, tables.main_table(results), "All encodings"),
        f'<p class="note">{escape(note)}</p>',
        _plot(
            "outcome", "BLEU of each encoding: a dot for each seed, a bar for the mean", small=True
        ),
        "<h3>What the numbers show, and what they do not</h3>",
        _list(findings.findings(results)),
    ]
    if len(results["splits"]) > 1:
        parts.append("<h3>Other test splits</h3>")
        parts.append(table_html(results, tables.splits_table(results), "Other test splits"))
    runs = table_html(results, tables.runs_table(results), "Every training by itself")
    parts.append(f"<details><summary>Every run by itself</summary>{runs}</details>")
    signatures = "; ".join(f"{escape(s)}" for s in results["signatures"].values())
    parts.append(f'<p class="note">Scores by sacrebleu: <code>{signatures}</code></p>')
    return "\n".join(parts)


def _length(results: Facts) -> str:
    parts = []
    for place, split in enumerate(results["splits"]):
        parts.append(f"<h3>{escape(split)}</h3>")
        parts.append(
            _plot(
                f"length.{place}",
                f"BLEU on {split} by sentence length: lines join means, dots are seeds",
            )
        )
        table = table_html(results, tables.length_table(results, split), f"BLEU on {split}")
        parts.append(f"<details><summary>The numbers</summary>{table}</details>")
    return "\n".join(parts)


def _training() -> str:
    choice = (
        "<fieldset><legend>Against</legend>"
        '<label><input type="radio" name="against" value="steps" checked>steps</label>'
        '<label><input type="radio" name="against" value="seconds">seconds of training</label>'
        "</fieldset>"
    )
    panels = "".join(
        f"<div><h3>{what} loss</h3>{_plot(f'loss.steps.{what.lower()}', f'{what} loss')}</div>"
        for what in ("Training", "Validation")
    )
    note = (
        "Thin lines are seeds, bold ones their mean; a cross is where a run diverged. Training loss is "
        "that of label-smoothed batches with dropout, as a moving mean, so its level is not that of "
        "validation loss. The first steps rise out of the frame."
    )
    return f'{choice}<div class="pair">{panels}</div><p class="note">{note}</p>'


def _figures(results: Facts) -> Facts:
    against = {"steps": ("step", "steps", ""), "seconds": ("seconds", "seconds of training", " s")}
    return {
        "outcome": interactive.bleu_by_encoding(outcomes(results, results["splits"][0])),
        "length": [
            interactive.bleu_by_length(*by_length(results, split)) for split in results["splits"]
        ],
        "loss": {
            name: {
                kind: interactive.loss_curves(curves(results, kind, field), title, unit)
                for kind in ("training", "validation")
            }
            for name, (field, title, unit) in against.items()
        },
    }


def _attention(attention: Facts, shown: int) -> Facts | None:
    """Give the maps of the first sentences as the page's script reads them."""
    if not shown or not attention["encodings"]:
        return None
    return {
        slug: {
            "sentences": [
                {
                    site: {
                        "rows": held["rows"],
                        "columns": held["columns"],
                        "weights": [[packed(head) for head in layer] for layer in held["weights"]],
                    }
                    for site, held in sentence.items()
                }
                for sentence in maps["sentences"][:shown]
            ]
        }
        for slug, maps in attention["encodings"].items()
    }


def _plot(figure: str, label: str, *, small: bool = False) -> str:
    kind = "plot small" if small else "plot"
    return (
        f'<figure><div class="{kind}" data-figure="{escape(figure)}" role="img" '
        f'aria-label="{escape(label)}"></div><figcaption>{escape(label)}.</figcaption></figure>'
    )


def _facts(facts: list[tuple[str, str]]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts)
    return f'<dl class="facts">{rows}</dl>'


def _config(results: Facts) -> str:
    facts = [(name, json.dumps(v, ensure_ascii=False)) for name, v in results["config"].items()]
    return f"<details><summary>The whole config</summary>{_facts(facts)}</details>"


def _list(sentences: list[str]) -> str:
    return f'<ul class="findings">{"".join(f"<li>{escape(s)}</li>" for s in sentences)}</ul>'


def _id(name: str) -> str:
    return name.lower().replace(" ", "-")


def _asset(kind: str) -> str:
    return files("ropewalk.lab.report").joinpath(f"page.{kind}").read_text(encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(held) for name, held in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(held) for held in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
