"""The plan of an epoch: these fail when its order differs from that of the lists of earlier
versions, for a split in memory or in a store, or when a plan is not a sequence of lists.
"""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.lab.data import store
from ropewalk.lab.data.batches import EncodedSplit, gather_batches, make_batch, plan_epoch


def earlier_plan(split, *, tokens, sentences, seed, epoch):
    """The code of the version before plans were arrays."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(len(split), generator=generator).tolist()
    if sentences is not None:
        return [order[i : i + sentences] for i in range(0, len(order), sentences)]
    lengths = [max(len(s), len(t)) + 1 for s, t in zip(split.source, split.target, strict=True)]
    order.sort(key=lambda i: (lengths[i], len(split.target[i])))
    return earlier_batches(order, lengths, tokens, generator)


def earlier_batches(order, lengths, tokens, generator):
    batches = [[]]
    for i in order:
        if batches[-1] and (len(batches[-1]) + 1) * lengths[i] > tokens:
            batches.append([])
        batches[-1].append(i)
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


ids = st.lists(st.integers(4, 99), max_size=12)
splits = st.lists(st.tuples(ids, ids), min_size=1, max_size=60).map(
    lambda pairs: EncodedSplit([s for s, _ in pairs], [t for _, t in pairs])
)
sizes = st.one_of(st.none(), st.integers(1, 9))


@given(splits, st.integers(1, 90), sizes, st.integers(0, 3), st.integers(0, 5))
def test_the_order_is_that_of_earlier_versions(split, tokens, sentences, seed, epoch):
    wanted = {"tokens": tokens, "sentences": sentences, "seed": seed, "epoch": epoch}
    plan = plan_epoch(split, **wanted)
    assert list(plan) == earlier_plan(split, **wanted)
    assert plan[1:3] == list(plan)[1:3]
    assert all(type(row) is int for rows in plan for row in rows)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=80), st.integers(1, 400))
def test_gathered_batches_are_those_of_earlier_versions(lengths, tokens):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    found, wanted = (
        gather(order, lengths, tokens, torch.Generator().manual_seed(5))
        for gather in (gather_batches, earlier_batches)
    )
    assert list(found) == wanted


def test_a_store_has_the_same_plan_and_batches_as_a_split_in_memory(tmp_path):
    draw = np.random.default_rng(0)
    rows = [draw.integers(4, 99, size).tolist() for size in draw.integers(1, 20, 400)]
    split = EncodedSplit(rows[::2], rows[1::2])
    for number in range(4):
        some = rows[number * 100 : number * 100 + 100]
        lengths = np.array([len(row) for row in some], np.uint32).reshape(-1, 2)
        arrays = {"ids": np.array([i for row in some for i in row], np.uint16), "lengths": lengths}
        store.write_part(tmp_path, number, arrays, {})
    store.write_index(tmp_path, 4, {})
    mapped = store.MappedSplit(tmp_path)
    for epoch in range(3):
        wanted = {"tokens": 64, "sentences": None, "seed": 2, "epoch": epoch}
        plan = plan_epoch(mapped, **wanted)
        assert plan == plan_epoch(split, **wanted)
        for batch in plan:
            one, other = make_batch(mapped, batch), make_batch(split, batch)
            assert all(torch.equal(vars(one)[name], vars(other)[name]) for name in vars(one))
