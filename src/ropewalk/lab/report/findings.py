"""The findings of a comparison as sentences that claim no more than its numbers bear."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ropewalk.lab.report.caveats import limits
from ropewalk.lab.report.formats import (
    bin_label,
    code,
    code_list,
    digits_of_difference,
    format_count,
    format_list,
    format_number,
    format_p_value,
    format_score,
    format_threshold,
    is_possible,
    is_score,
    language_name,
)
from ropewalk.lab.report.tables import NO_SCORE, least_shown
from ropewalk.lab.results import EncodingResults, Results, TranslationCorpus
from ropewalk.lab.scoring.significance import NOT_SHOWN

NAMED = 6  # up to this many encodings are named in the title and have their own sentences
FEW = 3  # up to this many measures of quality are named


def lacking_sentences(results: Results) -> list[str]:
    """Return a sentence for each encoding that lacks seeds, and so is not tested."""
    return [
        f"{name} lacks {'seed' if len(seeds) == 1 else 'seeds'} {format_list(map(str, seeds))}, "
        f"which others have, so it is not tested."
        for name, seeds in results.lacking_seeds().items()
    ]


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
    rows = results.encodings
    short = len(rows) <= NAMED
    names = format_list(row.name for row in rows) if short else f"{len(rows)} position encodings"
    corpus = results.corpus
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
    text = _headline(results, results.splits[0])
    if results.is_translation or len(results.splits) == 1:
        return text
    return f"{text} {_headline(results, results.splits[-1])}"


def _headline(results: Results, split: str) -> str:
    rows, metric = results.encodings, results.headline_metric
    seeds = seeds_text(rows)
    means = [row.summary[split].spread(metric.key).mean for row in rows]
    if all(mean is None for mean in means):
        return f"There is no result on {code(split)}."
    if len(rows) == 1:
        score = format_score(means[0], metric)
        name = code(rows[0].name)
        return f"{name} reaches {score} {metric.name} on {code(split)} ({seeds})."
    floor = metric.floor
    seen = [v for row in rows for v in row.summary[split].spread(metric.key).values]
    if floor is not None and all(value < floor for value in seen if value is not None):
        limit = f"{floor} {metric.unit}".strip()
        steps = steps_text(rows)
        return (
            f"On {code(split)}, every model with every seed is below {limit} {metric.name}"
            f"{f' after {steps}' if steps else ''}, so differences there mean little."
        )
    if len(rows) == 2:
        return _comparison(results, rows[1], split)
    score = f"{format_score(means[0], metric)} {metric.name}"
    base = f"{code(rows[0].name)} ({score} on {code(split)}, {seeds}{_diverged_note(rows)})"
    return f"Compared with {base}, {'; '.join(_verdicts(results, split))}."


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
    sentences += lacking_sentences(results)
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
    sentences: dict[tuple[str, str, int, int], list[str]] = {}
    key = results.headline_metric.key
    for row in results.encodings:
        for split in results.splits:
            if reason := row.summary[split].no_result:
                lost = row.summary[split].spread(key).values.count(None)
                runs = len(row.cells)
                sentences.setdefault((row.name, reason, lost, runs), []).append(split)
    return [
        f"{code(name)} has no result on {code_list(splits)}: {reason}."
        if lost == runs
        else f"{code(name)} has no mean on {code_list(splits)}, because {lost} of {runs} runs have "
        f"no result: {reason}."
        for (name, reason, lost, runs), splits in sentences.items()
    ]


def _comparison(results: Results, row: EncodingResults, split: str) -> str:
    """Compare a row with the first row on a split, in one sentence."""
    first, metric = results.encodings[0], results.headline_metric
    name, base, on = code(row.name), code(first.name), f"On {code(split)}"
    here, there = (x.summary[split].spread(metric.key).mean for x in (row, first))
    if here is None or there is None:
        lacking = base if there is None else name
        return f"{on}, {name} was not compared with {base}: {lacking} has no result."
    versus, tested = row.summary[split].versus_first, results.tested
    same = tested == metric
    digits = digits_of_difference(versus, metric) if versus and same else metric.digits
    scores = f"{format_score(here, metric, digits)} against {format_score(there, metric, digits)} "
    scores += f"{metric.name}, {seeds_text((first, row))}{_diverged_note((first, row))}"
    if versus is None:
        return f"{on}, {name} was not tested against {base} ({scores})."
    digits, what = digits_of_difference(versus, tested), "difference"
    what += "" if same else f" in {tested.name}"
    p = "p (Holm)" if len(results.encodings) > 2 else "p"
    numbers = (
        f"{scores}; {what} "
        f"{format_number(versus.difference, digits, signed=True)}, "
        f"95 % interval {format_number(versus.low, digits, signed=True)} to "
        f"{format_number(versus.high, digits, signed=True)}, {p} {_equals(versus.p_holm)}"
    )
    if versus.verdict == NOT_SHOWN:
        if (least := least_shown(versus)) is not None:
            limit = format_threshold(least, digits)
            counts = f"a difference of more than {limit} counts as better or worse"
            score = first.summary[split].spread(tested.key).mean
            assert score is not None  # both have scores of all seeds
            if not is_score(score + (least if tested.higher_is_better else -least), tested):
                counts = f"a score worse by more than {limit} counts as worse"
            numbers += f"; {counts if is_possible(least, tested) else NO_SCORE}"
        return f"{on}, no difference is shown between {name} and {base} ({numbers})."
    return f"{on}, {name} is {versus.verdict} than {base} ({numbers})."


def _equals(p: float) -> str:
    text = format_p_value(p)
    return text if text.startswith("<") else f"= {text}"


def _verdicts(results: Results, split: str) -> list[str]:
    """Return the verdict of every row but the first, grouped by verdict."""
    groups: dict[str, list[str]] = {}
    tested = results.tested
    what = "" if tested == results.headline_metric else f" {tested.name}"
    for row in results.encodings[1:]:
        versus = row.summary[split].versus_first
        verdict: str = versus.verdict if versus else "not tested"
        difference = ""
        if versus:
            gap = format_number(
                versus.difference, digits_of_difference(versus, tested), signed=True
            )
            difference = f" ({gap}{what})"
        groups.setdefault(verdict, []).append(code(row.name) + difference)
    sentences = []
    for verdict, names in sorted(groups.items()):
        if verdict == NOT_SHOWN:
            sentences.append(f"no difference is shown for {format_list(names)}")
        else:
            sentences.append(f"{format_list(names)} {'is' if len(names) == 1 else 'are'} {verdict}")
    return sentences


def _diverged_note(rows: Iterable[EncodingResults]) -> str:
    cells = [cell.status for row in rows for cell in row.cells]
    lost = cells.count("diverged")
    return f", {lost} of {len(cells)} runs diverged" if lost else ""


def _metrics_not_ahead(results: Results, row: EncodingResults) -> str:
    """Count the measures in which a row's mean is better, equal or worse; name the worse ones."""
    first, splits = results.encodings[0], results.splits
    taken: list[tuple[str, float | None, float | None, int]] = []
    for split in splits:
        for metric in results.metrics:
            if metric.key == "perplexity":  # it follows from the loss, which is counted
                continue
            here, there = (x.summary[split].spread(metric.key).mean for x in (row, first))
            sign = 1 if metric.higher_is_better else -1
            taken.append((f"{metric.name} on {code(split)}", here, there, sign))
    taken.append(("validation loss", row.validation_loss.mean, first.validation_loss.mean, -1))
    for split, bins in results.length_bins.items():
        for place, bin_ in enumerate(bins):
            here, there = (_bin_mean(x, split, place) for x in (row, first))
            taken.append((f"BLEU on {code(split)} ({bin_label(bin_)} words)", here, there, 1))
    known = [(n, sign * (a - b)) for n, a, b, sign in taken if a is not None and b is not None]
    better = sum(gain > 0 for _, gain in known)
    equal = sum(gain == 0 for _, gain in known)
    worse = [name for name, gain in known if gain < 0]
    counts = {"better than": better, "equal to": equal, "worse than": len(worse)}
    (relation, count), *others = [x for x in counts.items() if x[1]] or [("better than", 0)]
    text = (
        f"If unrounded scores are compared without significance tests, {code(row.name)} is "
        f"{relation} "
        f"{code(first.name)} in {count} of {len(known)} measures of quality"
    )
    few = 0 < len(known) <= FEW
    every = "validation loss, and the scores of each split" + " and range of lengths" * bool(
        results.length_bins
    )
    text += f" ({format_list(name for name, _ in known) if few else every})"
    text += "".join(f", {relation.split()[0]} in {count}" for relation, count in others)
    listed = worse and len(worse) < len(known)
    return f"{text} ({format_list(worse)})." if listed else f"{text}."


def _bin_mean(row: EncodingResults, split: str, place: int) -> float | None:
    bins = [cell.scores[split].by_length for cell in row.cells]
    values = [scores[place].bleu for scores in bins if scores is not None]
    return sum(values) / len(values) if values else None


def _solved(results: Results) -> list[str]:
    """Return how many seeds solve each split, if the metric has a threshold for it (`solved`)."""
    metric, sentences = results.headline_metric, []
    if metric.solved is None:
        return []
    for split in results.splits:
        shares: dict[str, list[str]] = {}
        for row in results.encodings:
            values = row.summary[split].spread(metric.key).values
            known = [value for value in values if value is not None]
            if known:
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
    values = row.summary[results.splits[0]].spread(metric.key).values
    value = values[place] if place < len(values) else None
    if value is None:
        return "it has no score, so there is no mean"
    score = f"{metric.name} of {format_number(value)}"
    return f"its output counts as empty, and the mean includes its {score}"
