"""Batches: padding and an epoch's plan.

These fail when a row is lost, doubled or cut, when a batch outgrows its budget, when an epoch's
order depends on more than seed and epoch, and when it is not that of plain lists.
"""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
from ropewalk.lab.tokens import BOS, EOS, PAD

ids = st.lists(st.integers(4, 99), max_size=12)
splits = st.lists(st.tuples(ids, ids), min_size=1, max_size=30).map(
    lambda pairs: EncodedSplit([s for s, _ in pairs], [t for _, t in pairs])
)


def lengths(split: EncodedSplit, rows: list[int]) -> list[int]:
    return [max(len(split.source[i]), len(split.target[i])) + 1 for i in rows]


def check_rows(batches, split: EncodedSplit, tokens: int) -> None:
    """Every row is there once, within the budget."""
    assert sorted(i for rows in batches for i in rows) == list(range(len(split)))
    for rows in batches:
        assert rows
        assert len(rows) == 1 or len(rows) * max(lengths(split, rows)) <= tokens


@settings(max_examples=30)
@given(splits, st.integers(1, 60), st.integers(-3, 3), st.integers(0, 5))
def test_an_epoch_has_every_row_once_within_the_budget(split, tokens, seed, epoch):
    batches = plan_epoch(split, tokens=tokens, sentences=None, seed=seed, epoch=epoch)
    check_rows(batches, split, tokens)
    for rows in batches:
        batch = make_batch(split, rows)
        size = max(batch.source.shape[1], batch.target_in.shape[1])
        assert size == max(lengths(split, rows))


def listed_plan(split, *, tokens, sentences, seed, epoch):
    """An epoch's plan, written with lists alone."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(split), generator=generator).tolist()
    if sentences is not None:
        return [order[i : i + sentences] for i in range(0, len(order), sentences)]
    sizes = [max(len(s), len(t)) + 1 for s, t in zip(split.source, split.target, strict=True)]
    order.sort(key=lambda i: (sizes[i], len(split.target[i])))
    batches = [[]]
    for i in order:
        if batches[-1] and (len(batches[-1]) + 1) * sizes[i] > tokens:
            batches.append([])
        batches[-1].append(i)
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


@settings(max_examples=50)
@given(
    splits,
    st.integers(1, 90),
    st.one_of(st.none(), st.integers(1, 9)),
    st.integers(0, 3),
    st.integers(0, 5),
)
def test_the_order_is_that_of_lists(split, tokens, sentences, seed, epoch):
    wanted = {"tokens": tokens, "sentences": sentences, "seed": seed, "epoch": epoch}
    plan = plan_epoch(split, **wanted)
    assert list(plan) == listed_plan(split, **wanted)
    assert plan[1:3] == list(plan)[1:3]
    assert all(type(row) is int for rows in plan for row in rows)


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


@settings(max_examples=30)
@given(splits, st.integers(1, 60))
def test_rows_in_order_are_all_there_within_the_budget(split, tokens):
    batches = list(in_order(split, tokens=tokens))
    check_rows(batches, split, tokens)
    sources = [len(split.source[i]) for rows in batches for i in rows]
    assert sources == sorted(sources)


@settings(max_examples=30)
@given(splits, st.integers(1, 60))
def test_even_batches_are_as_small_as_so_many_can_be(split, tokens):
    """Fails if a row is lost, a batch is too large, or a smaller size had been possible."""
    least, batches = list(in_order(split, tokens=tokens)), even_batches(split, tokens=tokens)
    check_rows(batches, split, tokens)
    if len(least) < 2:
        assert batches == least
        return
    most = len(least) + len(least) % 2
    assert len(batches) <= most
    sizes = [len(rows) * max(lengths(split, rows)) for rows in batches if len(rows) > 1]
    if largest := max(sizes, default=0):
        assert len(list(in_order(split, tokens=largest - 1))) > most


@settings(max_examples=30)
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


@settings(max_examples=10)
@given(splits, splits)
def test_splits_come_back_from_their_file(tmp_path_factory, train, test):
    path = tmp_path_factory.mktemp("splits") / "splits.safetensors"
    write_splits(path, {"train": train, "test": test})
    assert read_splits(path) == {"train": train, "test": test}
