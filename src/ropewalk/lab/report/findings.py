"""What a comparison found, in plain words and no more of them than its numbers allow."""

from __future__ import annotations

from collections.abc import Iterable

from ropewalk.files import Facts
from ropewalk.lab.report.formats import bin_label, count, duration, language, listed, p_value
from ropewalk.lab.report.metrics import (
    amount,
    digits_for,
    headline_measure,
    is_translation,
    measures,
    number,
    tested_measure,
)
from ropewalk.lab.scoring.significance import FEWEST

NAMED = 6  # encodings in a title


def title(results: Facts) -> str:
    """Say what was compared on what; many encodings are counted instead of named."""
    rows = results["encodings"]
    few = len(rows) <= NAMED
    names = listed(row["name"] for row in rows) if few else f"{len(rows)} position encodings"
    if not is_translation(results):
        return f"{names}: {about(results)}"
    corpus = results["corpus"]
    source, target = language(corpus["source"]), language(corpus["target"])
    return f"{names}: {source} to {target}, {corpus['name']}"


def about(results: Facts) -> str:
    """Say what a task other than translation is, and by which attention unless it is softmax."""
    attention = results["config"].get("attention", "softmax")
    return str(results["about"]) + ("" if attention == "softmax" else f", {attention} attention")


def headline(results: Facts) -> str:
    """Say what was found on the first test split and, of growing lengths, on the last."""
    said = _headline(results, results["splits"][0])
    if is_translation(results) or len(results["splits"]) == 1:
        return said
    return f"{said} {_headline(results, results['splits'][-1])}"


def _headline(results: Facts, split: str) -> str:
    rows, measure = results["encodings"], headline_measure(results)
    seeds = seeds_said(results)
    means = [row["summary"][split][measure["key"]]["mean"] for row in rows]
    if all(mean is None for mean in means):
        return f"There is no result on {split}."
    if len(rows) == 1:
        score = amount(means[0], measure)
        return f"{rows[0]['name']} reaches {score} {measure['name']} on {split} ({seeds})."
    floor = measure["floor"]
    seen = [v for row in rows for v in row["summary"][split][measure["key"]]["values"]]
    if floor is not None and all(value < floor for value in seen if value is not None):
        what = f"{'translate' if is_translation(results) else 'answer'} {split}"
        limit = f"{floor} {measure['unit']}".strip()
        return (
            f"No model has learned to {what}: all are below {limit} {measure['name']} ({seeds}). "
            "Differences between them mean little."
        )
    if len(rows) == 2:
        return _versus(results, rows[1], split)
    score = f"{amount(means[0], measure)} {measure['name']}"
    against = f"Against {rows[0]['name']} ({score} on {split}, {seeds}{_lost(rows)})"
    return f"{against}, {'; '.join(_verdicts(results, split))}."


def findings(results: Facts) -> list[str]:
    """Say, one sentence or two each, what the numbers show and what they do not."""
    rows, splits = results["encodings"], results["splits"]
    said = [_versus(results, row, split) for split in splits for row in rows[1:]]
    said = [sentence for sentence in said if sentence not in headline(results)]
    said += [_not_ahead(results, row) for row in rows[1:]]
    said += _equal_time(results)
    said += [
        f"{row['name']}, seed {cell['seed']}, diverged after {count(cell['steps'], 'step')}. "
        f"It stays in the table: {_diverged_counts(results, row, place)}."
        for row in rows
        for place, cell in enumerate(row["cells"])
        if cell["status"] == "diverged"
    ]
    return said + without_result(results) + _limits(results)


def without_result(results: Facts) -> list[str]:
    """Say where there is no score, and why."""
    said: dict[tuple[str, str, int], list[str]] = {}
    key = headline_measure(results)["key"]
    for row in results["encodings"]:
        for split in results["splits"]:
            if reason := row["summary"][split].get("no_result"):
                lost = row["summary"][split][key]["values"].count(None)
                said.setdefault((row["name"], reason, lost), []).append(split)
    runs = len(results["encodings"][0]["cells"])
    return [
        f"{name} has no result on {listed(splits)}: {reason}."
        if lost == runs
        else f"{name} has no mean on {listed(splits)}, since {lost} of {runs} runs have no result: "
        f"{reason}."
        for (name, reason, lost), splits in said.items()
    ]


def seeds_said(results: Facts) -> str:
    """Say of how many seeds a mean is."""
    seeds = len(results["encodings"][0]["cells"])
    return "one seed" if seeds == 1 else f"means of {seeds} seeds"


def _versus(results: Facts, row: Facts, split: str) -> str:
    """Compare a row with the first on a split, in a sentence."""
    first, measure = results["encodings"][0], headline_measure(results)
    here, there = (x["summary"][split][measure["key"]]["mean"] for x in (row, first))
    if here is None or there is None:
        lacking = first["name"] if there is None else row["name"]
        return (
            f"On {split}, {row['name']} was not compared with {first['name']}: {lacking} has no "
            "result."
        )
    versus, tested = row["summary"][split].get("versus_first"), tested_measure(results)
    same = tested == measure
    digits = digits_for(versus, measure) if versus and same else measure["digits"]
    scores = f"{amount(here, measure, digits)} against {amount(there, measure, digits)} "
    scores += f"{measure['name']}, {seeds_said(results)}{_lost((first, row))}"
    if versus is None:
        return f"On {split}, {row['name']} was not tested against {first['name']} ({scores})."
    digits = digits_for(versus, tested)
    what = "difference" if same else f"difference in {tested['name']}"
    numbers = (
        f"{scores}; {what} "
        f"{number(versus['difference'], digits, signed=True)}, "
        f"95 % interval {number(versus['low'], digits, signed=True)} to "
        f"{number(versus['high'], digits, signed=True)}, p {_equals(versus['p_holm'])}"
    )
    if versus["verdict"] == "no difference shown":
        names = f"{row['name']} and {first['name']}"
        return f"On {split}, no difference is shown between {names} ({numbers})."
    return f"On {split}, {row['name']} is {versus['verdict']} than {first['name']} ({numbers})."


