"""Training: what is resumed is what was interrupted, and cells differ in the encoding alone.

These fail if a resumed run differs in one bit from an uninterrupted one, if an encoding shifts
another's parameters, batches or dropout, or if a file that was being written could be left half
there.
"""

import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from torch import nn

from ropewalk import files
from ropewalk.files import write_bytes, write_json
from ropewalk.lab import run
from ropewalk.lab.batches import EncodedSplit
from ropewalk.lab.checkpoint import load_weights, read_tensors, weights_of, write_tensors
from ropewalk.lab.config import make_config
from ropewalk.lab.tasks.translation import Translation
from ropewalk.lab.train import Trainer, interruptions, learning_rate, snapshots

TINY = {
    "epochs": 2,
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "dropout": 0.1,
    "batch_tokens": 64,
    "precision": "float32",
    "validations": 3,
    "keep": 2,
    "average": 2,
    "device": "cpu",
}
VOCABULARY = 20


@pytest.fixture
def splits():
    generator = torch.Generator().manual_seed(0)

    def rows(count):
        lengths = torch.randint(2, 9, (count,), generator=generator).tolist()
        return [torch.randint(4, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]

    return {
        "train": EncodedSplit(rows(60), rows(60)),
        "validation": EncodedSplit(rows(10), rows(10)),
    }


def trainer(splits, folder, encoding="rotary", **fields):
    config = make_config(settings={**TINY, "encodings": encoding, **fields})
    task = Translation(config, folder)
    task.data, task.vocabulary = splits, VOCABULARY
    return Trainer(task, encoding, 1, folder)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("stop_at", [1, 7, 12])
def test_a_resumed_training_is_bit_for_bit_the_uninterrupted_one(splits, tmp_path, stop_at):
    whole = trainer(splits, tmp_path / "whole")
    record = whole.run()

    def stop(record, loss):
        if record.step == stop_at:
            os.kill(os.getpid(), 2)  # Ctrl-C

    first = trainer(splits, tmp_path / "parts")
    with pytest.raises(KeyboardInterrupt):
        first.run(stop)
    torch.rand(17)  # whatever happens between sittings
    second = trainer(splits, tmp_path / "parts")
    assert second.record.step == stop_at
    resumed = second.run()

    assert resumed.step == record.step == record.steps
    assert [p["loss"] for p in resumed.training] == [p["loss"] for p in record.training]
    assert [p["loss"] for p in resumed.validation] == [p["loss"] for p in record.validation]
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
    names = [[p.name for p in snapshots(tmp_path / part)] for part in ("whole", "parts")]
    assert names[0] == names[1]


def test_a_killed_training_goes_on_from_its_last_checkpoint(splits, tmp_path):
    def die(record, loss):
        if record.step == 5:
            raise KilledError

    first = trainer(splits, tmp_path)
    with pytest.raises(KilledError):
        first.run(die)
    assert not (tmp_path / "last.safetensors").exists()  # no minute has passed: it starts anew
    assert trainer(splits, tmp_path).record.step == 0


def test_losses_fall_and_what_is_recorded_is_true(splits, tmp_path):
    run = trainer(splits, tmp_path, epochs=12, learning_rate=0.01, dropout=0.0)
    record = run.run()
    losses = [p["loss"] for p in record.training]
    assert losses[-1] < losses[0] - 0.2
    assert len(losses) == record.steps
    per_epoch = sum(len(t) + 1 for t in splits["train"].target)
    assert record.target_tokens == pytest.approx(12 * per_epoch, rel=0.1)
    assert record.validation[-1]["step"] == record.steps
    assert len(record.validation) == 3
    assert record.status == "finished"


def test_encodings_share_parameters_batches_and_dropout(splits, tmp_path):
    """With a table of zeros, `learned` is `none`: all else being equal, so is every loss."""
    none = trainer(splits, tmp_path / "a", "none")
    learned = trainer(splits, tmp_path / "b", "learned(max_positions=32)")
    for encoding in (learned.model.encoder_encoding, learned.model.decoder_encoding):
        encoding.table.weight.data.zero_()
        encoding.table.weight.requires_grad_(False)
    ours, theirs = ([x.step(b).loss for b in batches(x)] for x in (none, learned))
    assert ours == theirs


def batches(run):
    return [[rows] for rows in run.task.plan(1, 0)][:4]


def test_accumulated_batches_give_the_gradient_of_one(splits, tmp_path):
    fields = {"dropout": 0.0, "epochs": 1, "learning_rate": 0.01, "clip": 100.0}
    rows = list(range(12))
    one, parts = (trainer(splits, tmp_path / n, **fields) for n in ("one", "parts"))
    losses = one.step([rows]), parts.step([rows[:3], rows[3:8], rows[8:]])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    state = [run.optimizer.state_dict()["state"] for run in (one, parts)]
    for i in state[0]:
        torch.testing.assert_close(
            state[0][i]["exp_avg"], state[1][i]["exp_avg"], rtol=1e-3, atol=1e-7
        )


def test_a_diverged_training_stops_and_says_so(splits, tmp_path):
    run = trainer(splits, tmp_path)
    run.model.embedding.weight.data[5] = math.nan
    record = run.run()
    assert record.status == "diverged"
    assert record.step < record.steps


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"width": 32}, "width is 16 there and 32 here"), ({"dropout": 0.5}, "dropout is 0.1 there")],
)
def test_a_checkpoint_of_another_config_is_refused(splits, tmp_path, fields, said):
    run = trainer(splits, tmp_path)
    run.step(run.task.plan(1, 0)[:1])
    run._save()
    with pytest.raises(ValueError, match=said):
        trainer(splits, tmp_path, **fields)


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


