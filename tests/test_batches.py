"""From text to batches: subword tokens, padding and an epoch's plan.

These fail when text does not come back from its tokens, when a row is lost, doubled or cut, when a
batch outgrows its budget, and when an epoch's order depends on more than seed and epoch.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk.lab.batches import (
    EncodedSplit,
    in_order,
    make_batch,
    pad,
    plan_epoch,
    read_splits,
    write_splits,
)
from ropewalk.lab.phrases import generate
from ropewalk.lab.tokens import BOS, EOS, PAD, SPECIAL, UNK, Tokens

ids = st.lists(st.integers(4, 99), max_size=12)
splits = st.lists(st.tuples(ids, ids), min_size=1, max_size=30).map(
    lambda pairs: EncodedSplit([s for s, _ in pairs], [t for _, t in pairs])
)


# Batches


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
            plans[seed, epoch] = str(plan)
            again = plan_epoch(split, tokens=100, sentences=sentences, seed=seed, epoch=epoch)
            assert again == plan
            assert sorted(plan) != plan
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
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            vars(batch).values(), vars(batch.to(torch.device("cpu"))).values(), strict=True
        )
    )


def test_padding_comes_last():
    assert pad([[5], [6, 7, 8], []]).tolist() == [[5, 0, 0], [6, 7, 8], [0, 0, 0]]


@given(splits, splits)
@settings(max_examples=20)
def test_splits_come_back_from_their_file(tmp_path_factory, train, test):
    path = tmp_path_factory.mktemp("splits") / "splits.safetensors"
    write_splits(path, {"train": train, "test": test})
    assert read_splits(path) == {"train": train, "test": test}


# Tokens


@pytest.fixture(scope="module")
def phrases() -> list[str]:
    return [side for pair in generate(0)["train"][:3000] for side in pair]


@pytest.fixture(scope="module", params=[False, True], ids=["cased", "lowercase"])
def tokens(request, phrases) -> Tokens:
    return Tokens.train(phrases, 600, lowercase=request.param)


def folded(tokens: Tokens, text: str) -> str:
    return text.lower() if tokens.decode(tokens.encode(["Ein"])[0]) == "ein" else text


def test_phrases_come_back_from_their_tokens(tokens, phrases):
    assert any(mark in text for text in phrases for mark in "äöüß")
    for text, encoded in zip(phrases, tokens.encode(phrases), strict=True):
        assert tokens.decode(encoded) == folded(tokens, text)
        assert not set(encoded) & {PAD, BOS, EOS, UNK}


@given(
    words=st.lists(st.text("aeinrsäöüßEINÄÖÜ", min_size=1, max_size=9), min_size=1),
    end=st.sampled_from(".,!?"),
)
def test_unseen_words_with_umlauts_and_punctuation_come_back(words, end):
    tokens = known_letters()
    text = ", ".join(words) + end
    assert tokens.decode(tokens.encode([text])[0]) == text


def known_letters(cache: list[Tokens] = []) -> Tokens:  # noqa: B006, trained once
    if not cache:
        cache.append(Tokens.train(["a e i n r s ä ö ü ß E I N Ä Ö Ü . , ! ?", "eine, rein."], 100))
    return cache[0]


def test_text_is_normalised_and_what_is_unknown_is_dropped():
    tokens = known_letters()
    composed, decomposed = tokens.encode(["ä", "a\u0308"])
    assert composed == decomposed
    assert UNK in tokens.encode(["a€a"])[0]
    assert tokens.decode(tokens.encode(["a €a"])[0]) == "a a"


def test_special_tokens_have_their_places_and_are_not_shown(tokens):
    assert tokens.pieces([PAD, BOS, EOS, UNK]) == SPECIAL
    encoded = tokens.encode(["ein"])[0]
    assert tokens.decode([BOS, *encoded, EOS, PAD]) == "ein"
    assert not {BOS, EOS} & set(encoded)


def test_a_vocabulary_is_no_larger_than_asked_and_is_kept_in_a_file(tokens, phrases, tmp_path):
    assert tokens.size == 600
    tokens.save(tmp_path / "tokenizer.json")
    loaded = Tokens.load(tmp_path / "tokenizer.json")
    assert loaded.encode(phrases[:100]) == tokens.encode(phrases[:100])
    assert len({i for row in tokens.encode(phrases) for i in row}) > 400
    assert max(i for row in tokens.encode(phrases) for i in row) < 600


def test_training_twice_gives_the_same_vocabulary(phrases):
    one, two = (Tokens.train(phrases, 300) for _ in range(2))
    assert one.pieces(range(one.size)) == two.pieces(range(two.size))