def _equals(p: float) -> str:
    text = p_value(p)
    return text if text.startswith("<") else f"= {text}"


def _verdicts(results: Facts, split: str) -> list[str]:
    """Say of every row but the first what the test against the first says."""
    groups: dict[str, list[str]] = {}
    tested = tested_measure(results)
    what = "" if tested == headline_measure(results) else f" {tested['name']}"
    for row in results["encodings"][1:]:
        versus = row["summary"][split].get("versus_first")
        verdict = versus["verdict"] if versus else "not tested"
        difference = ""
        if versus:
            gap = number(versus["difference"], digits_for(versus, tested), signed=True)
            difference = f" ({gap}{what})"
        groups.setdefault(verdict, []).append(row["name"] + difference)
    said = []
    for verdict, names in sorted(groups.items()):
        if verdict == "no difference shown":
            said.append(f"no difference is shown for {listed(names)}")
        else:
            said.append(f"{listed(names)} {'is' if len(names) == 1 else 'are'} {verdict}")
    return said


def _lost(rows: Iterable[Facts]) -> str:
    cells = [cell["status"] for row in rows for cell in row["cells"]]
    lost = cells.count("diverged")
    return f", {lost} of {len(cells)} runs diverged" if lost else ""


def _not_ahead(results: Facts, row: Facts) -> str:
    """Name the measures of the table on which a row's mean is not ahead of the first's."""
    first, splits = results["encodings"][0], results["splits"]
    taken: list[tuple[str, float | None, float | None, int]] = []
    for split in splits:
        for measure in measures(results):
            here, there = (x["summary"][split][measure["key"]]["mean"] for x in (row, first))
            sign = 1 if measure["higher_is_better"] else -1
            taken.append((f"{measure['name']} on {split}", here, there, sign))
    for name, key, sign in (
        ("validation loss", "validation_loss", -1),
        ("training speed", "tokens_per_s", 1),
        ("peak memory", "peak_memory_bytes", -1),
    ):
        taken.append((name, row[key]["mean"], first[key]["mean"], sign))
    for place, bin_ in enumerate(results.get("length_bins", {}).get(splits[0], ())):
        here, there = (_bin_mean(x, splits[0], place) for x in (row, first))
        taken.append((f"{splits[0]} sentences of {bin_label(bin_)} words", here, there, 1))
    behind = [
        name
        for name, here, there, sign in taken
        if here is not None and there is not None and sign * (here - there) <= 0
    ]
    known = sum(here is not None and there is not None for _, here, there, _ in taken)
    if not behind:
        return (
            f"{row['name']} is ahead of {first['name']} in the mean of all {known} measures taken."
        )
    return (
        f"{row['name']} is not ahead of {first['name']} in the mean of {len(behind)} of {known} "
        f"measures taken: {listed(behind)}."
    )


def _bin_mean(row: Facts, split: str, place: int) -> float | None:
    scores = [cell["scores"].get(split) for cell in row["cells"]]
    values = [score["by_length"][place]["bleu"] for score in scores if score and "bleu" in score]
    return sum(values) / len(values) if values else None


def _equal_time(results: Facts) -> list[str]:
    rows = [row for row in results["encodings"] if row.get("equal_time")]
    if len(rows) < 2:
        return []
    losses = listed(
        f"{row['name']} {number(loss, 3) if loss is not None else 'unknown'}"
        for row in rows
        for loss in [row["equal_time"]["validation_loss"]["mean"]]
    )
    seconds = duration(rows[0]["equal_time"]["seconds"])
    return [
        f"After equal training time ({seconds}, that of the fastest run), mean validation loss is: "
        f"{losses}. This was not tested for significance."
    ]


def _diverged_counts(results: Facts, row: Facts, place: int) -> str:
    measure = headline_measure(results)
    values = row["summary"][results["splits"][0]][measure["key"]]["values"]
    value = values[place] if place < len(values) else None
    if value is None:
        return "it has no score, and there is no mean without it"
    return f"it translated nothing, and the mean counts its {measure['name']} of {number(value)}"


def _limits(results: Facts) -> list[str]:
    """Say what the tests do not answer."""
    rows, seeds = results["encodings"], len(results["encodings"][0]["cells"])
    if len(rows) < 2:
        return []
    key = headline_measure(results)["key"]
    said = (
        "With one seed each, this speaks of the trained models and not of the encodings: another "
        "seed may turn it around."
        if seeds == 1
        else f"The tests resample {_items(results)} and seeds together."
    )
    if any(
        row["summary"][split].get("versus_first", 0) is None
        and None not in (each["summary"][split][key]["mean"] for each in (rows[0], row))
        for row in rows[1:]
        for split in results["splits"]
    ):
        said += f" A split of fewer than {FEWEST} {_items(results)} is not tested."
    if len(rows) > 2:
        said += (
            f" p-values carry Holm’s correction for {len(rows) - 1} comparisons. Each encoding was "
            f"tested against {rows[0]['name']} alone, not against the others."
        )
    return [said]


def _items(results: Facts) -> str:
    if is_translation(results):
        return "sentences"
    return "windows of text" if tested_measure(results)["key"] == "loss" else "examples"
