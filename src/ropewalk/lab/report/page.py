"""The HTML page of a run: its sections, the data of its figures, and compact attention maps.

Text from corpora and users is escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from textwrap import shorten

from ropewalk.figures import interactive
from ropewalk.figures.drawing import COLORS, style
from ropewalk.figures.interactive import html_page, scheme_css
from ropewalk.files import Facts, write_bytes
from ropewalk.lab.report import findings, provenance, tables
from ropewalk.lab.report.formats import Table, code_as_html, column_title, format_number
from ropewalk.lab.report.pictures import by_length, by_multiple, curves, outcomes
from ropewalk.lab.results import (
    AttentionMap,
    AttentionMaps,
    EncodingMaps,
    EncodingResults,
    Examples,
    ExampleSentence,
    Results,
    TranslationCorpus,
    read_attention,
    read_examples,
    read_results,
)

LIMIT = 9_500_000  # bytes; the documentation promises reports under 10 MB
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
MENU = 80  # maximum number of characters of a sentence in a menu
OPEN = 5  # sentences that are visible before the reader unfolds the others

_SHAPES = {  # in a square of side 12
    "circle": '<circle cx="6" cy="6" r="5"/>',
    "square": '<rect x="1.5" y="1.5" width="9" height="9"/>',
    "diamond": '<path d="M6 0l6 6-6 6-6-6z"/>',
    "triangle-up": '<path d="M6 .5l6 10.5H0z"/>',
    "triangle-down": '<path d="M6 11.5L0 1h12z"/>',
    "star": '<path d="M6 0l1.5 4.2 4.5.2-3.5 2.8 1.2 4.3L6 9l-3.7 2.5 1.2-4.3L0 4.4l4.5-.2z"/>',
    "hexagon": '<path d="M6 .5l5 2.7v5.6l-5 2.7-5-2.7V3.2z"/>',
}
_PANEL = (
    '<div class="map"></div><p class="said"></p>'
    '<div class="heads" role="group" aria-label="All heads"></div>'
)
_GAP = '<span class="gap">[…]</span>'
_SIDES = ("source", "reference")
_SITES = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
    "self": "self-attention",
}


def encoding_label(results: Results, name: str) -> str:
    """Return an encoding's name as HTML, after the symbol in the encoding's color."""
    names = [row.name for row in results.encodings]
    look = style(names.index(name))
    return (
        f'<svg class="key" viewBox="0 0 12 12" fill="var(--mark{COLORS.index(look.color)})" '
        'aria-hidden="true">'
        f"{_SHAPES[look.symbol]}</svg>{escape(name)}"
    )


def _table(results: Results, table: Table, caption: str) -> str:
    names = (row.name for row in results.encodings)
    return table.html(caption, {name: encoding_label(results, name) for name in names})


def section_examples(results: Results, examples: Examples) -> str:
    """Return example inputs with their references and the output of every encoding."""
    sentences = [_sentence(results, examples, sentence) for sentence in examples.sentences]
    rest = "".join(sentences[OPEN:])
    more = (
        f"<details><summary>{len(sentences) - OPEN} more</summary>{rest}</details>" if rest else ""
    )
    counts = findings.sentence_counts(results, examples.split)
    counted = "".join(f"<li>{code_as_html(sentence)}</li>" for sentence in counts)
    note = (
        f"Selection rule: {code_as_html(examples.rule)}. A word is <mark>highlighted</mark> if the "
        f"reference has another word at that place; {_GAP} stands for words of the reference that "
        "are missing."
    )
    if results.is_translation:
        note += (
            " A different wording can be an equally good translation. The small number is the "
            "sentence's BLEU."
        )
    above = f'<ul class="findings">{counted}</ul>' if counts else ""
    return f'{above}<p class="note">{note}</p>{"".join(sentences[:OPEN])}{more}'


def section_attention(results: Results, attention: AttentionMaps, shown: int) -> str:
    """Return the menus and an empty panel for each encoding, which the page's script fills."""
    sentences = attention.sentences
    rule = f'<p class="note">Selection rule: {escape(attention.rule)}.'
    if shown < len(sentences):
        rule += (
            f" This page has the maps of {shown} of these {len(sentences)} sentences; the other "
            "maps are left out to keep this file under 10 MB."
        )
    rule += "</p>"
    maps = attention.encodings
    if not shown or not maps:
        return f"{rule}<p>There are no maps to show.</p>"
    first = next(iter(maps.values())).sentences[0]
    sites = [(site, label) for site, label in _SITES.items() if site in first]
    weights = first[sites[0][0]].weights
    pieces = any(token.startswith("▁") for of_site in first.values() for token in of_site.rows)
    mark = " A token that begins a word is shown with ·." if pieces else ""
    heads = [str(i + 1) for i in range(len(weights[0]))]
    linear = results.config.attention != "softmax"
    rows = (
        "with rotated features, a row may not sum to 1, and weights below 0 are blank"
        if linear
        else "each row sums to 1"
    )
    texts = [shorten(sentence.source, MENU, placeholder=" …") for sentence in sentences[:shown]]
    choices = (
        _select("site", "Attention", sites, hidden=len(sites) == 1)
        + _select("sentence", "Sentence", _numbered(texts))
        + _select("layer", "Layer", _numbered([str(i + 1) for i in range(len(weights))]))
        + _select("head", "Head", [*_numbered(heads), (str(len(heads)), "mean of all")])
    )
    panels = "".join(_panel(results, row, maps) for row in results.encodings)
    panels += _difference_panel(results, maps)
    return (
        f'{rule}<div class="choose">{choices}</div>'
        f'<p class="note long">Rows are queries, columns are keys; {rows}. Point at a cell, tap '
        "it or use the arrow keys to see the cell's weight in all maps. The small maps below show "
        f"all heads of all layers, and the mean of each layer.{mark}</p>"
        f'{_scale(both=len(maps) > 1)}<div class="maps">{panels}</div>'
    )


