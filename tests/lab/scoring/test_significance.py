"""The significance test: its error rates and its formulas.

These fail when systems that differ only by chance are called different too often, and when a clear
difference is not detected.
"""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scripts import load_scripts
from sentences import spoilt, text

from ropewalk.lab.scoring.bleu import bleu_from_statistics, bleu_statistics
from ropewalk.lab.scoring.significance import (
    Comparison,
    Versus,
    by_document,
    compare_statistics,
    compare_with,
    holm,
    verdict,
)

(rejections,) = load_scripts("studies", "rejections")
sacrebleu = pytest.importorskip("sacrebleu", reason="needs the extra 'lab'")


def simulated_pair(generator, sentences, seeds, spread, shift=0.0):
    """Draw two systems, the second better by `shift`."""
    length, ease = rejections.simulated_sentences(sentences, generator)
    return [
        rejections.simulated_system(seeds, length, ease, spread, generator, by) for by in (0, shift)
    ]


def compare_systems(first, other, references, **options):
    systems = (
        torch.stack([bleu_statistics(texts, references)[0] for texts in system])
        for system in (first, other)
    )
    return compare_statistics(*systems, bleu_from_statistics, **options)


def test_a_clear_difference_is_shown():
    references = text(150)
    worse = [spoilt(references, 0.30, seed) for seed in (1, 2, 3)]
    better = [spoilt(references, 0.15, seed) for seed in (4, 5, 6)]
    found = compare_systems(worse, better, references)
    mean = [
        sum(sacrebleu.corpus_bleu(h, [references]).score for h in system) / 3
        for system in (worse, better)
    ]
    assert found.difference == pytest.approx(mean[1] - mean[0])
    assert 0 < found.low < found.difference < found.high
    assert 0 < found.p < 0.01
    turned = compare_systems(better, worse, references)
    assert turned.difference == pytest.approx(-found.difference)
    assert turned.p < 0.01


def test_a_system_does_not_differ_from_itself():
    references = text(60)
    system = [spoilt(references, 0.3, seed) for seed in (1, 2, 3)]
    found = compare_systems(system, system, references)
    assert (found.difference, found.p) == (0.0, 1.0)
    assert found.low == -found.high
    alone = compare_systems(system[:1], system[:1], references)
    assert (alone.low, alone.high, alone.p) == (0.0, 0.0, 1.0)


def test_p_is_never_zero_and_the_same_every_time():
    references = text(80)
    arguments = ([spoilt(references, 0.9, 1)], [references], references)
    found = compare_systems(*arguments, resamples=99)
    assert found.p == 1 / 100
    assert found == compare_systems(*arguments, resamples=99)
    assert found != compare_systems(*arguments, resamples=99, seed=1)


def test_the_interval_leaves_out_zero_where_p_is_below_five_percent():
    generator = torch.Generator().manual_seed(3)
    for shift in (0.0, 0.1, 0.2, 0.3):
        pair = simulated_pair(generator, 80, 3, 0.1, shift)
        found = compare_statistics(*pair, bleu_from_statistics, resamples=399)
        assert (found.low > 0 or found.high < 0) == (found.p < 0.05)


@pytest.mark.parametrize("resamples", [2, 18, 19, 20, 38, 39, 40, 59, 60, 79, 80])
def test_an_interval_of_few_resamples_leaves_out_zero_where_p_is_below_five_percent(resamples):
    """Fails if the interval ends at a neighboring distance, or ends though no p can be so small."""
    first, other = normal(14, 1, 40), normal(15, 1, 40)
    for shift in torch.linspace(0, 2, 80):
        found = compare_statistics(
            of_means(first), of_means(other + shift), mean_of, resamples=resamples
        )
        assert (found.low > 0 or found.high < 0) == (found.p < 0.05)


