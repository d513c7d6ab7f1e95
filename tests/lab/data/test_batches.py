"""Batches: padding and an epoch's plan.

These fail when a row is lost, doubled or cut, when a batch outgrows its budget, and when an epoch's
order depends on more than seed and epoch.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentences import TEXT

from ropewalk.lab.data.batches import (
    EncodedSplit,
    even_batches,
    in_order,
    make_batch,
    pad,
    plan_epoch,
    read_splits,
    write_splits,
)
from ropewalk.lab.tokens import BOS, EOS, PAD, Tokens

ids = st.lists(st.integers(4, 99), max_size=12)
splits = st.lists(st.tuples(ids, ids), min_size=1, max_size=30).map(
    lambda pairs: EncodedSplit([s for s, _ in pairs], [t for _, t in pairs])
)


def lengths(split: EncodedSplit, rows: list[int]) -> list[int]:
    return [max(len(split.source[i]), len(split.target[i])) + 1 for i in rows]


@given(splits, st.integers(1, 60), st.integers(-3, 3), st.integers(0, 5))
def test_an_epoch_has_every_row_once_within_the_budget(split, tokens, seed, epoch):
    batches = plan_epoch(split, tokens=tokens, sentences=None, seed=seed, epoch=epoch)
    assert sorted(i for rows in batches for i in rows) == list(range(len(split)))
    for rows in batches:
        assert rows
        assert len(rows) == 1 or len(rows) * max(lengths(split, rows)) <= tokens
        batch = make_batch(split, rows)
        size = max(batch.source.shape[1], batch.target_in.shape[1])
        assert size == max(lengths(split, rows))


@given(splits, st.integers(1, 8), st.integers(0, 5))
def test_an_epoch_can_count_sentences_instead(split, sentences, epoch):
    batches = plan_epoch(split, tokens=1, sentences=sentences, seed=1, epoch=epoch)
    assert sorted(i for rows in batches for i in rows) == list(range(len(split)))
    assert all(len(rows) == sentences for rows in batches[:-1])
    assert 1 <= len(batches[-1]) <= sentences


@pytest.mark.parametrize("sentences", [None, 10])
def test_seed_and_epoch_determine_the_order(sentences):
    generator = torch.Generator().manual_seed(0)
    rows = [[7] * int(torch.randint(1, 20, (), generator=generator)) for _ in range(200)]
    split = EncodedSplit(rows, rows)
    plans = {}
    for seed in (1, 2):
        for epoch in (0, 1):
            torch.manual_seed(seed + epoch)  # the global generator has no say
            plan = plan_epoch(split, tokens=100, sentences=sentences, seed=seed, epoch=epoch)
            batches = [list(rows) for rows in plan]
            plans[seed, epoch] = str(batches)
            again = plan_epoch(split, tokens=100, sentences=sentences, seed=seed, epoch=epoch)
            assert again == plan
            assert sorted(batches) != batches
    assert len(set(plans.values())) == 4


def test_batches_hold_rows_of_like_length_that_chance_picks():
    rows = [[7] * (1 + i % 20) for i in range(400)]
    split, members = EncodedSplit(rows, rows), []
    for epoch in (0, 1):
        plan = plan_epoch(split, tokens=150, sentences=None, seed=1, epoch=epoch)
        assert all(max(lengths(split, r)) - min(lengths(split, r)) <= 3 for r in plan)
        firsts = [lengths(split, r)[0] for r in plan]
        assert firsts not in (sorted(firsts), sorted(firsts, reverse=True))
        members.append({frozenset(r) for r in plan})
    assert len(members[0] & members[1]) < len(members[0]) / 2


@given(splits, st.integers(1, 60))
def test_rows_in_order_are_all_there_within_the_budget(split, tokens):
    batches = list(in_order(split, tokens=tokens))
    assert sorted(i for rows in batches for i in rows) == list(range(len(split)))
    sources = [len(split.source[i]) for rows in batches for i in rows]
    assert sources == sorted(sources)
    for rows in batches:
        assert rows
        assert len(rows) == 1 or len(rows) * max(lengths(split, rows)) <= tokens


@given(splits, st.integers(1, 60))
def test_even_batches_are_as_small_as_so_many_can_be(split, tokens):
    """Fails if a row is lost, a batch is too large, or a smaller size had been possible."""
    least, batches = list(in_order(split, tokens=tokens)), even_batches(split, tokens=tokens)
    assert sorted(i for rows in batches for i in rows) == list(range(len(split)))
    if len(least) < 2:
        assert batches == least
        return
    most = len(least) + len(least) % 2
    assert len(batches) <= most
    largest = max(
        [len(rows) * max(lengths(split, rows)) for rows in batches if len(rows) > 1], default=0
    )
    assert largest <= tokens
    if largest:
        assert len(list(in_order(split, tokens=largest - 1))) > most


@given(splits)
def test_a_batch_holds_its_pairs_with_their_marks(split):
    batch = make_batch(split, range(len(split)))
    for i, (source, target) in enumerate(zip(split.source, split.target, strict=True)):
        assert batch.source[i][batch.source_mask[i]].tolist() == [*source, EOS]
        t = len(target) + 1
        assert batch.target_in[i, :t].tolist() == [BOS, *target]
        assert batch.target_out[i, :t].tolist() == [*target, EOS]
        assert (batch.target_in[i, t:] == PAD).all()
        assert (batch.target_out[i, t:] == PAD).all()
        assert (batch.source[i][~batch.source_mask[i]] == PAD).all()
    assert batch.target_tokens == sum(len(t) + 1 for t in split.target)


def test_a_batch_goes_to_a_device_whole():
    batch = make_batch(EncodedSplit([[4]], [[5, 6]]), [0]).to(torch.device("meta"))
    assert all(x.is_meta for x in vars(batch).values())


def test_padding_comes_last():
    assert pad([[5], [6, 7, 8], []]).tolist() == [[5, 0, 0], [6, 7, 8], [0, 0, 0]]


@given(splits, splits)
@settings(max_examples=20)
def test_splits_come_back_from_their_file(tmp_path_factory, train, test):
    path = tmp_path_factory.mktemp("splits") / "splits.safetensors"
    write_splits(path, {"train": train, "test": test})
    assert read_splits(path) == {"train": train, "test": test}


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    return Tokens.train(TEXT, 200)
