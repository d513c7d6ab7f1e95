"""One model trained by several processes: the losses of one process, and resumed with others.

These fail if a process trains on rows of another, if rows do not count by their target tokens, if
gradients of accumulated batches are lost or counted twice, if a resumed training differs from an
uninterrupted one, if a save that is killed loses the one before it, or if a process writes what
the first one writes.
"""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from in_processes import finish, free_port, run, start
from parallel_training import learn
from tiny_tasks import translation_config

from ropewalk.encodings import REGISTRY
from ropewalk.lab.data.batches import Batch
from ropewalk.lab.tensors import read_tensors
from ropewalk.lab.training.checkpoints import snapshots, training_fields
from ropewalk.lab.training.parallel_trainer import _part_of
from ropewalk.lab.training.process_group import Group, is_first_process, is_launched, join

LEARN = "parallel_training:learn"
FIELDS = {"encodings": "rotary", "accumulate": 2, "epochs": 2}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The folder and the losses of the same training in this process."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, learn(folder, FIELDS)


def weights(folder):
    return read_tensors(snapshots(Path(folder))[-1])[0]


def assert_same_weights(ours, theirs, **tolerance):
    ours, theirs = weights(ours), weights(theirs)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], **tolerance, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "parallel"), [(2, "ddp"), (4, "ddp"), (2, "fsdp"), (4, "fsdp")])
def test_losses_are_those_of_one_process(alone, tmp_path, world, parallel):
    """At the same global batch: 4 processes also share batches of fewer than 4 rows."""
    folder, one = alone
    many = run(world, LEARN, str(tmp_path), {**FIELDS, "parallel": parallel})
    for each in many:
        assert each["losses"] == pytest.approx(one["losses"], abs=1e-5)
        assert each["gradients"] == pytest.approx(one["gradients"], abs=2e-4)
        assert each["validation"] == pytest.approx(one["validation"], abs=2e-5)
        assert (each["tokens"], each["status"]) == (one["tokens"], "finished")
    assert_same_weights(folder, tmp_path, atol=1e-4, rtol=0)
    complete = sum(each["elements"] for each in many)
    assert complete == one["elements"] * (world if parallel == "ddp" else 1)


@pytest.mark.slow
def test_every_encoding_trains_in_copies_and_in_parts(tmp_path):
    """Losses and gradient norms of two steps, also of those with parameters that layers share."""
    own = {"xpos": "xpos(both_ways=rotary)", "cope": "cope(two_sided=True)"}
    texts = [own.get(name, name) for name in REGISTRY]
    texts += ["rotary(learned=head)", "fire(shared=True)", "tupe(reset=True)", "sinusoidal+t5"]
    cases = list(itertools.product(texts, ("ddp", "fsdp")))
    started = start(2, "parallel_training:differences", str(tmp_path), cases)
    found = finish(started, timeout=600)[0]
    far = {case: off for case, off in zip(cases, found, strict=True) if off > 1e-5}
    assert not far


