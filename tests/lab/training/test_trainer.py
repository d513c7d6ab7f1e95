"""Training: what is resumed is what was interrupted, and cells differ in the encoding alone.

These fail if a resumed run differs in one bit from an uninterrupted one, if an encoding shifts
another's parameters, batches or dropout, or if losses are not those that were recorded once.
"""

import math
import os

import pytest
import torch
from tiny_tasks import TINY_TRANSLATION, TRANSLATION_VOCABULARY, translation_splits

from ropewalk.lab.config_sources import make_config
from ropewalk.lab.tasks.translation import Translation
from ropewalk.lab.training.checkpoints import snapshots
from ropewalk.lab.training.trainer import Trainer, learning_rate

# Losses before other tasks were added: same splits, config and seed.
GOLDEN = {
    "rotary": (
        [
            *(3.6631, 3.6643, 3.7951, 3.5054, 3.1301, 3.4862, 3.1782),
            *(3.1037, 3.3462, 3.2743, 3.3599, 3.1913, 3.012, 3.1665),
        ],
        [3.43729, 3.26541, 3.22347],
    ),
    # Since its rows have the initial scale of the word embeddings.
    "learned": (
        [
            *(3.4283, 3.5998, 3.4893, 3.6137, 3.1534, 3.5641, 3.143),
            *(3.0562, 3.2961, 3.3953, 3.5457, 3.1784, 3.0861, 3.2931),
        ],
        [3.39548, 3.31183, 3.29026],
    ),
}


def trainer(folder, encoding="rotary", **fields):
    config = make_config(settings={**TINY_TRANSLATION, "encodings": encoding, **fields})
    task = Translation(config, folder)
    task.data, task.vocabulary = translation_splits(), TRANSLATION_VOCABULARY
    return Trainer(task, encoding, 1, folder)


@pytest.mark.parametrize("stop_at", [1, 7, 12])
def test_a_resumed_training_is_bit_for_bit_the_uninterrupted_one(tmp_path, stop_at):
    whole = trainer(tmp_path / "whole")
    record = whole.run()

    def stop(record, loss):
        if record.step == stop_at:
            os.kill(os.getpid(), 2)  # Ctrl-C

    first = trainer(tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        first.run(stop)
    torch.rand(17)  # whatever happens between sittings
    second = trainer(tmp_path / "parts")
    assert second.record.step == stop_at
    resumed = second.run()

    assert resumed.step == record.step == record.steps
    assert [p["loss"] for p in resumed.training] == [p["loss"] for p in record.training]
    assert [p["loss"] for p in resumed.validation] == [p["loss"] for p in record.validation]
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    names = [[p.name for p in snapshots(tmp_path / part)] for part in ("whole", "parts")]
    assert names[0] == names[1]


def test_losses_fall_and_what_is_recorded_is_true(tmp_path):
    run = trainer(tmp_path, epochs=12, learning_rate=0.01, dropout=0.0)
    record = run.run()
    losses = [p["loss"] for p in record.training]
    assert losses[-1] < losses[0] - 0.2
    assert len(losses) == record.steps
    per_epoch = sum(len(t) + 1 for t in run.task.data["train"].target)
    assert record.target_tokens == pytest.approx(12 * per_epoch, rel=0.1)
    assert record.validation[-1]["step"] == record.steps
    assert len(record.validation) == 3
    assert record.status == "finished"


def test_encodings_share_parameters_batches_and_dropout(tmp_path):
    """With a table of zeros, `learned` is `none`: all else being equal, so is every loss."""
    none = trainer(tmp_path / "a", "none")
    learned = trainer(tmp_path / "b", "learned(max_positions=32)")
    for encoding in (learned.model.encoder_encoding, learned.model.decoder_encoding):
        encoding.table.weight.data.zero_()
        encoding.table.weight.requires_grad_(False)
    ours, theirs = ([x.step(b).loss for b in batches(x)] for x in (none, learned))
    assert ours == theirs


def batches(run):
    return [[rows] for rows in run.task.plan(1, 0)][:4]


def test_accumulated_batches_give_the_gradient_of_one(tmp_path):
    fields = {"dropout": 0.0, "epochs": 1, "learning_rate": 0.01, "clip": 100.0}
    rows = list(range(12))
    one, parts = (trainer(tmp_path / n, **fields) for n in ("one", "parts"))
    losses = one.step([rows]), parts.step([rows[:3], rows[3:8], rows[8:]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    state = [run.optimizer.state_dict()["state"] for run in (one, parts)]
    for i in state[0]:
        torch.testing.assert_close(
            state[0][i]["exp_avg"], state[1][i]["exp_avg"], rtol=1e-3, atol=1e-7
        )


def test_a_diverged_training_stops_and_says_so(tmp_path):
    run = trainer(tmp_path)
    run.model.embedding.weight.data[5] = math.nan
    record = run.run()
    assert record.status == "diverged"
    assert record.step < record.steps


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"width": 32}, "width is 16 there and 32 here"), ({"dropout": 0.5}, "dropout is 0.1 there")],
)
def test_a_checkpoint_of_another_config_is_refused(tmp_path, fields, said):
    run = trainer(tmp_path)
    run.step(run.task.plan(1, 0)[:1])
    run._save()
    with pytest.raises(ValueError, match=said):
        trainer(tmp_path, **fields)


def test_learning_rate_warms_up_and_falls():
    linear = make_config(settings={"learning_rate": 1.0, "warmup": 0.1})
    rates = [learning_rate(linear, step, 100) for step in range(1, 101)]
    assert rates[:10] == pytest.approx([0.1 * i for i in range(1, 11)])
    assert rates[9] == max(rates)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.02
    noam = make_config(
        settings={"schedule": "noam", "learning_rate": 1.0, "warmup": 4000, "width": 512}
    )
    # Vaswani et al. 2017, eq. 3, at its peak.
    assert learning_rate(noam, 4000, 10**6) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert learning_rate(noam, 16000, 10**6) == pytest.approx(512**-0.5 * 16000**-0.5)


@pytest.mark.parametrize("encoding", GOLDEN)
def test_translation_gives_the_losses_that_it_gave(tmp_path, encoding):
    record = trainer(tmp_path, encoding).run()
    training, validation = GOLDEN[encoding]
    assert [p["loss"] for p in record.training] == pytest.approx(training, abs=2e-3)
    assert [p["loss"] for p in record.validation] == pytest.approx(validation, abs=2e-3)