@pytest.mark.parametrize(
    ("seeds", "seed_spread"),
    [
        (3, 0.1),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in [(2, 0.2), (3, 0.0), (3, 0.5)]),
    ],
)
def test_systems_alike_are_seldom_called_different(seeds, seed_spread):
    """5 % is the aim; in 150 trials, 10 % is nearly three standard errors above it."""
    generator = torch.Generator().manual_seed(11)
    trials, called = 150, 0
    for trial in range(trials):
        pair = simulated_pair(generator, 100, seeds, seed_spread)
        found = compare_statistics(*pair, bleu_from_statistics, resamples=199, seed=trial)
        called += found.p <= 0.05
    assert called / trials <= 0.10


def test_systems_with_one_seed_are_judged_by_sentences_alone():
    """As documented: 5 % of equal systems are called different, but many more if seeds matter."""
    generator = torch.Generator().manual_seed(12)
    called = {0.0: 0, 0.5: 0}
    for spread, trial in itertools.product(called, range(100)):
        pair = simulated_pair(generator, 100, 1, spread)
        found = compare_statistics(*pair, bleu_from_statistics, resamples=199, seed=trial)
        called[spread] += found.p <= 0.05
    assert called[0.0] <= 10
    assert called[0.5] >= 30


@pytest.mark.parametrize(("seed_spread", "shift", "least"), [(0.1, 0.4, 40), (0.0, 0.2, 30)])
def test_a_difference_between_five_seeds_is_seen(seed_spread, shift, least):
    """A test that never rejects would be calibrated too. If the chance in single runs is counted
    twice, the second case is missed more often.
    """
    generator = torch.Generator().manual_seed(13)
    seen = 0
    for trial in range(60):
        pair = simulated_pair(generator, 150, 5, seed_spread, shift)
        found = compare_statistics(*pair, bleu_from_statistics, resamples=199, seed=trial)
        seen += found.difference > 0 and found.p <= 0.05
    assert seen >= least


def test_every_system_is_compared_with_the_reference():
    references = text(100)
    texts = [
        [spoilt(references, rate, seed) for seed in (1 + shift, 2 + shift, 3 + shift)]
        for rate, shift in [(0.3, 0), (0.1, 10), (0.3, 20), (0.6, 30)]
    ]
    systems = [torch.stack([bleu_statistics(h, references)[0] for h in each]) for each in texts]
    systems.insert(2, None)  # every seed diverged
    rows = compare_with(0, systems, bleu_from_statistics, margin=1.0, resamples=999)
    assert rows[0] is None
    assert rows[2] is None
    better, alike, worse = rows[1], rows[3], rows[4]
    assert isinstance(better, Versus)
    assert (better.verdict, worse.verdict) == ("better", "worse")
    assert alike.verdict in ("equal", "open")
    alone = compare_systems(texts[0], texts[1], references, resamples=999)
    for name in ("difference", "low", "high", "p"):
        assert getattr(better, name) == getattr(alone, name)
    assert [r.p_holm for r in (better, alike, worse)] == holm([better.p, alike.p, worse.p])
    assert compare_with(0, [None, systems[0]], bleu_from_statistics, margin=1.0) == [None, None]
    assert compare_with(0, [systems[0]], bleu_from_statistics, margin=1.0) == [None]
    turned = compare_with(
        0, systems[:2], bleu_from_statistics, margin=1.0, higher_is_better=False, resamples=999
    )
    assert (turned[1].difference, turned[1].verdict) == (better.difference, "worse")
    against_last = compare_with(4, systems, bleu_from_statistics, margin=1.0, resamples=999)
    assert [row is None for row in against_last] == [False, False, True, False, True]
    assert against_last[0].difference == pytest.approx(-worse.difference)
    assert against_last[0].verdict == "better"


def seeds_that_agree(items: int) -> list[torch.Tensor]:
    """Two systems of three seeds; all seeds have the same mean but different items."""
    generator = torch.Generator().manual_seed(8)
    systems = []
    for _ in range(2):
        values = torch.randn(3, items, 1, generator=generator, dtype=torch.float64)
        values += torch.randn(1, items, 1, generator=generator, dtype=torch.float64)
        values -= values.mean(1, keepdim=True)
        systems.append(torch.cat([values, torch.ones_like(values)], -1))
    return systems