def _sentence(results: Results, examples: Examples, sentence: ExampleSentence) -> str:
    ignore_case = results.config.lowercase
    corpus, asked, right = results.corpus, "", ""
    if isinstance(corpus, TranslationCorpus):
        asked, right = (f' lang="{escape(name)}"' for name in (corpus.source, corpus.target))
    terms = examples.terms or _SIDES
    where = "" if sentence.split is None else f", {sentence.split}"
    rows = [
        (escape(f"{terms[0]}{where}"), f"<span{asked}>{escape(sentence.source)}</span>"),
        (escape(terms[1]), f"<span{right}>{escape(sentence.reference)}</span>"),
    ]
    for row in results.encodings:
        text, cell = sentence.hypotheses.get(row.slug), row.cells[0]
        if row.has_diverged:
            answer = '<span class="score">no output: the run diverged</span>'
        elif text is None:
            reason = cell.scores[sentence.split or examples.split].no_result
            reason = escape(reason or "there is no result")
            answer = f'<span class="score">no output: {reason}</span>'
        else:
            marked = mark_differences(text, sentence.reference, ignore_case=ignore_case)
            answer = f"<span{right}>{marked}</span>"
            scores = cell.scores[examples.split].sentence_bleu or []
            if sentence.index < len(scores):
                answer += f' <span class="score">{format_number(scores[sentence.index], 0)}</span>'
        rows.append((encoding_label(results, row.name), answer))
    lines = "".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in rows)
    return f'<article class="sentence"><dl>{lines}</dl></article>'


def mark_differences(hypothesis: str, reference: str, *, ignore_case: bool = False) -> str:
    """Return the hypothesis as HTML, with marks where it differs from the reference."""
    words, wanted = hypothesis.split(), reference.split()
    left, right = ([w.lower() for w in ws] if ignore_case else ws for ws in (wanted, words))
    parts: list[str] = []
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for kind, _, _, start, stop in matcher.get_opcodes():
        text = escape(" ".join(words[start:stop]))
        if kind == "equal":
            parts.append(text)
        elif kind == "delete":
            parts.append(_GAP)
        else:
            parts.append(f"<mark>{text}</mark>")
    return " ".join(parts)


def _panel(results: Results, row: EncodingResults, maps: Mapping[str, EncodingMaps]) -> str:
    name = encoding_label(results, row.name)
    if row.slug not in maps:
        return f'<figure><h3>{name}</h3><p class="note">No maps: the run diverged.</p></figure>'
    return (
        f'<figure class="panel" data-slug="{escape(row.slug)}" '
        f'data-name="{escape(row.name)}"><h3>{name}</h3>{_PANEL}</figure>'
    )


def _difference_panel(results: Results, maps: Mapping[str, EncodingMaps]) -> str:
    """Return the panel of one encoding's weights minus another's; empty for one encoding."""
    names = [(row.slug, row.name) for row in results.encodings if row.slug in maps]
    if len(names) < 2:
        return ""
    choices = _select("more", "Weight of", [names[1], names[0], *names[2:]])
    choices += _select("less", "minus that of", names)
    return (
        '<figure class="panel" data-name="difference"><h3>Difference between two encodings</h3>'
        f'<div class="choose">{choices}</div>{_PANEL}</figure>'
    )


