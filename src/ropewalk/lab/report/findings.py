"""The findings of a comparison as sentences that claim no more than its numbers bear.

The last of them say what its tests do not answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from ropewalk.checks import joined
from ropewalk.encodings.biases import bucket_borders
from ropewalk.encodings.parsing import name_of, read_call
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS
from ropewalk.lab.report.formats import (
    bin_label,
    code,
    code_list,
    digits_of_difference,
    format_count,
    format_number,
    format_score,
    language_name,
    tested_difference,
    verdict_text,
)
from ropewalk.lab.report.tables import brevity_penalty
from ropewalk.lab.results import EncodingResults, Results, TranslationCorpus
from ropewalk.lab.scoring.significance import FEWEST, OPEN

NAMED = 6  # up to this many encodings are named in the title and have their own sentences
FEW = 3  # up to this many measures of quality are named
WINDOWS = "windows of text"
#: How far p (Holm) may be from another draw's, divided by the square root of the number of
#: comparisons. For p = 0.05, this is 2.5 times its standard error with 20,000 resamples.
UNSURE = 0.004
#: A brevity penalty below which BLEU mostly shows how short the outputs are.
SHORT = 0.7


def seeds_text(rows: Sequence[EncodingResults]) -> str:
    """Return how many seeds these means are taken over, and for how many steps each was trained."""
    alone = all(len(row.cells) == 1 for row in rows)
    means = "means" if len(rows) > 1 else "mean"
    text = "one seed" if alone else f"{means} of {seeds_each(rows)}"
    steps = steps_text(rows)
    return f"{text}, {steps}{'' if alone else ' each'}" if steps else text


def steps_text(rows: Sequence[EncodingResults]) -> str:
    """Return for how many steps these encodings were trained; empty if all trainings diverged."""
    # A diverged training has fewer steps, and has a sentence of its own.
    cells = [cell for row in rows for cell in row.cells if cell.status != "diverged"]
    steps = sorted({cell.steps for cell in cells})
    least = f"{steps[0]:,} to " if len(steps) > 1 else ""
    return f"{least}{format_count(steps[-1], 'step')}" if steps else ""


def seeds_each(rows: Sequence[EncodingResults]) -> str:
    """Return how many seeds each of these encodings has."""
    least, *more = sorted({len(row.cells) for row in rows})
    count = format_count(more[-1] if more else least, "seed")
    return f"{least} to {count}" if more else count


def title(results: Results) -> str:
    """Return what was compared on what; many encodings are counted instead of named."""
    rows, corpus = results.encodings, results.corpus
    short = len(rows) <= NAMED
    names = joined(row.name for row in rows) if short else f"{len(rows)} position encodings"
    if not isinstance(corpus, TranslationCorpus):
        return f"{names}: {task_description(results)}"
    source, target = language_name(corpus.source), language_name(corpus.target)
    return f"{names}: {source} to {target}, {corpus.name}"


def task_description(results: Results) -> str:
    """Describe a task other than translation, with its attention unless that is softmax."""
    attention = results.config.attention
    return str(results.about) + ("" if attention == "softmax" else f", {attention} attention")


def headline(results: Results) -> str:
    """Return the result on the first test split; if the splits are lengths, also on the last."""
    splits = (results.splits[0], results.splits[0 if results.is_translation else -1])
    return " ".join(_headline(results, split) for split in dict.fromkeys(splits))


def _headline(results: Results, split: str) -> str:
    rows, metric = results.encodings, results.headline_metric
    seeds = seeds_text(rows)
    spreads = [row.summary[split].spread(metric.key) for row in rows]
    if all(spread.mean is None for spread in spreads):
        return f"There is no result on {code(split)}."
    score = f"{format_score(spreads[0].mean, metric)} {metric.name}"
    if len(rows) == 1:
        return f"{code(rows[0].name)} reaches {score} on {code(split)} ({seeds})."
    values = [value for spread in spreads for value in spread.values if value is not None]
    if metric.floor is not None and all(value < metric.floor for value in values):
        limit = f"{metric.floor} {metric.unit}".strip()
        after = f" after {steps}" if (steps := steps_text(rows)) else ""
        return (
            f"On {code(split)}, every model with every seed is below {limit} {metric.name}{after}, "
            "so differences there mean little."
        )
    if len(rows) == 2:
        return _comparison(results, rows[1], split)
    base = f"{code(rows[0].name)} ({score} on {code(split)}, {seeds}{_diverged_note(rows)})"
    return f"Compared with {base}, {_verdicts(results, split)}."


def findings(results: Results) -> list[str]:
    """Return, in one or two sentences each, what the numbers show and what they do not.

    If there are more than NAMED encodings, write one sentence per split for all of them.
    """
    rows, splits = results.encodings, results.splits
    if len(rows) > NAMED:
        sentences = [_headline(results, split) for split in splits]
    else:
        sentences = [_comparison(results, row, split) for split in splits for row in rows[1:]]
    sentences = [sentence for sentence in sentences if sentence not in headline(results)]
    if len(rows) <= NAMED:
        sentences += _counts(results)
    sentences += _solved(results)
    sentences += [
        f"{code(row.name)}, seed {cell.seed}, diverged after "
        f"{format_count(cell.steps, 'step')}. This run stays in the table: "
        f"{_diverged_counts(results, row, place)}."
        for row in rows
        for place, cell in enumerate(row.cells)
        if cell.status == "diverged"
    ]
    sentences += [
        f"{name} lacks {'seed' if len(seeds) == 1 else 'seeds'} {joined(map(str, seeds))}, "
        "which others have, so it is not tested."
        for name, seeds in results.lacking_seeds().items()
    ]
    return sentences + without_result(results) + limits(results)


def _counts(results: Results) -> list[str]:
    """Count the measures in which each row's mean is better, or worse, than the first row's."""
    first, *others = results.encodings
    lacking = results.lacking_seeds()
    if first.name in lacking:  # its mean covers fewer seeds than theirs
        return []
    counts = [_metrics_not_ahead(results, row) for row in others if row.name not in lacking]
    dependent = "These measures are not independent, because all of them judge the same models."
    return [*counts, dependent] if counts else []


def without_result(results: Results) -> list[str]:
    """Return which scores are missing, and why."""
    splits_of: dict[tuple[str, str, int, int], list[str]] = {}
    for row in results.encodings:
        for split in results.splits:
            if reason := row.summary[split].no_result:
                lost = row.summary[split].spread(results.headline_metric.key).values.count(None)
                splits_of.setdefault((row.name, reason, lost, len(row.cells)), []).append(split)
    return [
        f"{code(name)} has no result on {code_list(splits)}: {reason}."
        if lost == runs
        else f"{code(name)} has no mean on {code_list(splits)}, because {lost} of {runs} runs have "
        f"no result: {reason}."
        for (name, reason, lost, runs), splits in splits_of.items()
    ]


def _comparison(results: Results, row: EncodingResults, split: str) -> str:
    """Compare a row with the first row on a split, in one sentence."""
    first, metric, tested = results.encodings[0], results.headline_metric, results.tested
    name, base, on = code(row.name), code(first.name), f"On {code(split)}"
    here, there = (x.summary[split].spread(metric.key).mean for x in (row, first))
    if here is None or there is None:
        lacking = base if there is None else name
        return f"{on}, {name} was not compared with {base}: {lacking} has no result."
    versus = row.summary[split].versus_first
    digits = digits_of_difference(versus, metric) if versus and tested == metric else metric.digits
    scores = f"{format_score(here, metric, digits)} against {format_score(there, metric, digits)} "
    scores += f"{metric.name}, {seeds_text((first, row))}{_diverged_note((first, row))}"
    if versus is None:
        return f"{on}, {name} was not tested against {base} ({scores})."
    told = tested_difference(versus, tested)
    numbers = (
        f"{scores}; difference{'' if tested == metric else f' in {tested.name}'} "
        f"{told.difference}, 95 % interval {told.low} to {told.high}, "
        f"p{' (Holm)' * (len(results.encodings) > 2)} "
        f"{told.p if told.p.startswith('<') else f'= {told.p}'}"
    )
    if versus.verdict == OPEN:
        return f"{on}, it is open whether {name} differs from {base} ({numbers})."
    return f"{on}, {name} is {verdict_text(versus, base, tested)} ({numbers})."


def _verdicts(results: Results, split: str) -> str:
    """Return the verdict of every row but the first, grouped by verdict."""
    groups: dict[str, list[str]] = {}
    tested = results.tested
    what = "" if tested == results.headline_metric else f" {tested.name}"
    for row in results.encodings[1:]:
        verdict, difference = "not tested", ""
        if versus := row.summary[split].versus_first:
            digits = digits_of_difference(versus, tested)
            verdict = versus.verdict
            difference = f" ({format_number(versus.difference, digits, signed=True)}{what})"
        groups.setdefault(verdict, []).append(code(row.name) + difference)
    return "; ".join(
        f"{joined(names)} {'is' if len(names) == 1 else 'are'} {verdict}"
        for verdict, names in sorted(groups.items())
    )


def _diverged_note(rows: Sequence[EncodingResults]) -> str:
    outcomes = [cell.status for row in rows for cell in row.cells]
    lost = outcomes.count("diverged")
    return f", {lost} of {len(outcomes)} runs diverged" if lost else ""


def _metrics_not_ahead(results: Results, row: EncodingResults) -> str:
    """Count the measures in which a row's mean is better, equal or worse; name the worse ones."""
    first = results.encodings[0]
    gains: list[tuple[str, float]] = []

    def compare(name: str, here: float | None, there: float | None, sign: int) -> None:
        if here is not None and there is not None:
            gains.append((name, sign * (here - there)))

    for split in results.splits:
        for metric in results.metrics:
            if metric.key != "perplexity":  # it follows from the loss, which is counted
                here, there = (x.summary[split].spread(metric.key).mean for x in (row, first))
                sign = 1 if metric.higher_is_better else -1
                compare(f"{metric.name} on {code(split)}", here, there, sign)
    compare("validation loss", row.validation_loss.mean, first.validation_loss.mean, -1)
    for split, bins in results.length_bins.items():
        for place, bin_ in enumerate(bins):
            here, there = (_bin_mean(x, split, place) for x in (row, first))
            compare(f"BLEU on {code(split)} ({bin_label(bin_)} words)", here, there, 1)
    worse = [name for name, gain in gains if gain < 0]
    counts = {
        "better than": sum(gain > 0 for _, gain in gains),
        "equal to": sum(gain == 0 for _, gain in gains),
        "worse than": len(worse),
    }
    (relation, count), *others = [x for x in counts.items() if x[1]] or [("better than", 0)]
    measures = "validation loss, and the scores of each split"
    measures += " and range of lengths" * bool(results.length_bins)
    if 0 < len(gains) <= FEW:
        measures = joined(name for name, _ in gains)
    text = (
        "If unrounded scores are compared without significance tests, "
        f"{code(row.name)} is {relation} {code(first.name)} in {count} of {len(gains)} measures of "
        f"quality ({measures})"
    )
    text += "".join(f", {relation.split()[0]} in {count}" for relation, count in others)
    listed = worse and len(worse) < len(gains)
    return f"{text} ({joined(worse)})." if listed else f"{text}."