def test_no_interval_is_narrower_than_items_alone_allow():
    """Fails if seeds that agree by chance make the interval narrower than a paired bootstrap's."""
    first, other = seeds_that_agree(200)
    found = compare_statistics(first, other, lambda sums: sums[..., 0] / sums[..., 1])
    apart = (other - first)[..., 0].mean(0)
    alone = 1.96 * (apart.std(correction=0) / 200**0.5).item()
    assert found.high - found.difference >= 0.97 * alone


def of_means(values):
    """Statistics of a mean: the values (Z, N), each with a count of 1."""
    return torch.stack([values, torch.ones_like(values)], -1)


def mean_of(sums):
    return sums[..., 0] / sums[..., 1]


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(spread=st.floats(0, 100), seed=st.integers(0, 99))
def test_what_a_seed_does_to_both_systems_changes_nothing(spread, seed):
    """Fails if seeds are not paired: a common effect of the seed would widen the interval."""
    first, other, effect = normal(1, 3, 40), normal(2, 3, 40) + 0.5, spread * normal(seed, 3, 1)
    plain = compare_statistics(of_means(first), of_means(other), mean_of, resamples=199)
    moved = compare_statistics(
        of_means(first + effect), of_means(other + effect), mean_of, resamples=199
    )
    assert moved.p == plain.p
    assert (moved.difference, moved.low) == pytest.approx((plain.difference, plain.low), abs=1e-9)


def test_differences_within_seeds_are_judged_as_students_paired_t_test_would():
    """Where items hardly matter: the published differences of theta, 0.094, 0.110 and 0.124."""
    apart = torch.tensor([[0.094], [0.110], [0.124]], dtype=torch.float64)
    first = normal(1, 3, 1) + 1e-6 * normal(2, 3, 60)
    found = compare_statistics(of_means(first), of_means(first + apart), mean_of)
    error = (apart.std() / 3**0.5).item()
    assert found.high - found.difference == pytest.approx(4.303 * error, rel=0.08)
    assert found.p == pytest.approx(0.0063, abs=0.004)


def test_items_are_drawn_within_their_strata():
    """Fails if the share of a stratum varies: here it is all that could vary."""
    strata = torch.arange(60) % 3
    first = of_means(torch.zeros(2, 60, dtype=torch.float64))
    other = of_means(strata.double().expand(2, 60))
    within = compare_statistics(first, other, mean_of, strata=strata, resamples=199)
    assert within.low == pytest.approx(within.high)
    free = compare_statistics(first, other, mean_of, resamples=199)
    assert free.high - free.low > 0.2
    row = compare_with(0, [first, other], mean_of, margin=1.0, strata=strata, resamples=199)[1]
    assert (row.low, row.high, row.p) == (within.low, within.high, within.p)


@given(st.lists(st.integers(0, 9), min_size=30, max_size=30))
def test_items_of_a_document_are_one_item(documents):
    """Fails if items that are alike count as independent: each here occurs three times."""
    values = of_means(normal(4, 2, 30))
    joined = by_document(values, documents)
    assert joined.shape[1] == len(set(documents))
    assert torch.allclose(joined.sum(1), values.sum(1))
    thrice = by_document(values.repeat(1, 3, 1), documents * 3)
    assert torch.allclose(thrice, 3 * joined)


@given(
    difference=st.integers(-3, 3),
    half=st.integers(0, 4),
    p=st.sampled_from([0.0, 0.04, 0.05, 1.0]),
    margin=st.integers(0, 6),
    more=st.booleans(),
)
def test_a_verdict_is_of_p_and_then_of_the_interval(difference, half, p, margin, more):
    found = Comparison(difference, difference - half, difference + half, p)
    said = verdict(found, p, margin, higher_is_better=more)
    if p < 0.05 and difference:
        assert said == ("better" if (difference > 0) == more else "worse")
    else:
        assert said == ("equal" if abs(difference) + half <= margin else "open")
    if more:
        assert verdict(found, p, margin) == said


