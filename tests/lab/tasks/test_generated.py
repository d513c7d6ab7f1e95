"""Generated sequences: a decoder's inputs and targets.

These fail if anything except the answers is predicted, or if a prompt is in two splits.
"""

import pytest
import torch
from tiny_tasks import config_of
from torch.nn.functional import cross_entropy

from ropewalk.encodings import REGISTRY
from ropewalk.lab.data.generated_tasks import SEQUENCE_TASKS
from ropewalk.lab.models import build_model
from ropewalk.lab.running.run_folder import prepare
from ropewalk.lab.tasks import generated
from ropewalk.lab.tasks.language_task import LanguageBatch, pad_examples
from ropewalk.lab.tokens import EOS, PAD
from ropewalk.lab.training.trainer import Trainer


def test_a_length_that_the_task_has_not_is_refused_by_its_own_name(tmp_path):
    config = config_of("sort", seeds=1, train_length=200)
    with pytest.raises(ValueError, match="length must be at most 128 numbers for sort, got 200"):
        prepare(config, tmp_path)
    assert not list(tmp_path.iterdir())


def test_only_answers_are_predicted():
    batch = pad_examples([([1, 5, 6], [7, 8, EOS]), ([1, 9], [4, EOS])])
    assert batch.tokens.tolist() == [[1, 5, 6, 7, 8], [1, 9, 4, PAD, PAD]]
    assert batch.targets.tolist() == [[PAD, PAD, 7, 8, EOS], [PAD, 4, EOS, PAD, PAD]]
    assert batch.target_tokens == 5


def test_the_loss_is_the_cross_entropy_of_what_is_asked(tmp_path):
    task = prepare(config_of("addition"), tmp_path)
    model = build_model(task.config, "rotary", 1, task.vocabulary)
    batch = task.batch(task.plan(1, 0)[0], 0)
    wanted = cross_entropy(
        model.logits(model(batch.tokens)).flatten(0, 1), batch.targets.flatten(), ignore_index=PAD
    )
    assert task.loss(model, batch).item() == pytest.approx(wanted.item(), rel=1e-5)
    losses = [task.loss(model, b).detach() * b.target_tokens for b in task.validation_batches()]
    tokens = sum(b.target_tokens for b in task.validation_batches())
    assert task.validation_loss(model, "float32") == pytest.approx(float(sum(losses)) / tokens)


@pytest.mark.parametrize("name", SEQUENCE_TASKS)
def test_generated_splits_have_their_lengths_and_share_no_prompt(tmp_path, name):
    task = prepare(config_of(name), tmp_path)
    assert len(task.data["train"]) == 40
    assert {len(task.data[split]) for split in ("x1", "x3")} == {6}
    prompts = [{tuple(p) for p in split.source} for split in task.data.values()]
    assert not prompts[0] & (prompts[1] | prompts[2] | prompts[3])
    longest = [max(map(len, task.data[split].source)) for split in ("train", "x1", "x3")]
    assert longest[0] <= longest[1] < longest[2]
    rows = sorted(row for batch in task.plan(1, 0) for row in batch)
    assert rows == list(range(40))


@pytest.mark.slow
def test_every_encoding_of_the_registry_serves_a_decoder(tmp_path, monkeypatch):
    """Each encoding whose defaults allow a causal stack learns something in a few steps."""
    monkeypatch.setattr(generated, "HELD_OUT", 24)
    task = prepare(config_of("copy", epochs=2, learning_rate=0.02, validations=1), tmp_path)
    for encoding in REGISTRY:
        record = Trainer(task, encoding, 1, tmp_path / encoding).run()
        assert record.validation[-1]["loss"] < record.training[0]["loss"], encoding


def test_a_batch_goes_to_a_device_whole():
    batch = LanguageBatch(torch.tensor([[1]]), torch.tensor([[2]])).to(torch.device("meta"))
    assert batch.tokens.is_meta
    assert batch.targets.is_meta
