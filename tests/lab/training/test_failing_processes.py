"""What several processes say and leave behind when something fails.

These fail if the other processes of a killed one print a traceback, if processes that never meet
wait for days, if a checkpoint that could not be written replaces the one before it, if a damaged
one is resumed from, if one runs code or reads other files, if an option is ignored under torchrun,
or if a model is refused that fits when it is divided.
"""

import os
import pickle
from dataclasses import asdict
from datetime import timedelta

import pytest
import torch
from in_processes import ends, free_port, run
from parallel_training import learn, new_trainer
from tiny_tasks import config_of, translation_config
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, MetadataIndex

from ropewalk import machine
from ropewalk.files import read_checked_json, write_checked_json
from ropewalk.lab.running import run_folder
from ropewalk.lab.running.compare import compare
from ropewalk.lab.running.run_folder import check_memory, fewest_parameters
from ropewalk.lab.training import checkpoints, process_group
from ropewalk.lab.training.checkpoints import training_tensors

LEARN = "parallel_training:learn"
FIELDS = {"encodings": "rotary", "epochs": 1}


@pytest.fixture
def torchrun(monkeypatch):
    """Set what torchrun sets in the first of four processes, two on each machine."""
    held = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2}
    held |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    for name, value in held.items():
        monkeypatch.setenv(name, str(value))
    return monkeypatch


@pytest.mark.slow
@pytest.mark.parametrize(("world", "parallel"), [(3, "ddp"), (2, "fsdp")])
def test_the_others_of_a_killed_process_say_so_in_one_line(tmp_path, world, parallel):
    fields = {**FIELDS, "parallel": parallel}
    ended = ends(world, LEARN, str(tmp_path), fields, None, "one process dies")
    assert [process.status for process in ended] == [1, -9, 1][:world]
    for process in ended[:1] + ended[2:]:
        assert "ConnectionError: another process of this training has ended, or no" in process.error
        assert "GLHF" not in process.error  # torch's own words


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(tmp_path, parallel):
    fields = {**FIELDS, "parallel": parallel}
    with pytest.raises(RuntimeError, match="checkpoint-0000003 was not written: File too large"):
        run(2, LEARN, str(tmp_path), fields, None, "no room for one part")
    assert (tmp_path / "checkpoint-0000002").exists()
    assert learn(tmp_path, FIELDS)["began"] == 2


def flip_a_bit_of_a_weight(path, model):
    part = path / "__0_0.distcp"
    content = bytearray(part.read_bytes())
    content[content.find(model.embedding.weight.detach().numpy().tobytes())] ^= 1
    part.write_bytes(content)


def cut(name):
    return lambda path, _: (path / name).write_bytes((path / name).read_bytes()[:1000])


class Harm(str):
    """Makes a folder of this name when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (str(self),)


def prepared(change):
    """Change the metadata and the names of the parts, and give everything the right digest."""

    def prepare(path, _):
        metadata, facts = (path / ".metadata").read_bytes(), read_checked_json(path / "facts.json")
        change(path, metadata := pickle.loads(metadata), facts["parts"])
        (path / ".metadata").write_bytes(pickle.dumps(metadata, protocol=4))
        facts["parts"][".metadata"] = checkpoints._digest(path / ".metadata")
        write_checked_json(path / "facts.json", facts)

    return prepare


def away(path, _):
    """Leave a part on a disk that is away."""
    (path / "__0_0.distcp").unlink()
    (path / "__0_0.distcp").symlink_to("/disk/part")


def in_bytes(path, metadata, parts):
    """Name bytes, which torch's planner unpickles."""
    name, part = "model.embedding.weight", path / "__0_0.distcp"
    with part.open("ab") as file:
        offset = file.tell()
        torch.save(Harm(path / "harm"), file)
        info = _StorageInfo(part.name, offset, file.tell() - offset)
    metadata.state_dict_metadata[name] = BytesStorageMetadata()
    metadata.storage_data[MetadataIndex(name)] = info
    parts[part.name] = checkpoints._digest(part)


def stored(**how):
    return prepared(lambda _, it, __: vars(next(iter(it.storage_data.values()))).update(how))