@pytest.mark.parametrize(("items", "there"), [(9, False), (10, True), (11, True)])
def test_fewer_than_ten_items_are_not_compared(items, there):
    systems = [of_means(normal(seed, 2, items)) for seed in (1, 2)]
    assert (compare_with(0, systems, mean_of, margin=1.0, resamples=19)[1] is not None) == there


@pytest.mark.parametrize(
    ("shift", "margin", "expected"),
    [(0.0, 0.5, "equal"), (0.0, 0.001, "open"), (0.2, 9.0, "better"), (-0.2, 9.0, "worse")],
)
def test_what_is_not_shown_is_equal_within_a_margin_or_open(shift, margin, expected):
    first = normal(5, 3, 80)
    other = first + shift + 0.05 * normal(6, 3, 80) - 0.05 * normal(6, 3, 80).mean()
    row = compare_with(0, [of_means(first), of_means(other)], mean_of, margin=margin)[1]
    assert row.verdict == expected
    assert row.margin == margin
    turned = compare_with(
        0, [of_means(first), of_means(other)], mean_of, margin=margin, higher_is_better=False
    )[1]
    swapped = {"better": "worse", "worse": "better"}
    assert turned.verdict == swapped.get(expected, expected)


def test_many_comparisons_leave_a_small_p():
    """Fails if resamples are so few that 18 comparisons cannot come below 0.001."""
    one = torch.zeros(2, 20, 2, dtype=torch.float64)
    one[..., 1] = 1.0
    other = one.clone()
    other[..., 0] = 1.0
    systems = [one, *[other] * 18]
    rows = compare_with(0, systems, mean_of, margin=0.01)
    assert all(row.p_holm < 0.001 for row in rows[1:])


def test_a_mean_is_judged_as_students_t_test_would():
    """Any statistics whose sums make the score are possible: here the values and a count.

    With one seed, only items decide: p and interval are those of a paired t-test (scipy's formula
    written out), up to a few hundredths from resampling.
    """
    generator = torch.Generator().manual_seed(5)
    first = torch.randn(1, 200, 1, generator=generator, dtype=torch.float64)
    for shift in (0.0, 0.1, 0.2):
        apart = shift + torch.randn(1, 200, 1, generator=generator, dtype=torch.float64)
        both = [torch.cat([x, torch.ones_like(x)], -1) for x in (first, first + apart)]
        found = compare_statistics(*both, lambda sums: sums[..., 0] / sums[..., 1])
        error = (apart.std() / 200**0.5).item()
        assert found.difference == pytest.approx(apart.mean().item())
        assert found.high - found.difference == pytest.approx(1.97 * error, rel=0.08)
        normal = math.erfc(abs(apart.mean().item()) / error / 2**0.5)
        assert found.p == pytest.approx(normal, abs=0.04)


def test_statistics_of_other_items_or_seeds_are_refused():
    one = torch.ones(2, 5, 3)
    nothing, flat = torch.ones(2, 0, 3), torch.ones(5, 3)
    pairs = [(one, torch.ones(2, 4, 3)), (one, torch.ones(3, 5, 3)), (nothing,) * 2, (flat,) * 2]
    for first, other in pairs:
        with pytest.raises(ValueError, match=r"same shape \(seeds, items, statistics\)"):
            compare_statistics(first, other, bleu_from_statistics)


def test_holm_by_hand():
    """By Holm's (1979) rule: 4 x 0.005, 3 x 0.01, 2 x 0.03, then 0.04 raised to 0.06."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(values=st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_between_p_and_bonferroni_and_keeps_the_order(values):
    adjusted = holm(values)
    for p, q in zip(values, adjusted, strict=True):
        assert p <= q <= min(1.0, len(values) * p) or math.isclose(q, len(values) * p)
    for i, j in itertools.combinations(range(len(values)), 2):
        if values[i] < values[j]:
            assert adjusted[i] <= adjusted[j]
        if values[i] == values[j]:
            assert adjusted[i] == adjusted[j]