def sentence_counts(results: Results, split: str) -> list[str]:
    """Count the sentences that each encoding's first seed translates better than the first one's.

    Empty for tasks without sentence BLEU; runs that diverged are left out.
    """
    first, *others = results.encodings
    base = first.cells[0].scores[split].sentence_bleu
    sentences = []
    for row in others:
        scores = row.cells[0].scores[split].sentence_bleu
        if not base or not scores or row.has_diverged or first.has_diverged:
            continue  # the output of a diverged run counts as empty
        better = sum(here > there for here, there in zip(scores, base, strict=True))
        worse = sum(here < there for here, there in zip(scores, base, strict=True))
        sentences.append(
            f"{code(row.name)} is better than {code(first.name)} in {better:,} of {len(base):,} "
            f"sentences, worse in {worse:,} and equal in {len(base) - better - worse:,} (sentence "
            f"BLEU on {code(split)}, seed {row.cells[0].seed})."
        )
    return sentences


def _bin_mean(row: EncodingResults, split: str, place: int) -> float | None:
    bins = [cell.scores[split].by_length for cell in row.cells]
    values = [scores[place].bleu for scores in bins if scores is not None]
    return fmean(values) if values else None


def _solved(results: Results) -> list[str]:
    """Return how many seeds solve each split, if the metric has a threshold for it (`solved`)."""
    metric, sentences = results.headline_metric, []
    if metric.solved is None:
        return []
    for split in results.splits:
        shares: dict[str, list[str]] = {}
        for row in results.encodings:
            values = row.summary[split].spread(metric.key).values
            if known := [value for value in values if value is not None]:
                solved = sum(value >= metric.solved for value in known)
                shares.setdefault(f"{solved} of {len(known)}", []).append(row.name)
        told = "; ".join(
            f"{share} for {code_list(names)}"
            for share, names in sorted(shares.items(), reverse=True)
        )
        limit = f"{metric.solved:g} {metric.unit}".strip()
        sentences.append(f"Seeds that solve {code(split)} ({limit} {metric.name} or more): {told}.")
    return sentences