def _scale(*, both: bool) -> str:
    """Return the color bars: one scale for all maps, and one for all differences."""
    bars = _bar("weight", [0, 0.01, 0.1, 0.25, 0.5, 1])
    if both:
        bars += _bar("difference", [-1, -0.5, -0.1, 0, 0.1, 0.5, 1])
    return (
        f'<div class="scales">{bars}</div><p class="note">Color intensity is '
        f"proportional to the square root of the weight{' or the size of the difference' * both}. "
        "All maps share one scale.</p>"
    )


def _bar(name: str, marks: list[float]) -> str:
    ticks, signed = "", min(marks) < 0
    for value in marks:
        place = math.copysign(math.sqrt(abs(value)), value)
        text = format_number(value, 2 if abs(value) in (0.01, 0.25) else 1 if value % 1 else 0)
        ticks += (
            f'<span style="left:{100 * ((place + 1) / 2 if signed else place):.1f}%">'
            f"{'+' * (signed and value > 0)}{text}</span>"
        )
    return (
        f'<div class="scale"><span>{name}</span><div class="bar {name}s"></div>'
        f'<div class="ticks" aria-hidden="true">{ticks}</div></div>'
    )


def _numbered(texts: list[str]) -> list[tuple[str, str]]:
    return [(str(i), text) for i, text in enumerate(texts)]


def _select(name: str, label: str, options: list[tuple[str, str]], *, hidden: bool = False) -> str:
    entries = "".join(f'<option value="{value}">{escape(text)}</option>' for value, text in options)
    away = " hidden" if hidden else ""
    return f'<label{away}>{label}<select id="choose-{name}">{entries}</select></label>'


def write_report(run: Path) -> Path:
    """Write `report.html` of a run from its results, examples and attention; return its path."""
    path = run / "report.html"
    text = report(read_results(run), read_examples(run), read_attention(run))
    write_bytes(path, text.encode())
    return path


def report(
    results: Results, examples: Examples, attention: AttentionMaps, limit: int = LIMIT
) -> str:
    """Return the page; maps of the last sentences are left out to stay within `limit` bytes."""
    shown = len(attention.sentences)
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


def packed(sites: Mapping[str, AttentionMap]) -> Facts:
    """Return maps by site as pages read them: a text for each head of each layer."""
    return {
        site: {
            "rows": maps.rows,
            "columns": maps.columns,
            "weights": [[pack_weights(head) for head in layer] for layer in maps.weights],
        }
        for site, maps in sites.items()
    }


def _page(results: Results, examples: Examples, attention: AttentionMaps, shown: int) -> str:
    translated = results.is_translation
    several = len(results.splits) > 1
    config = [
        (name, json.dumps(value, ensure_ascii=False))
        for name, value in results.config.facts().items()
    ]
    sections = {
        "Results": _results(results),
        **({"Sentence length": _length(results)} if translated else {}),
        **({"Length": _multiples(results)} if several and not translated else {}),
        "Training": _training(results),
        **({"Settings": _sweep(results)} if tables.is_tuned(results) else {}),
        "Translations" if translated else "Examples": section_examples(results, examples),
        "Attention": section_attention(results, attention, shown),
        "Corpus" if translated else "Task": _facts(provenance.corpus_facts(results)),
        "Conditions": f"{_facts(provenance.conditions(results))}<details><summary>Full config"
        f"</summary>{_facts(config)}</details>",
    }
    body = Template(_asset("page.html")).substitute(
        title=escape(findings.title(results)),
        headline=code_as_html(findings.headline(results)),
        contents="".join(f'<li><a href="#{_id(name)}">{name}</a></li>' for name in sections),
        sections="\n".join(
            f'<section id="{_id(name)}" aria-labelledby="{_id(name)}-title">'
            f'<h2 id="{_id(name)}-title">{name}</h2>\n{body}</section>'
            for name, body in sections.items()
        ),
    )
    return html_page(
        findings.title(results),
        body.strip(),
        css=scheme_css() + _asset("page.css"),
        scripts=[_asset("plotly-basic.min.js"), _asset("page.js")],
        data={
            "figures": _figures(results),
            "attention": _attention(attention, shown),
            "marks": COLORS,
        },
    )


