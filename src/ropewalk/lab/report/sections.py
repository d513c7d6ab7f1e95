"""Tables, translations and attention panels as HTML; text from corpora and users is escaped."""

from __future__ import annotations

import math
from difflib import SequenceMatcher
from html import escape
from textwrap import shorten

from ropewalk.figures.drawing import style
from ropewalk.files import Facts
from ropewalk.lab.report.formats import format_number
from ropewalk.lab.report.metrics import is_translation
from ropewalk.lab.report.tables import Table, TableCell

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


def encoding_label(results: Facts, name: str) -> str:
    """Return an encoding's name as HTML, after the symbol in the encoding's color."""
    names = [row["name"] for row in results["encodings"]]
    look = style(names.index(name))
    return (
        f'<svg class="key" viewBox="0 0 12 12" fill="{look.color}" aria-hidden="true">'
        f"{_SHAPES[look.symbol]}</svg>{escape(name)}"
    )


def table_html(results: Facts, table: Table, caption: str) -> str:
    """Return a table as HTML; on a narrow page each row is a list of its cells with their titles.

    The ARIA roles make both layouts a table for screen readers.
    """
    head = "".join(_title(title) for title in table.columns)
    names = {row["name"] for row in results["encodings"]}
    body = "".join(
        '<tr role="row">'
        + "".join(
            _table_cell(results, cell, i, names, title)
            for i, (cell, title) in enumerate(zip(row, table.columns, strict=True))
        )
        + "</tr>"
        for row in table.rows
    )
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}" tabindex="0">'
        '<table role="table">'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table></div>'
    )


def section_examples(results: Facts, examples: Facts) -> str:
    """Return example inputs with their references and the output of every encoding."""
    sentences = [_sentence(results, examples, sentence) for sentence in examples["sentences"]]
    rest = "".join(sentences[OPEN:])
    more = (
        f"<details><summary>{len(sentences) - OPEN} more</summary>{rest}</details>" if rest else ""
    )
    note = (
        f"Selection rule: {escape(examples['rule'])}. A word is <mark>highlighted</mark> if the "
        f"reference has another word at that place; {_GAP} stands for words of the reference that "
        "are missing."
    )
    if is_translation(results):
        note += (
            " A different wording can be an equally good translation. The small number is the "
            "sentence's BLEU."
        )
    return f'<p class="note">{note}</p>{"".join(sentences[:OPEN])}{more}'


def section_attention(results: Facts, attention: Facts, shown: int) -> str:
    """Return the menus and an empty panel for each encoding, which the page's script fills."""
    sentences = attention["sentences"]
    rule = f'<p class="note">Selection rule: {escape(attention["rule"])}.'
    if shown < len(sentences):
        rule += (
            f" This page has the maps of {shown} of these {len(sentences)} sentences; the other "
            "maps are left out to keep this file under 10 MB."
        )
    rule += "</p>"
    maps = attention["encodings"]
    if not shown or not maps:
        return f"{rule}<p>There are no maps to show.</p>"
    first = next(iter(maps.values()))["sentences"][0]
    sites = [(site, label) for site, label in _SITES.items() if site in first]
    weights = first[sites[0][0]]["weights"]
    pieces = any(token.startswith("▁") for held in first.values() for token in held["rows"])
    mark = " A token that begins a word is shown with ·." if pieces else ""
    heads = [str(i + 1) for i in range(len(weights[0]))]
    linear = results["config"].get("attention", "softmax") != "softmax"
    rows = (
        "with rotated features, a row may not sum to 1, and weights below 0 are blank"
        if linear
        else "each row sums to 1"
    )
    texts = [_short(sentence["source"]) for sentence in sentences[:shown]]
    choices = (
        _select("site", "Attention", sites, hidden=len(sites) == 1)
        + _select("sentence", "Sentence", _numbered(texts))
        + _select("layer", "Layer", _numbered([str(i + 1) for i in range(len(weights))]))
        + _select("head", "Head", [*_numbered(heads), (str(len(heads)), "mean of all")])
    )
    panels = "".join(_panel(results, row, maps) for row in results["encodings"])
    panels += _difference_panel(results, maps)
    return (
        f'{rule}<div class="choose">{choices}</div>'
        f'<p class="note long">Rows are queries, columns are keys; {rows}. Point at a cell, tap '
        "it or use the arrow keys to see the cell's weight in all maps. The small maps below show "
        f"all heads of all layers, and the mean of each layer.{mark}</p>"
        f'{_scale(both=len(maps) > 1)}<div class="maps">{panels}</div>'
    )


def _title(title: str) -> str:
    kind = ' class="name"' if title == "encoding" else ""
    return f'<th scope="col" role="columnheader"{kind}>{escape(title).replace("_", "_<wbr>")}</th>'


def _table_cell(results: Facts, cell: TableCell, index: int, names: set[str], title: str) -> str:
    is_name = index < 2 and cell.main in names
    main = encoding_label(results, cell.main) if is_name else escape(cell.main)
    seeds = " ".join(f"<span>{escape(value)}</span>" for value in cell.seeds)
    detail = f'<span class="seeds">{seeds}</span>' if seeds else ""
    if index == 0:
        return f'<th scope="row" role="rowheader">{main}{detail}</th>'
    kind = ' class="name"' if is_name else ""
    held = f"<div><span>{main}</span>{detail}</div>"
    return f'<td role="cell"{kind} data-title="{escape(title)}">{held}</td>'