@pytest.mark.slow
def test_rows_that_count_equally_are_noticed(alone, tmp_path):
    """The planted fault: rows do not count by their tokens."""
    one = alone[1]
    many = run(2, LEARN, str(tmp_path), FIELDS, None, None, "rows count equally")
    assert many[0]["losses"] != pytest.approx(one["losses"], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_killed_training_goes_on_with_another_number_of_processes(alone, tmp_path, parallel):
    folder, one = alone
    fields = {**FIELDS, "parallel": parallel}
    killed = start(2, LEARN, str(tmp_path), fields, None, 4)
    with pytest.raises(RuntimeError, match="status -9"):
        finish(killed)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-0000003"]

    def kill_while_saving(world):
        processes = start(world, LEARN, str(tmp_path), fields, None, 99, "killed while saving")
        processes[0].wait(60)
        for process in processes:
            process.kill()
            process.communicate()

    kill_while_saving(2)
    left = sorted(path.name for path in tmp_path.glob("checkpoint-*"))
    assert left == ["checkpoint-0000003", "checkpoint-0000004.unfinished"]
    stopped = run(4, LEARN, str(tmp_path), fields, 5)
    assert {each["began"] for each in stopped} == {3}
    assert {each["step"] for each in stopped} == {5}
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-0000005"]
    resumed = learn(tmp_path, fields)  # alone, without torchrun
    assert resumed["began"] == 5
    assert resumed["validation"] == pytest.approx(one["validation"], abs=2e-5)
    assert_same_weights(folder, tmp_path, atol=1e-4, rtol=0)
    assert not list(tmp_path.glob("checkpoint-*"))


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_the_same_processes_resume_bit_for_bit(tmp_path, parallel):
    """Also with dropout, whose masks depend on seed, step and process alone."""
    fields = {**FIELDS, "parallel": parallel, "dropout": 0.1}
    whole = run(2, LEARN, str(tmp_path / "whole"), fields)
    stopped = run(2, LEARN, str(tmp_path / "parts"), fields, 3)
    resumed = run(2, LEARN, str(tmp_path / "parts"), fields)
    assert (stopped[0]["step"], resumed[0]["began"]) == (3, 3)
    assert stopped[0]["losses"] + resumed[0]["losses"] == whole[0]["losses"]
    assert_same_weights(tmp_path / "whole", tmp_path / "parts", atol=0, rtol=0)


@pytest.mark.slow
def test_several_processes_go_on_where_one_stopped(alone, tmp_path):
    folder, one = alone
    learn(tmp_path, FIELDS, 3)
    assert (tmp_path / "last.safetensors").exists()
    resumed = run(2, LEARN, str(tmp_path), {**FIELDS, "parallel": "fsdp"})
    assert resumed[0]["began"] == 3
    assert resumed[0]["validation"] == pytest.approx(one["validation"], abs=2e-5)
    assert_same_weights(folder, tmp_path, atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_bfloat16_stays_near_and_resumes_bit_for_bit(alone, tmp_path, parallel):
    fields = {**FIELDS, "parallel": parallel, "precision": "bfloat16"}
    many = run(2, LEARN, str(tmp_path / "whole"), fields)
    one = learn(tmp_path / "one", fields)
    assert many[0]["losses"] == many[1]["losses"]
    assert many[0]["losses"] == pytest.approx(one["losses"], abs=0.02)
    assert many[0]["losses"] == pytest.approx(alone[1]["losses"], abs=0.05)
    assert many[0]["losses"] != pytest.approx(alone[1]["losses"], abs=1e-5)  # it is bfloat16
    assert weights(tmp_path / "whole")["embedding.weight"].dtype == torch.float32
    run(2, LEARN, str(tmp_path / "parts"), fields, 3)
    resumed = run(2, LEARN, str(tmp_path / "parts"), fields)
    assert resumed[0]["losses"] == many[0]["losses"][3:]
    assert_same_weights(tmp_path / "whole", tmp_path / "parts", atol=0, rtol=0)


@pytest.mark.slow
def test_single_numbers_are_trained_with_fsdp(tmp_path):
    """FIRE has parameters of one number, which cannot be divided."""
    fields = {**FIELDS, "encodings": "fire(length=4)", "epochs": 1, "learning_rate": 0.01}
    one = learn(tmp_path / "one", fields)
    fields["parallel"] = "fsdp"
    run(2, LEARN, str(tmp_path / "two"), fields, 3)
    resumed = run(4, LEARN, str(tmp_path / "two"), fields)
    assert resumed[0]["losses"] == pytest.approx(one["losses"][3:], abs=1e-5)
    assert_same_weights(tmp_path / "one", tmp_path / "two", atol=1e-4, rtol=0)
    number = weights(tmp_path / "one")["decoder_encoding.sites.0.c"]
    assert abs(float(number) - 0.1) > 0.01  # it has moved far more than the tolerance


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_compiled_model_has_the_same_losses(alone, tmp_path, parallel):
    fields = {**FIELDS, "epochs": 0.3, "parallel": parallel}
    many = run(2, LEARN, str(tmp_path), {**fields, "compile": True})
    plain = learn(tmp_path / "plain", fields)
    assert many[0]["losses"] == pytest.approx(plain["losses"], abs=1e-5)
    assert weights(tmp_path).keys() == weights(alone[0]).keys()


@pytest.mark.slow
def test_the_command_under_torchrun_gives_the_model_of_one_process(tmp_path):
    fields = "examples=120 train_length=4 length_multiples=1 test_examples=4 width=16 heads=2"
    fields += " layers=1 feed_forward=32 dropout=0 device=cpu precision=float32 epochs=1"
    words = ["-m", "ropewalk.cli", "train", "--task", "copy", *fields.split(), "--out"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    outputs = []
    for name, launcher in (
        ("one", [sys.executable]),
        ("two", [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]),
    ):
        if name == "two":
            launcher += ["--master-port", str(free_port())]
        done = subprocess.run(
            [*launcher, *words, tmp_path / name], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())
    # The first process alone prints; paths are those of the two models.
    assert outputs[1][-1] == outputs[0][-1].replace("one", "two")
    assert sum("finished" in line for line in outputs[1]) == 1
    ours, theirs = (read_tensors(Path(lines[-1]))[0] for lines in outputs)
    for name in ours:
        if not name.endswith("key_value.bias"):
            torch.testing.assert_close(ours[name], theirs[name], atol=1e-4, rtol=0)


def test_every_row_is_of_one_process():
    target = torch.tensor([[5, 6, 0], [7, 0, 0], [8, 9, 4]])  # 2, 1 and 3 tokens
    batch = Batch(target, target != 0, target, target)
    parts = [_part_of(batch, rank, 2) for rank in range(2)]
    assert [tokens for _, tokens in parts] == [5, 1]
    assert parts[0][0].target_out.tolist() == [[5, 6, 0], [8, 9, 4]]
    # More processes than rows: the fourth computes a row that counts nothing.
    assert [_part_of(batch, rank, 4)[1] for rank in range(4)] == [2, 1, 3, 0]


def test_without_torchrun_a_process_is_a_group_by_itself():
    assert not is_launched()
    assert is_first_process()
    group = join("cpu")
    assert group == Group(0, 1)
    assert (group.sum(1.5, 2), group.broadcast("x")) == ([1.5, 2], "x")


def test_how_a_model_is_divided_is_not_part_of_what_it_is_trained_on():
    """A run may go on with another `parallel` or `compile`."""
    ours = training_fields(translation_config(parallel="fsdp", compile=True))
    assert ours == training_fields(translation_config())
