"""Running text: a model's inputs and targets in masked and causal language modeling.

These fail if masks hide or ask for the wrong tokens, if encodings or sessions get different
windows, if test windows overlap or leave out the end of a corpus, or if a report's passage begins
or ends within a word.
"""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_tasks import config_of

from ropewalk.lab.models import build_model
from ropewalk.lab.running.run_folder import prepare
from ropewalk.lab.tasks.text import WORD, TextTask
from ropewalk.lab.tokens import PAD


def test_a_test_text_shorter_than_a_window_is_refused_at_once(tmp_path):
    for name, words in (("train", 300), ("validation", 60), ("test", 3)):
        (tmp_path / f"{name}.txt").write_text("ein Wort " * words + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="windows in the test text, got 32: it has"):
        prepare(config_of("causal-lm", data=str(tmp_path), train_length=32), tmp_path / "run")


@pytest.fixture
def masked(tmp_path):
    task = prepare(config_of("masked-lm", train_length=40, examples=6), tmp_path)
    return task, task.batch(task.plan(1, 0)[0], 7), task.data["train"]


def test_masking_hides_a_share_and_asks_for_nothing_else(masked):
    task, _, stream = masked
    rows = torch.arange(20) * 40
    batch = task.windows("train", rows, 40, 3)
    truth = stream[rows[:, None] + torch.arange(40)]
    asked = batch.targets != PAD
    assert torch.equal(batch.targets[asked], truth[asked])
    assert torch.equal(batch.tokens[~asked], truth[~asked])
    assert asked.any(1).all()
    assert 0.10 < asked.double().mean() < 0.22
    hidden = batch.tokens[asked] == task.mask
    assert 0.65 < hidden.double().mean() < 0.95
    assert (batch.tokens[asked] == truth[asked]).any()  # some are unchanged, and are predicted too
    assert batch.tokens.max() <= task.mask < task.vocabulary


def test_masks_are_drawn_anew_for_each_step_and_alike_for_each_encoding(masked):
    task, batch, _ = masked
    rows = task.plan(1, 0)[0]
    again, other = task.batch(rows, 7), task.batch(rows, 8)
    assert torch.equal(batch.tokens, again.tokens)
    assert not torch.equal(batch.targets, other.targets)
    first, second = (next(iter(task.validation_batches())) for _ in range(2))
    assert torch.equal(first.tokens, second.tokens)


def test_text_is_read_whole_and_in_order(tmp_path):
    task = prepare(config_of("causal-lm"), tmp_path)
    stream = task.data["train"]
    seen = torch.cat([task.batch(rows, 0).targets.flatten() for rows in task.plan(1, 0)])
    assert len(stream) - 3 * 8 <= len(seen) <= len(stream)
    batch = task.batch([5, 30], 0)
    assert torch.equal(batch.tokens, torch.stack([stream[5:13], stream[30:38]]))
    assert torch.equal(batch.targets, torch.stack([stream[6:14], stream[31:39]]))
    starts = [sorted(row for rows in task.plan(1, epoch) for row in rows) for epoch in range(4)]
    assert len({len(s) for s in starts}) == 1
    assert len({s[0] for s in starts}) > 1  # windows begin elsewhere in each epoch
    assert task.plan(1, 0) == task.plan(1, 0) != task.plan(2, 0)


@pytest.mark.parametrize("name", ["causal-lm", "masked-lm"])
def test_passages_are_cut_at_words(name, tmp_path, monkeypatch):
    # With a small vocabulary a word is several tokens, so most cuts are within a word.
    task = prepare(config_of(name, train_length=40, examples=6, encodings=("none",)), tmp_path)
    model = build_model(task.config, "none", 1, task.vocabulary).eval()
    monkeypatch.setattr(task, "first_models", lambda results: [("none", model)])
    words = set(task.tokens.decode(task.data["test"].tolist()).split())
    found = task.examples({}).sentences
    assert len(found) == 5
    for each in found:
        shown = each.source.split() if name == "causal-lm" else []
        shown += each.reference.split()
        assert shown
        assert set(shown) <= words
        assert "none" in each.hypotheses


@given(st.integers(1, 400), st.integers(1, 30), st.integers(1, 12), st.booleans())
def test_windows_are_spread_over_a_corpus_without_overlap(tokens, length, most, generated):
    task = SimpleNamespace(data={"test": torch.zeros(tokens)}, generated=generated)
    starts = TextTask.block_starts(task, "test", length, most)
    assert len(starts) == min(most, (tokens - 1) // length)
    if len(starts):
        gap = length if generated else (tokens - 1) // len(starts)
        assert torch.equal(starts, torch.arange(len(starts)) * gap)
        assert gap >= length
        assert int(starts[-1]) + length < tokens  # the last token is only predicted
    if len(starts) and not generated:
        assert tokens - 1 - int(starts[-1]) < 2 * gap  # no rest as long as a gap is left out


@pytest.mark.parametrize("data", ["corpus", "tales"])
def test_test_windows_of_every_length_cover_the_same_tokens(data, tmp_path):
    if data == "corpus":
        for name, words in (("train", 300), ("validation", 60), ("test", 400)):
            (tmp_path / f"{name}.txt").write_text("ein Wort " * words + "\n", encoding="utf-8")
    text = str(tmp_path) if data == "corpus" else data
    config = config_of("causal-lm", data=text, length_multiples=(1, 2, 4), test_examples=3)
    task = prepare(config, tmp_path / "run")
    covered = [
        (task.test_starts(8 * n)[:, None] + torch.arange(8 * n)).flatten() for n in (1, 2, 4)
    ]
    assert len(covered[0]) == 3 * 4 * 8
    assert all(torch.equal(covered[0], each) for each in covered)


@given(st.lists(st.sampled_from(["▁a", "b", "▁", "."]), max_size=8))
def test_only_the_last_word_is_left_out(pieces):
    task = SimpleNamespace(tokens=SimpleNamespace(pieces=lambda ids: [pieces[i] for i in ids]))
    kept = TextTask.whole_words(task, list(range(len(pieces))))
    assert kept == list(range(len(kept)))
    left = pieces[len(kept) :]
    assert [piece.startswith(WORD) for piece in left] == [True] + [False] * (
        len(left) - 1
    ) or not left
    assert kept or not pieces
