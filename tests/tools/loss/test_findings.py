"""Sentences about losses claim what the intervals show, and no more."""

import re
from dataclasses import replace

import pytest

from ropewalk.scaling import Linear
from ropewalk.tools.loss import (
    ContextLoss,
    Difference,
    LossMeasurement,
    RuleLoss,
    ShiftLoss,
    Shifts,
)
from ropewalk.tools.loss.loss_report import findings, loss_blocks, loss_picture

ZERO = Difference(0.0, 0.0, 0.0)


def shifts(largest, rounding=1e-5):
    rows = tuple(
        ShiftLoss(offset, 3.0, Difference(change, change - 0.1, change + 0.1), abs(change))
        for offset, change in ((0, 0.0), (1, 1e-7), (64, largest / 2), (192, largest))
    )
    return Shifts(rows, rounding, largest / 192, largest <= rounding)


def measured(to_change, own_change=ZERO, *, unit="passages", tied=(), far=1e-6, rounding=1e-5):
    plain = (
        ContextLoss(64, 3.0, (3.0,), ZERO, ZERO),
        ContextLoss(256, 4.0, (4.0,), ZERO, Difference(1.0, 0.9, 1.1)),
    )
    ruled = (
        ContextLoss(64, 3.0, (3.0,), own_change, own_change),
        ContextLoss(256, 3.0, (3.0,), Difference(-1.0, -1.1, -0.9), to_change),
    )
    none = RuleLoss("none", None, plain, shifts(1e-6))
    linear = RuleLoss("linear", Linear(4.0), ruled, shifts(far, rounding))
    refused = RuleLoss("yarn", None, refused="the code ignores it")
    return LossMeasurement(
        64, 256, 16, (256, 300), unit, 64, (none, linear, refused), shifts(far, rounding),
        "linear", tied,
    )  # fmt: skip


LOWER = "loss with 256 tokens of context is 0.200 lower than with 64 without a rule"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ((-0.2, -0.3, -0.1), f"{LOWER} (-0.300 to -0.100)"),
        ((0.2, 0.1, 0.3), f"{LOWER.replace('lower', 'higher')} (+0.100 to +0.300)"),
        ((-0.2, -0.5, 0.1), "no difference shown between 256 tokens of context and 64 without a "
                            "rule (-0.500 to +0.100)"),
        ((-0.2, None, None), f"{LOWER}, but too few tokens are scored for an interval"),
    ],
)  # fmt: skip
def test_a_longer_context_is_better_only_if_its_interval_shows_it(change, says):
    assert f"linear: {says}" in findings(measured(Difference(*change)))


def test_what_a_rule_costs_at_the_original_context_is_said_only_if_shown():
    costs = Difference(0.1, 0.05, 0.15)
    said = "linear: it raises the loss with 64 tokens of context by 0.100 (+0.050 to +0.150)"
    assert said in findings(measured(ZERO, costs))
    assert not any("it raises" in each for each in findings(measured(ZERO)))
    assert not any("it raises" in each for each in findings(measured(ZERO, Difference(1, -1, 3))))


def test_rules_that_are_not_shown_to_be_worse_are_named():
    both = replace(measured(ZERO), results=measured(ZERO).results[:2])
    assert any(each.endswith("and all others are shown to be higher") for each in findings(both))
    said = findings(measured(ZERO, tied=("none",)))
    assert "lowest loss with 256 tokens of context: linear; not shown to be higher: none" in said
    assert (
        "lowest loss with 256 tokens of context: linear, and all others that were measured are "
        "shown to be higher"
    ) in findings(measured(ZERO))
    alone = replace(measured(ZERO), results=measured(ZERO).results[:1], lowest="none")
    assert not re.search("lowest loss|all others", " ".join(findings(alone)))


def test_a_measurement_without_intervals_says_so():
    none = Difference(0.0, None, None)
    one = without_intervals(measured(ZERO, none))
    said = findings(one)
    assert (
        "there are no intervals: 16 tokens of one passage are too few; more passages, or a longer "
        "text, give them"
    ) in said
    assert not any("95 %" in each for each in said)
    title, rows = next(each for each in loss_blocks(one) if each[0].startswith("change from none"))
    assert title == "change from none with 64 tokens of context"
    assert rows[1] == ("none", "0", "+1.000")
    assert loss_picture(one).data["halves"] == {}  # bars of no width would look certain
    assert loss_picture(measured(ZERO)).data["halves"]["linear"] == pytest.approx((0, 0))


def without_intervals(found):
    """The same measurement, as that of one passage."""

    def bare(row):
        changes = {name: getattr(row, name) for name in ("from_none", "from_original")}
        return replace(row, **{name: Difference(c.mean, None, None) for name, c in changes.items()})

    results = [replace(each, contexts=tuple(map(bare, each.contexts))) for each in found.results]
    return replace(found, ends=(256,), unit="blocks", results=tuple(results))


def test_a_slope_is_named_with_what_rounding_explains():
    said = findings(measured(ZERO, far=0.5, rounding=1.5e-5))
    assert (
        "linear: not flat, moving positions by 192 changes a token's loss by 0.5 (rounding "
        "explains 1.5e-05), and moving them by 192 changes the mean by +0.5 (+0.4 to +0.6): angles "
        "are not exact, or positions act elsewhere"
    ) in said
    assert any(each.startswith("flat:") and each.endswith("under none") for each in said)


def test_what_intervals_cover_depends_on_what_was_drawn():
    said = " ".join(findings(measured(ZERO)))
    assert "cover the choice of 2 passages in this text, not of other texts" in said
    said = " ".join(findings(measured(ZERO, unit="blocks")))
    assert "speak of 2 passages of this text only" in said
    assert "more passages, or a longer text, let them cover the choice of passages" in said
    one = replace(measured(ZERO, unit="blocks"), ends=(256,))
    assert "one passage of this text only: they cover blocks of its tokens" in " ".join(
        findings(one)
    )


def test_a_refused_rule_has_its_reason_in_a_row():
    blocks = dict(loss_blocks(measured(ZERO)))
    assert blocks["not measured"] == [("yarn", "the code ignores it.")]


def test_a_method_that_was_not_measured_is_named():
    with pytest.raises(ValueError, match="measured: none, linear, yarn, got 'ntk'"):
        measured(ZERO).result("ntk")
