"""What articles claim about position encodings, checked against the committed results.

`python studies/claims.py` reads results/ and benchmarks/results/, and writes results/claims.md and
results/claims/results.json; with `--check` it only reports whether they are up to date.
`studies/runs.sh` trains the results that are still missing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import claims_compared as compared
import claims_trained as trained
import claims_vectors as vectors
from claims_evidence import AGAINST, FOR, NEITHER, Evidence
from claims_words import CLAIMS
from common import RESULTS, Facts

from ropewalk.files import readable_json, write_bytes

PAGE, FACTS = RESULTS / "claims.md", RESULTS / "claims" / "results.json"
SUPPORTED, CONTRADICTED = "supported", "contradicted"
NOT_SHOWN, NOT_TESTED = "not shown", "not tested here"

HEAD = """# Claims about position encodings, tested

<!-- Written by studies/claims.py from the committed results. -->

Each row compares a claim from articles with the results in this repository. The models are small:
about 0.1 to 4 million parameters, each trained for seconds or minutes (one for 1 h 21
min, which includes pauses) on a machine with two cores, on Multi30k, German–English phrases,
generated stories and sequences. A large model may differ.

A claim is about all cases unless it says otherwise. So a row is

- *contradicted* if at least one of its tests counts against it (marked −),
- *supported* if every test counts for it (marked +),
- *not shown* if no test counts against it and at least one decides nothing (marked ?),
- *not tested here* if there is no measurement.

Numbers without a mark are there for comparison and do not count.

The column “rule” says what counts for a claim and what counts against it. A difference is shown if
p < 0.05 after Holm's correction; the test resamples seeds and test items together
([method](../src/ropewalk/lab/scoring/significance.py)). Parentheses contain the 95 % interval and
p. If no difference is shown, they contain ±x: an observed difference above x would have been shown,
if scores can differ that much (without ±x, no possible difference would, or each item has the same
score with both). An interval
is for one comparison alone, but p is corrected for the number of encodings of a result that are
compared with the one named after “against”. So an interval can exclude 0 while no difference is
shown, and p can differ from that on the linked page, where the pair may be tested the other way
round or not at all. p is not corrected for the number of tests in a row, nor for the number of
rows. As one test against a claim contradicts it, some *contradicted* verdicts may be due to
chance. Numbers separated by · are single seeds.
"""
MARKS = {FOR: "+", AGAINST: "−", NEITHER: "?"}

#: The function that collects the evidence of each claim in claims_words.py.
EVIDENCE: dict[str, Callable[[], list[Evidence]]] = {
    "translation": compared.translation,
    "eight-percent": trained.eight_percent,
    "faster-masked": trained.faster_masked,
    "faster-linear": compared.faster_linear,
    "sharper": trained.sharper,
    "sharper-why": trained.sharper_why,
    "bias-slow": lambda: trained.costs("train"),
    "bias-cache": lambda: trained.costs("decode"),
    "t5-any-length": trained.t5_any_length,
    "decay-trained": trained.decay_trained,
    "decay-rotation": vectors.decay_of_rotation,
    "learned-sinusoidal": compared.learned_sinusoidal,
    "near-far": vectors.near_and_far,
    "integers-pre-norm": lambda: trained.integers_explode("pre"),
    "integers-post-norm": lambda: trained.integers_explode("post"),
    "bits-jumpy": lambda: vectors.steps_of_bits() + compared.bits(),
    "positions-stay": trained.positions_stay,
    "spoils-meaning": trained.spoils_meaning,
    "values-unrotated": compared.values_unrotated,
    "clip-harmless": compared.clip_harmless,
    "every-layer": compared.every_layer,
    "many-frequencies": compared.many_frequencies,
    "linear-works": compared.linear_works,
    "longer-contexts": lambda: trained.scales("rotary"),
    "sizes": compared.sizes,
}


def verdict(evidence: Sequence[Evidence]) -> str:
    """Return the verdict of the evidence: one test against a claim contradicts it."""
    votes = {each.vote for each in evidence} - {None}
    if not votes:
        return NOT_TESTED
    if AGAINST in votes:
        return CONTRADICTED
    return SUPPORTED if votes == {FOR} else NOT_SHOWN


def collect() -> list[Facts]:
    """Check every claim against the results as they are now."""
    rows = []
    for key, claim in CLAIMS.items():
        evidence = EVIDENCE[key]()
        facts = {"key": key, **claim._asdict(), "verdict": verdict(evidence)}
        rows.append(facts | {"evidence": [each._asdict() for each in evidence]})
    return rows


def page(rows: Sequence[Facts]) -> str:
    """Return the page of these rows."""
    lines = ["| | claim | source | verdict | rule | numbers | results |"]
    lines.append("| --: | --- | --- | --- | --- | --- | --- |")
    for number, row in enumerate(rows, start=1):
        numbers = "<br>".join(map(_numbers, row["evidence"])) or "–"
        links = dict.fromkeys(each["link"] for each in row["evidence"])
        cells = [str(number), row["says"], row["source"], f"*{row['verdict']}*", row["test"]]
        lines.append(
            "| " + " | ".join([*cells, numbers, ", ".join(map(_link, links)) or "–"]) + " |"
        )
    counts = [
        f"{sum(row['verdict'] == word for row in rows)} {word}"
        for word in (SUPPORTED, CONTRADICTED, NOT_SHOWN, NOT_TESTED)
    ]
    made = (
        "```sh\npython studies/claims.py   # writes this page\n"
        "bash studies/runs.sh      # trains what is missing in results\n```"
    )
    return (
        f"{HEAD}\nOf {len(rows)} claims: {', '.join(counts)}.\n\n"
        + "\n".join(lines)
        + f"\n\n{made}\n"
    )


def _numbers(evidence: Facts) -> str:
    mark = "" if evidence["vote"] is None else f" {MARKS[evidence['vote']]}"
    return f"{evidence['says']}{mark}"


def _link(link: str) -> str:
    target = link if "." in link.rpartition("/")[2] else f"{link}/README.md"
    return f"[{link.removeprefix('../')}]({target})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page, or check that it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the page is out of date"
    )
    options = parser.parse_args(arguments)
    rows = collect()
    written = {PAGE: page(rows), FACTS: readable_json({"claims": rows}) + "\n"}
    stale = [p for p, text in written.items() if not p.exists() or p.read_text("utf-8") != text]
    if options.check and stale:
        names = ", ".join(path.name for path in stale)
        parser.error(f"{names} must be up to date; run `python studies/claims.py`")
    for path in stale:
        write_bytes(path, written[path].encode())
        print(path)


if __name__ == "__main__":
    main()