def _diverged_counts(results: Results, row: EncodingResults, place: int) -> str:
    metric = results.headline_metric
    value = row.summary[results.splits[0]].spread(metric.key).values[place]
    if value is None:
        return "it has no score, so there is no mean"
    score = f"{metric.name} of {format_number(value)}"
    return f"its output counts as empty, and the mean includes its {score}"


def limits(results: Results) -> list[str]:
    """Return what the tests do not answer."""
    rows, items = results.encodings, WINDOWS if results.tested.key == "loss" else "examples"
    if len(rows) < 2:
        return []
    if results.is_translation:
        items = "sentences"
    if results.documents:
        items = "documents"
    first, counts = code(rows[0].name), _tests_by_split(results)
    sentences = [
        "With one seed each, these results are about the trained models, not about the encodings: "
        "another seed may reverse them."
        if max(len(row.cells) for row in rows) == 1
        else f"Differences are taken within each seed: its models have the same order of data and "
        "the same initial weights of what they share. Intervals and p come from a bootstrap that "
        f"resamples these differences and {items}, and corrects for how few seeds there are "
        "(`compare_statistics` in ropewalk/lab/scoring/significance.py)."
    ]
    if items == WINDOWS and not results.documents:
        sentences.append(
            "Windows of the same document are not independent; the tests treat them as if they "
            "were."
        )
    sentences += _untrained_buckets(results) + _short_outputs(results) + _chance(results)
    if _has_small_split(results):
        sentences.append(f"A split of fewer than {FEWEST} {items} is not tested.")
    if len(rows) > 2 and counts:
        tested = [rows[0].name, *results.against]
        sentences.append(
            f"In tests against {first}, p is corrected (Holm) for {_corrected_for(counts)}."
        )
        if len(rows) - len(tested) > 1:
            sentences.append(
                f"On this page, each encoding was tested only against {code_list(tested)}, not "
                "against the others."
            )
    if results.against:
        sentences.append(
            f"{code_list([rows[0].name, *results.against])} are compared with one another "
            "twice, each once as the reference. The two p (Holm) can differ: each is corrected "
            "together with the other comparisons of its reference, and has its own resamples. For "
            "the same reason, a verdict with p near 0.05 may change if the tested encoding and "
            "the reference swap roles."
        )
    if results.tested_later:
        sentences.append(
            f"The tests against {code_list(results.tested_later)} were made after the run, "
            "from the saved scores. For such tests during a run, use `--against`."
        )
    unsure = UNSURE * max(counts.values(), default=0) ** 0.5
    summaries = [row.summary[split] for row in rows for split in results.splits]
    tests = [test for s in summaries for test in (s.versus_first, *s.versus.values())]
    if any(abs(test.p_holm - 0.05) < unsure for test in tests if test):
        sentences.append(
            f"The resamples are random: with other ones, a verdict with p between "
            f"{0.05 - unsure:.3f} and {0.05 + unsure:.3f} may change."
        )
    return [" ".join(sentences)]


