"""How to read the tables of a comparison, and what its tests do not answer, as sentences."""

from __future__ import annotations

from collections.abc import Mapping

from ropewalk.encodings.biases import bucket_borders
from ropewalk.encodings.parsing import name_of, read_call
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS
from ropewalk.lab.data.phrases import LONGEST
from ropewalk.lab.report.formats import (
    brevity_penalty,
    code,
    code_list,
    format_count,
    is_possible,
    is_score,
)
from ropewalk.lab.report.tables import NO_SCORE, least_shown
from ropewalk.lab.results import MetricFacts, Results, Verdict
from ropewalk.lab.scoring.significance import FEWEST, NOT_SHOWN

BUILT_IN = "phrases"  # the corpus whose split "long" has longer sentences than training


def legend(results: Results) -> str:
    """Explain how to read the main table."""
    rows = results.encodings
    seeds = results.config.seeds
    sentences = [
        "Large numbers are means, small numbers are single seeds."
        if len(seeds) > 1
        else f"All results are of one seed (seed {seeds[0]})."
    ]
    if any(cell.status == "diverged" for row in rows for cell in row.cells):
        sentences.append("†: this run diverged.")
    if len(rows) > 1:
        sentences.append(
            f"Differences in mean {results.tested.name} are relative to the baseline, "
            f"{code(rows[0].name)}, and computed before rounding."
        )
    tests = _tests(results)
    if any(each.verdict == NOT_SHOWN for each in tests):
        sentences.append(
            "“No difference shown” means that p (Holm) is 0.05 or more, not that scores are equal."
        )
    tested = results.tested
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
    measured = all(row.peak_memory_bytes.mean is not None for row in rows)
    memory = "is that of the full process" if measured else "is not known"
    sentences.append(f"Peak memory {memory}.")
    return " ".join(sentences)


def _tests(results: Results) -> list[Verdict]:
    """Return all tests whose verdicts the tables show."""
    return [each for each, _ in _tests_and_scores(results)]


def _tests_and_scores(results: Results) -> list[tuple[Verdict, float]]:
    """Return all tests whose verdicts the tables show, each with the reference's score."""
    key, found = results.tested.key, []
    for row in results.encodings:
        for summary in row.summary.values():
            for each in (*summary.versus.values(), summary.versus_first):
                if each:
                    mean = summary.spread(key).mean
                    assert mean is not None  # both have scores of all seeds
                    found.append((each, mean - each.difference))
    return found


def _impossible(results: Results, tested: MetricFacts) -> list[str]:
    """Say where the ends of intervals, and thresholds, are beyond possible scores."""
    better = 1 if tested.higher_is_better else -1
    known = _tests_and_scores(results)
    reachable = [
        is_score(score + better * least, tested)
        for each, score in known
        if (least := least_shown(each)) is not None and is_possible(least, tested)
    ]
    sentences = []
    if not all(
        is_score(score + end, tested) for each, score in known for end in (each.low, each.high)
    ):
        sentences.append("Intervals are symmetric, so they may extend beyond possible scores.")
    if not all(reachable):
        sentences.append(
            "Where the score of the reference plus the threshold is above 100, no gain could have "
            "counted with the strictest correction."
            if tested.higher_is_better
            else "Where the threshold is larger than the loss of the reference, no lower loss "
            "could have counted with the strictest correction."
        )
    return sentences


def interval_note(results: Results) -> str:
    """Explain why an interval and a verdict may differ; empty if no p is corrected."""
    if len(results.encodings) < 3:
        return ""
    return (
        "The 95 % interval is for one comparison alone. The verdict uses a p-value that is "
        "corrected (Holm) for the number of encodings compared on a split. So an interval can "
        "exclude 0 while the verdict is “no difference shown”."
    )


def _split_meanings(results: Results) -> list[str]:
    """Explain the names of splits that do not explain themselves."""
    if (lengths := results.lengths) is not None:
        trained = {lengths.trained: " (the trained length)"}
        texts = (
            f"{code(split)} is {n:,} {lengths.unit}{trained.get(n, '')}"
            for split, n in lengths.of.items()
        )
        return [f"{', '.join(texts)}."]
    if results.corpus.name != BUILT_IN or "long" not in results.splits:
        return []
    bins = results.length_bins["long"]
    words = f"{bins[0].first}–{bins[-1].last}"
    return [
        f"Sentences of the split {code('long')} have {words} words; "
        f"training sentences have at most {LONGEST}."
    ]


WINDOWS = "windows of text"
#: How far p (Holm) may be from another draw's, divided by the square root of the number of
#: comparisons. For p = 0.05, this is 2.5 times its standard error with 20,000 resamples.
UNSURE = 0.004
#: A brevity penalty below which BLEU mostly shows how short the outputs are.
SHORT = 0.7


