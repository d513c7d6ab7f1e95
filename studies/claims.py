"""What articles claim about position encodings, judged by the committed results.

`python studies/claims.py` reads results/ and benchmarks/results/, and writes results/claims.md,
its picture and results/claims/results.json; with `--check` it only reports whether they are up to
date. `studies/runs.sh` trains the results that are missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from claims_evidence import CONTRADICTED, INFINITE, OPEN, SUPPORTED, Judged, Measured, judge
from claims_measures import COST
from claims_table import CLAIMS
from common import RESULTS

from ropewalk.figures import Picture
from ropewalk.figures.drawing import Scheme, plain, style
from ropewalk.figures.picture import picture_html
from ropewalk.files import Facts, readable_json, write_bytes
from ropewalk.lab.report.formats import format_count, format_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE, FACTS = RESULTS / "claims.md", RESULTS / "claims" / "results.json"
STEM, FORM = "claims", "png"
LOOKS = {SUPPORTED: (0, "o"), OPEN: (None, "D"), CONTRADICTED: (1, "X")}
DIGITS = {"BLEU": 1, "nats": 3, "%": 1, "% of the steps": 0, "points": 1, "of a logit": 6}
DIGITS |= {"of 32.5 at distance 0": 1, "tokens away": 0}
WIDE = 11.0  # inches
AWAY: Facts = {"textcoords": "offset points", "annotation_clip": False}
REACH = 1.05  # of a row to each side of what is claimed

HEAD = """# Claims about position encodings, tested

<!-- Written by studies/claims.py from the committed results. -->

Each claim of articles has one test, which alone makes the verdict. All tests here were chosen after
their numbers were known (post hoc). Models are small: 0.1 to 4 million parameters, trained for
seconds to minutes on two cores. A large model may differ.

