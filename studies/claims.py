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

from claims_evidence import CONTRADICTED, INFINITE, OPEN, SUPPORTED, Claim, Measured
from claims_table import CLAIMS, numbers
from common import RESULTS, Facts

from ropewalk.figures import Picture
from ropewalk.figures.drawing import Scheme, plain, style
from ropewalk.figures.picture import picture_html
from ropewalk.files import readable_json, write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE, FACTS = RESULTS / "claims.md", RESULTS / "claims" / "results.json"
STEM, FORM = "claims", "png"
LOOKS = {SUPPORTED: (0, "o"), OPEN: (None, "D"), CONTRADICTED: (1, "X")}
DIGITS = {"BLEU": 1, "nats": 3, "%": 1, "% of the steps": 0, "points": 1, "of a logit": 6}
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
Student's t over seeds or rounds. As tests were chosen late, some verdicts are luck: numbers that
disagree stand below each claim.
"""


def judged() -> list[tuple[Claim, Measured, str]]:
    """Return every claim with its number and verdict, from the results as they are now."""
    found = []
    for claim in CLAIMS:
        measured = claim.measure()
        found.append((claim, measured, claim.rule.verdict(measured)))
    return found


def said(measured: Measured) -> str:
    """Return the number and its interval as text."""
    return numbers(measured, DIGITS.get(measured.unit, 2))


def picture_of(rows: Sequence[tuple[Claim, Measured, str]]) -> Picture:
    """Return a row for each claim: its interval, and the line of what is claimed."""

    def draw(scheme: Scheme) -> Figure:
        figure = scheme.blank(9.5, 0.8 + 0.33 * len(rows))
        axes = figure.subplots()
        axes.set_facecolor(scheme.page)
        narrow = scheme.widest < 9.5
        for y, (claim, measured, verdict) in enumerate(rows):
            place, marker = LOOKS[verdict]
            color = scheme.quiet if place is None else style(place).color
            value, low, high = _in_row(claim, measured)
            axes.plot([low, high], [y, y], color=color, linewidth=2.5)
            axes.plot([value], [y], marker, color=color, markersize=6)
            told = verdict if narrow else f"{verdict}: {said(measured)}"
            scheme.note(
                axes, plain(told), xy=(REACH, y), xytext=(4, 0),
                textcoords="offset points", va="center", annotation_clip=False,
            )  # fmt: skip
        axes.axvline(0, color=scheme.ink, linewidth=1)
        titles = [f"{n}" if narrow else f"{n}  {c.says}" for n, (c, *_) in enumerate(rows, 1)]
        axes.set_yticks(range(len(rows)), [plain(title) for title in titles])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(-REACH, REACH)
        axes.set_xticks([-0.5, 0.5], ["against", "for"])
        scheme.calm(axes)
        axes.grid(visible=False, axis="x")
        return figure

    told = "; ".join(f"{claim.says} {verdict}: {said(m)}" for claim, m, verdict in rows)
    data = {claim.key: [m.value, m.low, m.high] for claim, m, _ in rows}
    return Picture(draw, f"Intervals beside what is claimed, a row for each claim. {told}.", data)


def _in_row(claim: Claim, measured: Measured) -> tuple[float, float, float]:
    """Return value and ends on a scale from -1 to 1: 0 is what is claimed, right is for it."""
    bound, (low, high) = claim.rule.claimed, claim.rule.supports
    ends = [each - bound for each in (measured.value, measured.low, measured.high)]
    largest = max(abs(end) for end in ends) or 1.0
    below = low == -INFINITE and high < INFINITE
    two_sided = low > -INFINITE and high < INFINITE  # away from the claimed value is against it
    sign = -1 if below or (two_sided and measured.value > bound) else 1
    value, one, other = (sign * end / largest for end in ends)
    return value, min(one, other), max(one, other)


def page(rows: Sequence[tuple[Claim, Measured, str]]) -> str:
    """Return the page of these rows."""
    counts = ", ".join(
        f"{sum(verdict == word for *_, verdict in rows)} {word}"
        for word in (SUPPORTED, CONTRADICTED, OPEN)
    )
    picture = picture_html(f"claims/{STEM}", FORM, picture_of(rows).alt, narrow=True)
    parts = [
        HEAD.rstrip(),
        f"Of {len(rows)} claims: {counts}. The vertical line is the bound that a claim's rule "
        "names, such as no difference; to the right of it is for the claim. Each row has a scale "
        "of its own. What is to the right and yet contradicted lies within the margin.",
        picture,
        *(_section(n, *row) for n, row in enumerate(rows, 1)),
        "```sh\npython studies/claims.py   # writes this page\n"
        "bash studies/runs.sh      # trains what is missing in results\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _section(number: int, claim: Claim, measured: Measured, verdict: str) -> str:
    further = "".join(f"\n- {sentence}" for sentence in claim.further())
    return "\n\n".join(
        [
            f'<a id="{claim.key}"></a>\n\n## {number}. {claim.says}',
            f"**{verdict.capitalize()}.** {claim.measured}: {said(measured)} "
            f"({_link(measured.link)}).",
            f"<details><summary>rule, source, further numbers</summary>\n\n"
            f"- Rule: {claim.decides}{'; post hoc' if claim.post_hoc else ''}.\n"
            f"- Source: {claim.source}.{further}\n\n</details>",
        ]
    )


def _link(link: str) -> str:
    target = link if "." in link.rpartition("/")[2] else f"{link}/README.md"
    return f"[{link.removeprefix('../')}]({target})"


def facts(rows: Sequence[tuple[Claim, Measured, str]]) -> Facts:
    """Return what is on the page as JSON."""
    return {
        "claims": [
            {
                "key": claim.key,
                "says": claim.says,
                "source": claim.source,
                "rule": claim.decides,
                "post_hoc": claim.post_hoc,
                **asdict(measured),
                "verdict": verdict,
            }
            for claim, measured, verdict in rows
        ]
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, or check that it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the page is out of date"
    )
    options = parser.parse_args(arguments)
    rows = judged()
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