def limits(results: Results) -> list[str]:
    """Return what the tests do not answer."""
    rows, lacking = results.encodings, results.lacking_seeds()
    seeds = max(len(row.cells) for row in rows)
    if len(rows) < 2:
        return []
    key = results.headline_metric.key
    text = (
        "With one seed each, these results are about the trained models, not about the encodings: "
        "another seed may reverse them."
        if seeds == 1
        else f"Intervals and p come from a bootstrap that resamples seeds and {_items(results)}, "
        "does not pair seeds, and corrects for how few seeds there are (`compare_statistics` in "
        "ropewalk/lab/scoring/significance.py). A plain bootstrap can give other verdicts."
    )
    if _items(results) == WINDOWS:
        text += (
            " Windows of the same document are not independent; the tests treat them as if they "
            "were."
        )
    text += "".join(f" {said}" for said in _notes_on_scores(results))
    if any(
        row.summary[split].versus_first is None
        and None not in (each.summary[split].spread(key).mean for each in (rows[0], row))
        for row in rows[1:]
        if not {rows[0].name, row.name} & lacking.keys()
        for split in results.splits
    ):
        text += f" A split of fewer than {FEWEST} {_items(results)} is not tested."
    counts = _tests_by_split(results)
    if len(rows) > 2 and counts:
        tested = [rows[0].name, *results.against]
        text += (
            f" In tests against {code(rows[0].name)}, p is corrected (Holm) for "
            f"{_corrected_for(counts)}."
        )
        if len(rows) - len(tested) > 1:
            text += (
                f" On this page, each encoding was tested only against {code_list(tested)}, not "
                "against the others."
            )
    if results.against:
        text += (
            f" {code_list([rows[0].name, *results.against])} are compared with one another "
            "twice, each once as the reference. The two p (Holm) can differ: each is corrected "
            "together with the other comparisons of its reference, and has its own resamples. For "
            "the same reason, a verdict with p near 0.05 may change if the tested encoding and "
            "the reference swap roles."
        )
        if results.tested_later:
            text += (
                f" The tests against {code_list(results.tested_later)} were made after the run, "
                "from the saved scores. For such tests during a run, use `--against`."
            )
    unsure = UNSURE * max(_tests_by_split(results).values(), default=0) ** 0.5
    if any(abs(p - 0.05) < unsure for p in _p_values(results)):
        text += (
            f" The resamples are random: with other ones, a verdict with p between "
            f"{0.05 - unsure:.3f} and {0.05 + unsure:.3f} may change."
        )
    return [text]


def _p_values(results: Results) -> list[float]:
    summaries = [row.summary[split] for row in results.encodings for split in results.splits]
    tests = [test for s in summaries for test in (s.versus_first, *s.versus.values())]
    return [test.p_holm for test in tests if test]


def _notes_on_scores(results: Results) -> list[str]:
    """Return what to know of the scores themselves."""
    return _untrained_buckets(results) + _short_outputs(results) + _chance(results)


def _chance(results: Results) -> list[str]:
    """Say which scores an answer that ignores the prompt can reach."""
    task = SEQUENCE_TASKS.get(results.task)
    if task is None or not task.chance:
        return []
    return [
        f"A constant answer is right for {task.chance} % of the examples on average. So a score of "
        f"{2 * task.chance} % or less does not show that a model solves the task, and differences "
        "between such scores mean little."
    ]


def _short_outputs(results: Results) -> list[str]:
    """Say on which splits all translations are so short that brevity decides their BLEU."""
    said = []
    for split in results.splits if results.is_translation else ():
        scores = [cell.scores[split] for row in results.encodings for cell in row.cells]
        known = [p for score in scores if (p := brevity_penalty(score)) is not None]
        if known and max(known) < SHORT:
            said.append(
                f"On {code(split)}, outputs are much shorter than the references: the brevity "
                f"penalty multiplies BLEU by a factor between {min(known):.2f} and "
                f"{max(known):.2f}."
            )
    return said


def _untrained_buckets(results: Results) -> list[str]:
    """Say which T5 buckets are scored although no distance in training reached them."""
    lengths = results.lengths
    if results.task != "causal-lm" or lengths is None:
        return []
    said, longest = [], max(lengths.of.values())
    for row in results.encodings:
        if name_of(row.name) != "t5":
            continue
        _, given = read_call("encoding", row.name, ["t5"])
        borders = bucket_borders(given.get("buckets", 32), given.get("distance", 128))
        unused = [border for border in borders if lengths.trained <= border < longest]
        if unused:
            said.append(
                f"{code(row.name)} is scored beyond {lengths.trained} tokens although its "
                f"buckets for distances from {unused[0]} on were not trained."
            )
    return said


def _tests_by_split(results: Results) -> dict[str, int]:
    """Return how many encodings were tested against the first one, on each split with a test."""
    others = [row.summary for row in results.encodings[1:]]
    counts = {
        split: sum(summary[split].versus_first is not None for summary in others)
        for split in results.splits
    }
    return {split: count for split, count in counts.items() if count}


def _corrected_for(counts: Mapping[str, int]) -> str:
    """Name the number of comparisons, of each split if they differ."""
    if len(set(counts.values())) > 1:
        splits: dict[int, list[str]] = {}
        for split, count in counts.items():
            splits.setdefault(count, []).append(split)
        return ", and for ".join(
            f"{format_count(count, 'comparison')} on {code_list(names)}"
            for count, names in splits.items()
        )
    text = format_count(next(iter(counts.values())), "comparison")
    return f"{text} on each split" if len(counts) > 1 else text


def _items(results: Results) -> str:
    if results.is_translation:
        return "sentences"
    return WINDOWS if results.tested.key == "loss" else "examples"