*Supported* or *contradicted*: the 95 % interval lies in the range that the claim's rule names.
*Open*: it does not; more seeds may decide. A margin is the largest difference that does not matter;
a difference whose interval lies within it contradicts a claim of a difference. Intervals of gains
and losses are those of the test over seeds and items, for this one comparison; the linked page
corrects for all encodings there, and so can call the same difference open. The other intervals are
Student's t over seeds or rounds. As tests were chosen late, some verdicts are luck: *elsewhere*
says which further numbers, by the same rule, disagree.
"""


def said(found: Measured) -> str:
    """Return a number with its unit and its interval as text."""
    digits = DIGITS.get(found.unit, 2)
    value, low, high = (format_number(x, digits) for x in (found.value, found.low, found.high))
    if not found.seeds:
        return f"{value} {found.unit}"
    of = format_count(found.seeds, "round" if found.link == COST else "seed")
    return f"{value} {found.unit} ({low} to {high}, {of})"


def _told(row: Judged) -> str:
    elsewhere = "".join(f"; elsewhere {verdict}" for verdict in row.elsewhere())
    return f"{row.verdict}: {said(row.measured)}{elsewhere}"


def picture_of(rows: Sequence[Judged]) -> Picture:
    """Return a row for each claim: its interval, and the line of what is claimed.

    A narrow one has the claim above its interval, and of the number only the verdict.
    """

    def draw(scheme: Scheme) -> Figure:
        narrow = scheme.widest < WIDE
        places, _ = _places(rows)
        figure = scheme.blank(WIDE, 0.8 + (0.42 if narrow else 0.33) * (places[-1] + 1))
        axes = figure.subplots()
        axes.set_facecolor(scheme.page)
        tall = 0.2 if narrow else 0.5  # a line through the words above would hide them
        for y, row in zip(places, rows, strict=True):
            place, marker = LOOKS[row.verdict]
            color = scheme.quiet if place is None else style(place).color
            value, low, high = _in_row(row)
            axes.plot([0, 0], [y - tall, y + tall], color=scheme.ink, linewidth=1)
            axes.plot([low, high], [y, y], color=color, linewidth=2.5)
            axes.plot([value], [y], marker, color=color, markersize=6)
            told = row.verdict if narrow else _told(row)
            scheme.note(axes, told, xy=(REACH, y), xytext=(4, 0), va="center", **AWAY)
        _name_rows(axes, scheme, rows)
        axes.set_ylim(places[-1] + 0.6, -0.6)
        axes.set_xlim(-REACH, REACH)
        axes.set_xticks([-0.5, 0.5], ["against", "for"])
        scheme.calm(axes)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="x")
        return figure

    told = "; ".join(f"{row.claim.says} {_told(row)}" for row in rows)
    found = {row.claim.key: row.measured for row in rows}
    data = {key: [each.value, each.low, each.high] for key, each in found.items()}
    return Picture(draw, f"Intervals beside what is claimed, a row for each claim. {told}.", data)


def _name_rows(axes: Axes, scheme: Scheme, rows: Sequence[Judged]) -> None:
    places, topics = _places(rows)
    numbered = enumerate(zip(places, rows, strict=True), 1)
    titles = topics | {y: f"{n}  {row.claim.says}" for n, (y, row) in numbered}
    weights = {y: "bold" if y in topics else "normal" for y in titles}
    if scheme.widest < WIDE:
        axes.set_yticks([])
        for y, title in titles.items():
            look = {**AWAY, "weight": weights[y], "xytext": (0, 0 if y in topics else 6)}
            scheme.note(axes, title, xy=(-REACH, y), va="bottom", **look)
        return
    axes.set_yticks(list(titles), [plain(title) for title in titles.values()])
    for weight, label in zip(weights.values(), axes.get_yticklabels(), strict=True):
        label.set_fontweight(weight)


def _places(rows: Sequence[Judged]) -> tuple[list[int], dict[int, str]]:
    """Return the line of each claim, and the lines of the topics, each above its claims."""
    places: list[int] = []
    topics: dict[int, str] = {}
    for row in rows:
        if row.claim.topic not in topics.values():
            topics[len(places) + len(topics)] = row.claim.topic
        places.append(len(places) + len(topics))
    return places, topics


def _in_row(row: Judged) -> tuple[float, float, float]:
    """Return value and ends on a scale from -1 to 1: 0 is what is claimed, right is for it."""
    bound, (low, high) = row.claim.rule.claimed, row.claim.rule.supports
    measured = row.measured
    ends = [each - bound for each in (measured.value, measured.low, measured.high)]
    largest = max(abs(end) for end in ends) or 1.0
    below = low == -INFINITE and high < INFINITE
    two_sided = low > -INFINITE and high < INFINITE  # away from the claimed value is against it
    sign = -1 if below or (two_sided and measured.value > bound) else 1
    value, one, other = (sign * end / largest for end in ends)
    return value, min(one, other), max(one, other)


def page(rows: Sequence[Judged]) -> str:
    """Return the page of these rows."""
    counts = ", ".join(
        f"{sum(row.verdict == word for row in rows)} {word}"
        for word in (SUPPORTED, CONTRADICTED, OPEN)
    )
    picture = picture_html(f"claims/{STEM}", FORM, picture_of(rows).alt, narrow=True)
    parts = [
        HEAD.rstrip(),
        f"Of {len(rows)} claims: {counts}. The vertical line is the bound that a claim's rule "
        "names, such as no difference; to the right of it is for the claim. Each row has a scale "
        "of its own. What is to the right and yet contradicted, or at the line and yet supported, "
        "lies within the margin.",
        picture,
    ]
    topic = ""
    for number, row in enumerate(rows, 1):
        if row.claim.topic != topic:
            topic = row.claim.topic
            parts.append(f"## {topic}")
        parts.append(_section(number, row))
    parts.append(
        "```sh\npython studies/claims.py   # writes this page\n"
        "bash studies/runs.sh      # trains what is missing in results\n```"
    )
    return "\n\n".join(parts) + "\n"


def _section(number: int, row: Judged) -> str:
    claim = row.claim
    elsewhere = "".join(
        f" Elsewhere {verdict}: {'; '.join(each.label for each in found)}."
        for verdict, found in row.elsewhere().items()
    )
    fold = [
        f"Rule: {claim.decides}{'; post hoc' if claim.post_hoc else ''}.",
        f"Source: {claim.source}.",
        *(f"{each.label}: {said(each.measured)}." for each, _ in row.further),
        *claim.notes,
    ]
    return "\n\n".join(
        [
            f'<a id="{claim.key}"></a>\n\n### {number}. {claim.says}',
            f"**{row.verdict.capitalize()}.** {claim.measured}: {said(row.measured)} "
            f"({_link(row.measured.link)}).{elsewhere}",
            "<details><summary>rule, source, further numbers</summary>\n\n"
            + "\n".join(f"- {line}" for line in fold)
            + "\n\n</details>",
        ]
    )


def _link(link: str) -> str:
    target = link if "." in link.rpartition("/")[2] else f"{link}/README.md"
    return f"[{link.removeprefix('../')}]({target})"


def facts(rows: Sequence[Judged]) -> Facts:
    """Return what is on the page as JSON."""
    return {
        "claims": [
            {
                "key": row.claim.key,
                "topic": row.claim.topic,
                "says": row.claim.says,
                "source": row.claim.source,
                "rule": row.claim.decides,
                "post_hoc": row.claim.post_hoc,
                **asdict(row.measured),
                "verdict": row.verdict,
                "elsewhere": {
                    verdict: [each.label for each in found]
                    for verdict, found in row.elsewhere().items()
                },
            }
            for row in rows
        ]
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, or check that it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the page is out of date"
    )
    options = parser.parse_args(arguments)
    rows = [judge(claim) for claim in CLAIMS]
    written = {PAGE: page(rows), FACTS: readable_json(facts(rows)) + "\n"}
    stale = [p for p, text in written.items() if not p.exists() or p.read_text("utf-8") != text]
    if options.check and stale:
        names = ", ".join(path.name for path in stale)
        parser.error(f"{names} must be up to date; run `python studies/claims.py`")
    for path in stale:
        write_bytes(path, written[path].encode())
        print(path)
    if stale:
        for name, content in picture_of(rows).both(STEM, FORM, narrow=True).items():
            write_bytes(FACTS.parent / name, content)


if __name__ == "__main__":
    main()