def _has_small_split(results: Results) -> bool:
    """Return whether two encodings with scores of all seeds were not tested on a split."""
    first, *others = results.encodings
    lacking, key = results.lacking_seeds(), results.headline_metric.key
    return first.name not in lacking and any(
        row.summary[split].versus_first is None
        and None not in (each.summary[split].spread(key).mean for each in (first, row))
        for row in others
        if row.name not in lacking
        for split in results.splits
    )


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
    sentences = []
    for split in results.splits if results.is_translation else ():
        scores = [cell.scores[split] for row in results.encodings for cell in row.cells]
        known = [p for score in scores if (p := brevity_penalty(score)) is not None]
        if known and max(known) < SHORT:
            sentences.append(
                f"On {code(split)}, outputs are much shorter than the references: the brevity "
                f"penalty multiplies BLEU by a factor between {min(known):.2f} and "
                f"{max(known):.2f}."
            )
    return sentences


def _untrained_buckets(results: Results) -> list[str]:
    """Say which T5 buckets are scored although no distance in training reached them."""
    lengths, sentences = results.lengths, []
    if results.task != "causal-lm" or lengths is None:
        return []
    for row in results.encodings:
        if name_of(row.name) != "t5":
            continue
        _, given = read_call("encoding", row.name, ["t5"])
        borders = bucket_borders(given.get("buckets", 32), given.get("distance", 128))
        longest = max(lengths.of.values())
        if unused := [border for border in borders if lengths.trained <= border < longest]:
            sentences.append(
                f"{code(row.name)} is scored beyond {lengths.trained} tokens although its "
                f"buckets for distances from {unused[0]} on were not trained."
            )
    return sentences


def _tests_by_split(results: Results) -> dict[str, int]:
    """Return how many encodings were tested against the first one, on each split with a test."""
    counts = {
        split: sum(row.summary[split].versus_first is not None for row in results.encodings[1:])
        for split in results.splits
    }
    return {split: count for split, count in counts.items() if count}


def _corrected_for(counts: Mapping[str, int]) -> str:
    """Name the number of comparisons, of each split if they differ."""
    splits_of: dict[int, list[str]] = {}
    for split, count in counts.items():
        splits_of.setdefault(count, []).append(split)
    if len(splits_of) == 1:
        text = format_count(next(iter(splits_of)), "comparison")
        return f"{text} on each split" if len(counts) > 1 else text
    return ", and for ".join(
        f"{format_count(count, 'comparison')} on {code_list(names)}"
        for count, names in splits_of.items()
    )