def _sentence(results: Facts, examples: Facts, sentence: Facts) -> str:
    corpus, ignore_case = results["corpus"], results["config"].get("lowercase", False)
    asked, right = (
        f' lang="{escape(corpus[side])}"' if side in corpus else "" for side in ("source", "target")
    )
    terms = _SIDES if is_translation(results) else examples["terms"]
    where = f", {sentence['split']}" if "split" in sentence else ""
    rows = [
        (escape(f"{terms[0]}{where}"), f"<span{asked}>{escape(sentence['source'])}</span>"),
        (escape(terms[1]), f"<span{right}>{escape(sentence['reference'])}</span>"),
    ]
    for row in results["encodings"]:
        text = sentence["hypotheses"].get(row["slug"])
        if row["cells"][0]["status"] == "diverged" or text is None:
            answer = f'<span class="score">{_reason_for_no_text(row, sentence, examples)}</span>'
        else:
            marked = mark_differences(text, sentence["reference"], ignore_case=ignore_case)
            answer = f"<span{right}>{marked}</span>{_sentence_bleu(row, examples, sentence)}"
        rows.append((encoding_label(results, row["name"]), answer))
    lines = "".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in rows)
    return f'<article class="sentence"><dl>{lines}</dl></article>'


def _reason_for_no_text(row: Facts, sentence: Facts, examples: Facts) -> str:
    """Return why there is no output to show."""
    if row["cells"][0]["status"] == "diverged":
        return "no output: the run diverged"
    split = sentence.get("split", examples["split"])
    reason = (row["cells"][0]["scores"].get(split) or {}).get("no_result", "there is no result")
    return escape(f"no output: {reason}")


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


def _sentence_bleu(row: Facts, examples: Facts, sentence: Facts) -> str:
    scores = row["cells"][0]["scores"].get(examples["split"], {}).get("sentence_bleu", [])
    if sentence["index"] >= len(scores):
        return ""
    return f' <span class="score">{format_number(scores[sentence["index"]], 0)}</span>'


def _panel(results: Facts, row: Facts, maps: Facts) -> str:
    name = encoding_label(results, row["name"])
    if row["slug"] not in maps:
        return f'<figure><h3>{name}</h3><p class="note">No maps: the run diverged.</p></figure>'
    return (
        f'<figure class="panel" data-slug="{escape(row["slug"])}" '
        f'data-name="{escape(row["name"])}"><h3>{name}</h3>{_PANEL}</figure>'
    )


def _difference_panel(results: Facts, maps: Facts) -> str:
    """Return the panel of one encoding's weights minus another's; empty for one encoding."""
    held = [(row["slug"], row["name"]) for row in results["encodings"] if row["slug"] in maps]
    if len(held) < 2:
        return ""
    choices = _select("more", "Weight of", [held[1], held[0], *held[2:]])
    choices += _select("less", "minus that of", held)
    return (
        '<figure class="panel" data-name="difference"><h3>Difference between two encodings</h3>'
        f'<div class="choose">{choices}</div>{_PANEL}</figure>'
    )


def _scale(*, both: bool) -> str:
    """Return the color bars: one scale for all maps, and one for all differences."""
    bars = _bar("weight", "weights", [0.01, 0.1, 0.25, 0.5, 1], [0])
    if both:
        bars += _bar("difference", "differences", [-1, -0.5, -0.1, 0, 0.1, 0.5, 1], [])
    return (
        f'<div class="scales">{bars}</div><p class="note">Color intensity is '
        f"proportional to the square root of the weight{' or the size of the difference' * both}. "
        "All maps share one scale.</p>"
    )


def _bar(name: str, kind: str, marks: list[float], more: list[float]) -> str:
    ticks = ""
    for value in [*more, *marks]:
        place = math.copysign(math.sqrt(abs(value)), value)
        place = place if kind == "weights" else (place + 1) / 2
        text = format_number(value, 2 if abs(value) in (0.01, 0.25) else 1 if value % 1 else 0)
        signed = f"+{text}" if kind == "differences" and value > 0 else text
        ticks += f'<span style="left:{100 * place:.1f}%">{signed}</span>'
    return (
        f'<div class="scale"><span>{name}</span><div class="bar {kind}"></div>'
        f'<div class="ticks" aria-hidden="true">{ticks}</div></div>'
    )


def _short(text: str) -> str:
    """Cut a long text for a menu at the end of a word."""
    return shorten(text, MENU, placeholder=" …")


def _numbered(texts: list[str]) -> list[tuple[str, str]]:
    return [(str(i), text) for i, text in enumerate(texts)]


def _select(name: str, label: str, options: list[tuple[str, str]], *, hidden: bool = False) -> str:
    held = "".join(f'<option value="{value}">{escape(text)}</option>' for value, text in options)
    away = " hidden" if hidden else ""
    return f'<label{away}>{label}<select id="choose-{name}">{held}</select></label>'
