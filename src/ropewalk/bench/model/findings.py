"""What the measurement of a model shows, in sentences that claim no more than their intervals."""

from __future__ import annotations

from collections.abc import Iterator

from ropewalk.bench.model.rounds import LEAST_ROUNDS, interval_rank
from ropewalk.bench.model.steps import BEFORE
from ropewalk.files import Facts


def findings(measured: Facts) -> list[str]:
    """Return a sentence for each finding about the model in one dtype."""
    changed = measured["patch"]
    said = [
        f"patch replaced no {what}; times and logits show only the rest."
        for what, paths in (("tables", changed["tables"]), ("rotation", changed["taken"]))
        if not paths
    ]
    said += [sentence for work in measured["speed"] for sentence in _of_work(work)]
    return said + list(_of_logits(measured["logits"], measured["weights"]))


def percent(value: float) -> str:
    """Return a share with two digits: "4.1 %", "12 %"."""
    return f"{_digits(value)} %"


def interval(found: Facts) -> str:
    """Return "1.023 to 1.081", or "" if there were too few rounds."""
    return "" if found["low"] is None else f"{found['low']:.3f} to {found['high']:.3f}"


def shares(found: Facts) -> str:
    """Return "4.1 % (2.0 to 6.1)"."""
    if found["low"] is None:
        return percent(found["median"])
    return f"{percent(found['median'])} ({_digits(found['low'])} to {_digits(found['high'])})"


def limit(rotation: Facts) -> str:
    """Return how many times as fast a step would be if its rotation took no time.

    It is a range such as "1.020 to 1.065", or "" if the part of rotation has no interval.
    """
    if rotation["low"] is None or rotation["high"] >= 1:
        return ""
    return f"{1 / (1 - rotation['low']):.3f} to {1 / (1 - rotation['high']):.3f}"


def _digits(share: float) -> str:
    return f"{100 * share:.1f}" if abs(share) < 0.0995 else f"{100 * share:.0f}"


def _of_work(work: Facts) -> Iterator[str]:
    name = work["work"]
    if "not_measured" in work:
        yield f"{name}: not measured, {work['not_measured']}."
        return
    yield _speed(name, work["times_as_fast"])
    if work["rotation"]:
        yield _rotation(name, work["rotation"])
    if work["left_out"] is None:
        yield f"{name}: rotation cannot be left out, because {work['why_not_left_out']}."
    elif not work["rotation"]:
        yield _left_out(name, work["left_out"])


def _speed(name: str, found: Facts) -> str:
    times = f"{found['median']:.3f} times as fast after patch"
    if found["low"] is None:
        return f"{name}: {times}; fewer than {LEAST_ROUNDS} rounds give no interval."
    if found["low"] > 1:
        return f"{name}: {times} (95 % interval {interval(found)})."
    if found["high"] < 1:
        return f"{name}: slower after patch, {times} (95 % interval {interval(found)})."
    return f"{name}: no difference shown ({interval(found)} times as fast after patch)."


def _rotation(name: str, found: Facts) -> str:
    parts = [f"{shares(each)} of a step {when} patch" for when, each in found.items()]
    said = f"{name}: rotation takes {' and '.join(parts)}"
    fastest = limit(found[BEFORE]) if BEFORE in found else ""
    if not fastest:
        return f"{said}."
    return f"{said}; if it took no time, a step would be {fastest} times as fast as before."


def _left_out(name: str, found: Facts) -> str:
    said = f"{name}: without rotation {found['median']:.3f} times as fast as before patch"
    if found["low"] is None:
        return f"{said}; no interval."
    if found["low"] <= 1 <= found["high"]:
        return f"{name}: without rotation no difference shown ({interval(found)} times as fast)."
    return f"{said} ({interval(found)})."


def _of_logits(logits: Facts, weights: str) -> Iterator[str]:
    if "not_measured" in logits:
        yield f"logits: not measured, {logits['not_measured']}."
        return
    if logits["not_compared"]:
        yield (
            f"logits: near and far positions are not compared, because {logits['not_compared']}; "
            f"only before and after patch are."
        )
    near, spread = logits["near"]["largest"], logits["spread"]
    if not near <= logits["rounding"] * spread:
        yield (
            f"logits: patch moves them by {near:.1g} already at positions from 0 on, more than "
            f"rounding does: the times compare two different models."
        )
    for row in logits["rows"]:
        if "not_measured" in row:
            yield f"logits at {row['last'] + 1:,}: not measured, {row['not_measured']}."
        elif row["before"] is not None:
            yield _moved(row, logits)
    if weights == "random":
        yield "logits: the weights are random, so this is the size of rounding, not of its effect."


def _moved(row: Facts, logits: Facts) -> str:
    before, after, count = row["before"], row["after"], logits["passage"]
    sizes = (
        f"at most {before['largest']:.1g} before patch and {after['largest']:.1g} after "
        f"(standard deviation of logits {logits['spread']:.2g})"
    )
    tops = (
        f"the likeliest token changes in {before['top_changed']} of {count} places before, "
        f"{after['top_changed']} after"
    )
    said = f"logits at {row['last'] + 1:,}: they move by {sizes}; {tops}."
    return f"{said} {_paired(row['kl_after'], count)}"


def _paired(after: Facts, count: int) -> str:
    """Return the result of the sign test of each token's KL divergence, after against before."""
    smaller, larger = after["smaller"], after["larger"]
    places = f"KL divergence smaller after patch in {smaller} of {count} places, larger in {larger}"
    rank = interval_rank(smaller + larger)
    if rank is None or min(smaller, larger) > rank:
        return f"No difference in the next token's distribution shown ({places})."
    how = "less" if smaller > larger else "more"
    return f"The next token's distribution moves {how} after patch ({places})."