def _results(results: Results) -> str:
    rows, splits = results.encodings, results.splits
    name = results.headline_metric.name
    label = f"{_capital(name)} on {splits[0]}: dots are seeds, bars are means"
    plots = [_plot("outcome.score", label, rows=len(rows))]
    if any(row.summary[splits[0]].versus_first for row in rows):
        name = results.tested.name
        label = f"Difference in mean {name} from {rows[0].name}, with its 95 % interval"
        plots.append(_plot("outcome.difference", label, rows=len(rows)))
    sentences = "".join(f"<li>{code_as_html(s)}</li>" for s in findings.findings(results))
    parts = [
        _table(results, tables.main_table(results), "All encodings"),
        f'<p class="note long">{code_as_html(tables.legend(results))}</p>',
        f'<p class="note">{escape(note)}</p>' if (note := tables.interval_note(results)) else "",
        f'<div class="pair">{"".join(plots)}</div>',
    ]
    if sentences:
        parts.append("<h3>What the numbers show, and what they do not</h3>")
        parts.append(f'<ul class="findings">{sentences}</ul>')
    if len(splits) > 1:
        others = "Other test splits" if results.is_translation else "Other lengths"
        parts.append(f"<h3>{others}</h3>")
        parts.append(_table(results, tables.splits_table(results), others))
    for name in results.against:
        title = f"Compared with {name}"
        parts.append(f"<h3>{escape(title)}</h3>")
        parts.append(_table(results, tables.against_table(results, name), title))
    runs = _table(results, tables.runs_table(results), "Every run")
    parts.append(f"<details><summary>Every run</summary>{runs}</details>")
    if results.signatures:
        signatures = "<br>".join(f"<code>{escape(s)}</code>" for s in results.signatures.values())
        parts.append(f'<p class="note">Scores by sacrebleu:<br>{signatures}</p>')
    return "\n".join(parts)


def _length(results: Results) -> str:
    parts = []
    for place, split in enumerate(results.splits):
        if not any(by_length(results, split)[1].values()):
            continue  # no run has a score on this split: the plot would be empty
        label = f"BLEU on {split} by sentence length: lines are means, dots are seeds"
        table = _table(results, tables.length_table(results, split), f"BLEU on {split}")
        parts.append(
            f"<div><h3>{escape(split)}</h3>{_plot(f'length.{place}', label)}"
            f"<details><summary>Numbers</summary>{table}</details></div>"
        )
    if not parts:
        return '<p class="note">No run has a score.</p>'
    return f'<div class="pair">{"".join(parts)}</div>'


def _multiples(results: Results) -> str:
    name, lengths = results.headline_metric.name, results.lengths
    assert lengths is not None
    label = (
        f"{_capital(name)} by length, trained on up to {lengths.trained:,} {lengths.unit}: "
        "lines are means, dots are seeds"
    )
    table = _table(results, tables.multiples_table(results), f"{name} by length")
    return f"{_plot('multiples', label)}<details><summary>Numbers</summary>{table}</details>"


def _training(results: Results) -> str:
    panels = "".join(
        f"<div><h3>{label}</h3>{_plot(f'loss.{kind}', label, caption=False)}</div>"
        for kind, label in (("training", "Training loss"), ("validation", "Validation loss"))
    )
    smoothing = "label smoothing, and with " if results.is_translation else ""
    note = (
        "Thin lines are seeds, bold lines their mean; a cross marks a run that diverged. "
        "Training loss is a moving mean over batches. It is computed with "
        f"{smoothing}dropout if the config has it. So its level cannot be compared with that of "
        "validation loss. The first steps may be off the chart."
    )
    return f'<div class="pair">{panels}</div><p class="note long">{note}</p>'


def _sweep(results: Results) -> str:
    parts = [f'<p class="note long">{code_as_html(tables.how_tuned(results))}</p>']
    for title, table in tables.trials_tables(results).items():
        parts.append(f"<h3>{title}</h3>{_table(results, table, title)}")
    return "".join(parts)


def _figures(results: Results) -> Facts:
    headline = outcomes(results, results.splits[0])
    metric, tested = results.headline_metric, results.tested
    figures: Facts = {
        "outcome": {
            "score": interactive.score_by_encoding(headline, column_title(metric)),
            "difference": interactive.differences(headline, tested.name),
        },
        "loss": {
            "training": interactive.loss_curves(curves(results, "training"), "steps"),
            "validation": interactive.loss_curves(curves(results, "validation"), "steps"),
        },
    }
    if results.is_translation:
        figures["length"] = [
            interactive.score_by_length(*by_length(results, split)) for split in results.splits
        ]
    elif len(results.splits) > 1:
        figures["multiples"] = interactive.score_by_length(**by_multiple(results))
    return figures


def _attention(attention: AttentionMaps, shown: int) -> Facts | None:
    """Return the maps of the first sentences in the form that the page's script reads."""
    if not shown or not attention.encodings:
        return None
    return {
        slug: {"sentences": [packed(sentence) for sentence in encoding.sentences[:shown]]}
        for slug, encoding in attention.encodings.items()
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


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _id(name: str) -> str:
    return name.lower().replace(" ", "-")


def _asset(name: str) -> str:
    return files("ropewalk.lab.report").joinpath(name).read_text(encoding="utf-8")
