"""Notes that explain how to read the main table."""

from __future__ import annotations

from ropewalk.files import Facts
from ropewalk.lab.data.phrases import LONGEST
from ropewalk.lab.report.formats import code
from ropewalk.lab.report.metrics import is_possible, is_score, is_translation, tested_metric
from ropewalk.lab.report.tables import NO_SCORE, least_shown
from ropewalk.lab.scoring.significance import NOT_SHOWN

BUILT_IN = "phrases"  # the corpus whose split "long" has longer sentences than training


def legend(results: Facts) -> str:
    """Explain how to read the main table."""
    rows = results["encodings"]
    seeds = results["config"]["seeds"]
    sentences = [
        "Large numbers are means, small numbers are single seeds."
        if len(seeds) > 1
        else f"All results are of one seed (seed {seeds[0]})."
    ]
    if any(cell["status"] == "diverged" for row in rows for cell in row["cells"]):
        sentences.append("†: this run diverged.")
    if len(rows) > 1:
        sentences.append(
            f"Differences in mean {tested_metric(results)['name']} are relative to the baseline, "
            f"{code(rows[0]['name'])}, and computed before rounding."
        )
    tests = _tests(results)
    if any(each["verdict"] == NOT_SHOWN for each in tests):
        sentences.append(
            "“No difference shown” means that p (Holm) is 0.05 or more, not that scores are equal."
        )
    tested = tested_metric(results)
    thresholds = [least for each in tests if (least := least_shown(each)) is not None]
    if any(is_possible(least, tested) for least in thresholds):
        sentences.append(
            "In cells with “no difference shown”, here or in later tables, the small ± number is a "
            "threshold: a larger observed difference would have counted as better or worse"
            + ", even with the strictest correction (p times the number of comparisons)"
            * (len(rows) > 2)
            + "."
        )
    if not all(is_possible(least, tested) for least in thresholds):
        sentences.append(
            f"“{NO_SCORE.capitalize()}”: seeds spread so far that no possible difference would "
            "have counted with the strictest correction."
        )
    sentences += _impossible(results, tested)
    sentences += _split_meanings(results)
    sentences.append("Extra parameters are counted relative to the smallest model.")
    measured = all(row["peak_memory_bytes"]["mean"] is not None for row in rows)
    memory = "is that of the full process" if measured else "is not known"
    sentences.append(f"Peak memory {memory}.")
    return " ".join(sentences)


def _tests(results: Facts) -> list[Facts]:
    """Return all tests whose verdicts the tables show."""
    return [each for each, _ in _tests_and_scores(results)]


def _tests_and_scores(results: Facts) -> list[tuple[Facts, float]]:
    """Return all tests whose verdicts the tables show, each with the reference's score."""
    key, found = tested_metric(results)["key"], []
    for row in results["encodings"]:
        for summary in row["summary"].values():
            for each in (*summary.get("versus", {}).values(), summary.get("versus_first")):
                if each:
                    found.append((each, summary[key]["mean"] - each["difference"]))
    return found


def _impossible(results: Facts, tested: Facts) -> list[str]:
    """Say where the ends of intervals, and thresholds, are beyond possible scores."""
    better = 1 if tested["higher_is_better"] else -1
    known = _tests_and_scores(results)
    reachable = [
        is_score(score + better * least, tested)
        for each, score in known
        if (least := least_shown(each)) is not None and is_possible(least, tested)
    ]
    sentences = []
    if not all(
        is_score(score + each[end], tested) for each, score in known for end in ("low", "high")
    ):
        sentences.append("Intervals are symmetric, so they may extend beyond possible scores.")
    if not all(reachable):
        sentences.append(
            "Where the score of the reference plus the threshold is above 100, no gain could have "
            "counted with the strictest correction."
            if tested["higher_is_better"]
            else "Where the threshold is larger than the loss of the reference, no lower loss "
            "could have counted with the strictest correction."
        )
    return sentences


def interval_note(results: Facts) -> str:
    """Explain why an interval and a verdict may differ; empty if no p is corrected."""
    if len(results["encodings"]) < 3:
        return ""
    return (
        "The 95 % interval is for one comparison alone. The verdict uses a p-value that is "
        "corrected (Holm) for the number of encodings compared on a split. So an interval can "
        "exclude 0 while the verdict is “no difference shown”."
    )


def _split_meanings(results: Facts) -> list[str]:
    """Explain the names of splits that do not explain themselves."""
    if not is_translation(results):
        lengths = results["lengths"]
        trained = {lengths["trained"]: " (the trained length)"}
        texts = (
            f"{code(split)} is {n:,} {lengths['unit']}{trained.get(n, '')}"
            for split, n in lengths["of"].items()
        )
        return [f"{', '.join(texts)}."]
    if results["corpus"]["name"] != BUILT_IN or "long" not in results["splits"]:
        return []
    bins = results["length_bins"]["long"]
    words = f"{bins[0]['from']}–{bins[-1]['to']}"
    return [
        f"Sentences of the split {code('long')} have {words} words; "
        f"training sentences have at most {LONGEST}."
    ]