def test_an_interruption_is_collected_and_the_handler_put_back():
    import signal

    before = signal.getsignal(signal.SIGINT)
    with interruptions() as received:
        os.kill(os.getpid(), signal.SIGINT)
        assert received == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.skipif(os.name == "nt", reason="there are no signals to send")
def test_an_interrupted_run_waits_until_its_cells_have_saved(tmp_path, monkeypatch):
    """Fails if the command has ended, and says that it can go on, while a cell is still saving."""
    slow = (
        "import pathlib, signal, sys, time\n"
        "told = []\n"
        "signal.signal(signal.SIGINT, lambda *_: told.append(True))\n"
        "pathlib.Path(sys.argv[1], 'begun').touch()\n"
        "while not told: time.sleep(0.01)\n"
        "time.sleep(1)\n"
        "pathlib.Path(sys.argv[1], 'saved').touch()\n"
        "sys.exit(130)\n"
    )
    monkeypatch.setattr(run, "_start", lambda *_: _process([sys.executable, "-c", slow, tmp_path]))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run.run_cells(make_config(settings={**TINY, "encodings": "none"}), tmp_path, jobs=1)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "saved").exists()


def _process(words):
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_full_disk_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "facts.json"
    write_json(path, {"old": 1})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(path, b"new")
    assert files.read_json(path) == {"old": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["facts.json"]


def test_tensors_and_facts_come_back(tmp_path):
    path = tmp_path / "deep" / "file.safetensors"
    write_tensors(path, {"a": torch.arange(6).view(2, 3).t()}, {"step": 3, "name": "ü"})
    tensors, facts = read_tensors(path)
    assert torch.equal(tensors["a"], torch.arange(6).view(2, 3).t())
    assert facts == {"step": 3, "name": "ü"}
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(ValueError, match="can be read"):
        read_tensors(path)


class TestWeights:
    """A table that all layers share is held once, and comes back in all of them."""

    def test_shared_tensors_come_once_and_are_shared_again(self, tmp_path):
        """Fails if safetensors refuses the shared table, or if a layer gets one of its own."""
        table = nn.Linear(3, 3)
        model = nn.Sequential(table, nn.Linear(3, 3), table)
        held = weights_of(model)
        assert list(held) == [name for name, _ in model.named_parameters()]
        write_tensors(tmp_path / "w.safetensors", held, {})
        other = nn.Linear(3, 3)
        again = nn.Sequential(other, nn.Linear(3, 3), other)
        load_weights(again, read_tensors(tmp_path / "w.safetensors")[0])
        x = torch.randn(4, 3)
        assert torch.equal(again(x), model(x))

    def test_other_tensors_are_refused(self):
        """Fails if a model is loaded in part, the rest as it was drawn."""
        model = nn.Linear(3, 2)
        with pytest.raises(ValueError, match="difference in 'bias'"):
            load_weights(model, {"weight": torch.zeros(2, 3)})