ELSEWHERE = prepared(lambda _, __, parts: parts.update({"/dev/zero": ""}))
REDUCE = prepared(lambda path, it, _: setattr(it, "storage_meta", Harm(path / "harm")))
DAMAGES = {
    "a bit": (flip_a_bit_of_a_weight, "'__0_0.distcp' does not match its checksum"),
    "a part cut": (cut("__0_0.distcp"), "'__0_0.distcp' does not match its checksum"),
    "a part gone": (lambda path, _: (path / "__0_0.distcp").unlink(), "no such file; delete it"),
    "a part away": (away, "a symlink to a file that is missing; do not delete it"),
    "a part elsewhere": (ELSEWHERE, "'/dev/zero' must be in its folder"),
    "metadata cut": (cut(".metadata"), "'.metadata' does not match its checksum"),
    "metadata gone": (lambda path, _: (path / ".metadata").unlink(), "no such file"),
    "metadata that runs code": (REDUCE, "its metadata names 'posix.mkdir'"),
    "metadata of bytes": (prepared(in_bytes), "its metadata names .*BytesStorageMetadata"),
    "metadata of another file": (stored(relative_path="../other"), "its metadata names '../other'"),
    "metadata of packed parts": (stored(transform_descriptors=["zstd"]), "names '__0_0.distcp'"),
    "no facts": (lambda path, _: (path / "facts.json").unlink(), "it has no facts.json"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_never_resumed(tmp_path, damage, said):
    trainer = new_trainer(tmp_path, FIELDS)
    trainer.step(trainer.task.plan(1, 0)[:1])
    tensors = training_tensors(trainer.model, trainer.optimizer)
    facts = {**trainer.facts, "record": asdict(trainer.record)}
    checkpoints.save_together(process_group.Group(), tmp_path, 1, tensors, facts)
    assert new_trainer(tmp_path, FIELDS).record.step == 1
    damage(tmp_path / "checkpoint-0000001", trainer.model)
    with pytest.raises(ValueError, match=f"^.*checkpoint-0000001 is not a readable .*{said}.*$"):
        new_trainer(tmp_path, FIELDS)
    assert not list(tmp_path.rglob("harm"))


def test_only_failures_of_communication_are_put_in_words():
    with pytest.raises(ConnectionError, match="another process"), process_group.failures_in_words():
        raise RuntimeError("[/gloo/transport/tcp/pair.cc:537] Connection closed by peer")
    with pytest.raises(RuntimeError, match="a fault of ours"), process_group.failures_in_words():
        raise RuntimeError("a fault of ours")


def test_variables_that_no_torchrun_sets_are_named(torchrun):
    torchrun.setenv("MASTER_PORT", "x")
    with pytest.raises(ValueError, match=r"must meet, got RANK=0, WORLD_SIZE=4, .*MASTER_PORT=x"):
        process_group.join("cpu")


@pytest.mark.slow
def test_processes_that_never_meet_give_up(torchrun):
    torchrun.setattr(process_group, "JOINS_WITHIN", timedelta(seconds=1))
    with pytest.raises(ValueError, match=r"must meet, .*1/4 clients joined"):
        process_group.join("cpu")


def test_a_process_notices_that_torchrun_has_ended(monkeypatch):
    assert not process_group.is_orphan()
    monkeypatch.setattr(os, "getppid", lambda: 1 - process_group._PARENT)
    assert process_group.is_orphan()


def test_what_one_training_cannot_have_is_refused_under_torchrun(torchrun, tmp_path):
    config, folder = config_of("copy"), tmp_path / "run"
    with pytest.raises(ValueError, match=r"--jobs must be 1 under torchrun, .*got 2"):
        compare(config, folder, jobs=2)
    with pytest.raises(ValueError, match="--launcher must be local under torchrun"):
        run_folder.prepare(config, folder, elsewhere=True)
    with pytest.raises(ValueError, match="device must be auto, cpu or cuda under torchrun"):
        process_group.join("cuda:1")
    assert not folder.exists()
    torchrun.setenv("RANK", "1")
    assert not process_group.is_first_process()


def test_memory_is_that_of_all_processes_of_a_device(torchrun):
    """Two processes share this machine's memory, and FSDP divides the model by four."""
    assert process_group.share_on_device("ddp", on_gpu=False) == 2
    assert process_group.share_on_device("fsdp", on_gpu=False) == 0.5
    assert process_group.share_on_device("ddp", on_gpu=True) == 1
    assert process_group.share_on_device("fsdp", on_gpu=True) == 0.25
    needs = fewest_parameters(translation_config(), 100) * run_folder.BYTES_OF_TRAINING
    torchrun.setattr(machine, "memory", lambda device: needs)
    check_memory(translation_config(parallel="fsdp"), 100)
    with pytest.raises(ValueError, match="the model must fit into memory"):
        check_memory(translation_config(parallel="ddp"), 100)
    torchrun.delenv("RANK")
    check_memory(translation_config(parallel="ddp"), 100)
