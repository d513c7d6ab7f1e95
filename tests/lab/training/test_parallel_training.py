"""One model trained by several processes: the losses of one process, and resumed with others.

These fail if a process trains on rows of another, if rows do not count by their target tokens, if
gradients of accumulated batches are lost or counted twice, if a resumed training differs from an
uninterrupted one, if a save that is killed loses the one before it, or if a process writes what
the first one writes.
"""

import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cells_here import run_cells_here
from in_processes import ends, free_port, run_each
from parallel_training import learn
from tiny_tasks import translation_config

from ropewalk.encodings import REGISTRY
from ropewalk.lab.data.batches import Batch
from ropewalk.lab.running import scheduler
from ropewalk.lab.tensors import read_tensors
from ropewalk.lab.training.checkpoints import snapshots, training_fields
from ropewalk.lab.training.parallel_trainer import _part_of
from ropewalk.lab.training.process_group import Group, is_first_process, is_launched, join

LEARN = "parallel_training:learn"
FIELDS = {"encodings": "rotary", "accumulate": 2, "epochs": 1.4}
WAYS = {parallel: {**FIELDS, "parallel": parallel} for parallel in ("ddp", "fsdp")}
RESUMED = {"dropout": 0.1, "precision": "bfloat16"}
#: One batch for each epoch, so that graphs are compiled for one shape; validated at the end.
ONE_SHAPE = {"batch_tokens": 4096, "accumulate": 1, "epochs": 3, "validations": 1}
#: FIRE has parameters of one number, which cannot be divided.
FIRE = {**FIELDS, "encodings": "fire(length=4)", "epochs": 1, "learning_rate": 0.01}
#: Without parameters, so that their models are divided as that of "rotary".
WITHOUT = {"none", "integer", "binary", "sinusoidal", "alibi", "xpos"}
#: Also encodings with parameters that layers share.
EVERY = [
    *(
        "cope(two_sided=True)" if name == "cope" else name
        for name in REGISTRY
        if name not in WITHOUT
    ),
    *("rotary(learned=head)", "fire(shared=True)", "tupe(reset=True)", "sinusoidal+t5"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of all trainings."""
    return tmp_path_factory.mktemp("trainings")


@pytest.fixture(scope="module")
def alone(folder):
    """The losses of the same training in this process."""
    return learn(folder / "alone", FIELDS)


@pytest.fixture(scope="module")
def of_two(folder):
    """What trainings in two processes returned, one after another."""
    learn(folder / "begun-alone", FIELDS, 3)
    assert (folder / "begun-alone" / "last.safetensors").exists()

    def training(name, *how):
        return (LEARN, str(folder / name), *how)

    calls = {
        "every encoding": ("parallel_training:differences", str(folder), EVERY, list(WAYS)),
        "rows count equally": training("equally", FIELDS, None, "rows count equally"),
        "begun alone": training("begun-alone", WAYS["fsdp"]),
        "fire": training("fire", {**FIRE, "parallel": "fsdp"}, 3),
    }
    for way, fields in WAYS.items():
        calls[way, "whole"] = training(f"two-{way}", fields)
        compiled = {**fields, **ONE_SHAPE, "compile": True}
        calls[way, "compiled"] = training(f"compiled-{way}", compiled, 2)
        calls[way, "bfloat16"] = training(f"bfloat16-{way}", {**fields, "precision": "bfloat16"})
        resumed = {**fields, **RESUMED}
        calls[way, "uninterrupted"] = training(f"uninterrupted-{way}", resumed)
        calls[way, "stopped"] = training(f"parts-{way}", resumed, 3)
        calls[way, "resumed"] = training(f"parts-{way}", resumed)
    return run_each(2, calls)


@pytest.fixture(scope="module")
def of_four(folder, of_two):
    """What trainings in four processes returned; some go on where two were killed or stopped."""
    calls = {"fire": (LEARN, str(folder / "fire"), {**FIRE, "parallel": "fsdp"})}
    for way, fields in WAYS.items():
        calls[way, "whole"] = (LEARN, str(folder / f"four-{way}"), fields)
        killed = folder / f"killed-{way}"
        first, _ = ends(2, LEARN, str(killed), fields, None, "killed while saving")
        assert first.status == -signal.SIGKILL
        left = sorted(path.name for path in killed.glob("checkpoint-*"))
        assert left == ["checkpoint-0000003", "checkpoint-0000004.unfinished"]
        calls[way, "killed"] = (LEARN, str(killed), fields, 5)
    return run_each(4, calls)


def weights(folder):
    return read_tensors(snapshots(Path(folder))[-1])[0]


def assert_same_weights(ours, theirs, **tolerance):
    ours, theirs = weights(ours), weights(theirs)
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(tensor, theirs[name], **tolerance, msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("world", ["two", pytest.param("four", marks=pytest.mark.longer)])
def test_losses_are_those_of_one_process(alone, folder, world, way, request):
    """At the same global batch: 4 processes also share batches of fewer than 4 rows."""
    many = request.getfixturevalue(f"of_{world}")[way, "whole"]
    for process in many:
        assert process["losses"] == pytest.approx(alone["losses"], abs=1e-5)
        assert process["gradients"] == pytest.approx(alone["gradients"], abs=2e-4)
        assert process["validation"] == pytest.approx(alone["validation"], abs=2e-5)
        assert (process["tokens"], process["status"]) == (alone["tokens"], "finished")
    assert_same_weights(folder / "alone", folder / f"{world}-{way}", atol=1e-4, rtol=0)
    complete = sum(process["elements"] for process in many)
    assert complete == alone["elements"] * (len(many) if way == "ddp" else 1)


@pytest.mark.slow
def test_every_encoding_trains_in_copies_and_in_parts(of_two):
    """Losses and gradient norms of two steps."""
    cases = itertools.product(EVERY, WAYS)
    differences = dict(zip(cases, of_two["every encoding"][0], strict=True))
    assert not {case: off for case, off in differences.items() if off > 1e-5}


@pytest.mark.slow
def test_rows_that_count_equally_are_noticed(alone, of_two):
    """The planted fault: rows do not count by their tokens."""
    losses = of_two["rows count equally"][0]["losses"]
    assert losses != pytest.approx(alone["losses"], abs=1e-5)


@pytest.mark.longer
@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_killed_training_goes_on_with_another_number_of_processes(alone, folder, of_four, way):
    killed, stopped = folder / f"killed-{way}", of_four[way, "killed"]
    assert {(process["began"], process["step"]) for process in stopped} == {(3, 5)}
    assert [path.name for path in killed.glob("checkpoint-*")] == ["checkpoint-0000005"]
    resumed = learn(killed, WAYS[way])  # alone, without torchrun
    assert resumed["began"] == 5
    assert resumed["validation"] == pytest.approx(alone["validation"], abs=2e-5)
    assert_same_weights(folder / "alone", killed, atol=1e-4, rtol=0)
    assert not list(killed.glob("checkpoint-*"))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_the_same_processes_resume_bit_for_bit(folder, of_two, way):
    """In bfloat16, and with dropout, whose masks depend on seed, step and process alone."""
    whole, stopped, resumed = (
        of_two[way, part][0] for part in ("uninterrupted", "stopped", "resumed")
    )
    assert (stopped["step"], resumed["began"]) == (3, 3)
    assert stopped["losses"] + resumed["losses"] == whole["losses"]
    assert_same_weights(folder / f"uninterrupted-{way}", folder / f"parts-{way}", atol=0, rtol=0)


@pytest.mark.slow
def test_several_processes_go_on_where_one_stopped(alone, folder, of_two):
    resumed = of_two["begun alone"][0]
    assert resumed["began"] == 3
    assert resumed["validation"] == pytest.approx(alone["validation"], abs=2e-5)
    assert_same_weights(folder / "alone", folder / "begun-alone", atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_bfloat16_stays_near(alone, folder, of_two, way, tmp_path):
    many = of_two[way, "bfloat16"]
    one = learn(tmp_path, {**WAYS[way], "precision": "bfloat16"})
    assert many[0]["losses"] == many[1]["losses"]
    assert many[0]["losses"] == pytest.approx(one["losses"], abs=0.02)
    assert many[0]["losses"] == pytest.approx(alone["losses"], abs=0.05)
    assert many[0]["losses"] != pytest.approx(alone["losses"], abs=1e-5)  # it is bfloat16
    assert weights(folder / f"bfloat16-{way}")["embedding.weight"].dtype == torch.float32


@pytest.mark.longer
@pytest.mark.slow
def test_single_numbers_are_trained_with_fsdp(folder, of_four, tmp_path):
    """Begun by two processes, ended by four."""
    one = learn(tmp_path, FIRE)
    assert of_four["fire"][0]["losses"] == pytest.approx(one["losses"][3:], abs=1e-5)
    assert_same_weights(tmp_path, folder / "fire", atol=1e-4, rtol=0)
    number = weights(tmp_path)["decoder_encoding.sites.0.c"]
    assert abs(float(number) - 0.1) > 0.01  # it has moved far more than the tolerance


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_compiled_model_has_the_same_losses_and_goes_on_uncompiled(folder, of_two, way, tmp_path):
    plain = learn(tmp_path, {**WAYS[way], **ONE_SHAPE})
    resumed = learn(folder / f"compiled-{way}", {**WAYS[way], **ONE_SHAPE})
    assert resumed["began"] == 2
    losses = of_two[way, "compiled"][0]["losses"] + resumed["losses"]
    assert losses == pytest.approx(plain["losses"], abs=1e-5)
    assert_same_weights(folder / f"compiled-{way}", tmp_path, atol=1e-4, rtol=0)


@pytest.mark.longer
@pytest.mark.slow
def test_the_command_under_torchrun_gives_the_model_of_one_process(
    tmp_path, command, monkeypatch, traps
):
    fields = "examples=120 train_length=4 length_multiples=1 test_examples=4 width=16 heads=2"
    fields += " layers=1 feed_forward=32 dropout=0 device=cpu precision=float32 epochs=1"
    words = ["train", "--task", "copy", *fields.split(), "--out"]
    monkeypatch.setattr(scheduler, "run_cells", run_cells_here)
    status, out, err = command(*words, tmp_path / "one")
    assert status == 0, err
    python = [sys.executable, "-P", "-m"]
    torchrun = [*python, "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]
    torchrun += [str(free_port()), "--no-python", *python, "ropewalk.cli"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*torchrun, *words, tmp_path / "two"], env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    one, two = out.splitlines(), done.stdout.splitlines()
    # The first process alone prints; paths are those of the two models.
    assert two[-1] == one[-1].replace("one", "two")
    assert sum("finished" in line for line in two) == 1
    ours, theirs = (read_tensors(Path(lines[-1]))[0] for lines in (one, two))
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
