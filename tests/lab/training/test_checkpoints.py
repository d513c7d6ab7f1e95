"""Checkpoints: these fail if a file that was being written could be left half there, or if a tensor
or a fact does not come back.
"""

import os
import subprocess
import sys
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from ropewalk import files
from ropewalk.files import (
    NotReadError,
    read_checked_json,
    remove_parts,
    write_bytes,
    write_checked_json,
    write_json,
)
from ropewalk.lab import tensors as module
from ropewalk.lab.tensors import DamagedFile, load_weights, read_tensors, weights_of, write_tensors

UNREAD = {
    "a pipe": os.mkfifo if hasattr(os, "mkfifo") else None,
    "a folder": os.mkdir,
    "a symlink to a file that is missing": lambda path: path.symlink_to("nowhere"),
    "no permission to read it": lambda path: path.touch(),
    "no such file": lambda path: None,
}


def test_a_full_disk_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "facts.json"
    write_json(path, {"old": 1})

    full = OSError(28, "No space left on device")
    monkeypatch.setattr(files.os, "fsync", Mock(side_effect=full))
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
    with pytest.raises(
        ValueError, match=r"is not a readable safetensors file: .*; delete it, and the same"
    ):
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


class TestChecksums:
    """Files say when they are not what was written."""

    def test_no_changed_byte_is_taken_for_what_was_written(self, tmp_path):
        """Fails if a flipped bit anywhere gives other tensors or facts without an error."""
        path, wanted = tmp_path / "w.safetensors", torch.arange(6.0)
        write_tensors(path, {"weight": wanted}, {"step": 3})
        whole, refused = path.read_bytes(), []
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 16]) + whole[place + 1 :])
            try:
                tensors, facts = read_tensors(path)
            except ValueError as error:
                refused.append(str(error))
                continue
            assert torch.equal(tensors["weight"], wanted), place
            assert facts == {"step": 3}, place
        assert all(str(path) in text for text in refused)
        assert len(refused) > len(whole) * 0.8

    def test_a_file_without_a_checksum_is_refused(self, tmp_path):
        path = tmp_path / "w.safetensors"
        save_file({"a": torch.ones(2)}, path, {"facts": '{"step": 3}'})
        with pytest.raises(DamagedFile, match="does not match its checksum"):
            read_tensors(path)

    @pytest.mark.skipif(sys.platform == "win32", reason="needs pipes and symlinks")
    @pytest.mark.parametrize("reader", [read_checked_json, read_tensors])
    @pytest.mark.parametrize("what", UNREAD)
    def test_only_a_damaged_file_may_be_deleted(self, tmp_path, monkeypatch, reader, what):
        """Fails if a training is begun anew for a file that may be whole, or by the advice."""
        path = tmp_path / "training"
        UNREAD[what](path)
        if "permission" in what:
            monkeypatch.setattr(os, "open", Mock(side_effect=PermissionError))
        with pytest.raises(NotReadError, match=f"training: {what}") as caught:
            reader(path)
        assert "; delete it" not in str(caught.value)

    @pytest.mark.skipif(sys.platform != "linux", reason="has other names")
    def test_what_safetensors_cannot_open_is_not_called_damaged(self, tmp_path, monkeypatch):
        """Fails if a training begins anew for the name of its folder, or for a busy process."""

        def refuse(*_, **how):
            monkeypatch.setattr(os, "open", Mock(side_effect=OSError(24, "Too many open files")))
            raise FileNotFoundError("No such file or directory")

        path = tmp_path / "\udcff" / "w.safetensors"
        write_tensors(path, {"a": torch.ones(2)}, {})
        with pytest.raises(NotReadError, match="the path must be UTF-8"):
            read_tensors(path)
        monkeypatch.setattr(module, "safe_open", refuse)
        with pytest.raises(NotReadError, match="Too many open files"):
            read_tensors(path.rename(tmp_path / path.name))

    @pytest.mark.parametrize("header", [2**63, 10**9, 5_000])
    def test_a_header_larger_than_its_file_is_refused_unread(self, tmp_path, header):
        path = tmp_path / "w.safetensors"
        path.write_bytes(header.to_bytes(8, "little") + b"{}")
        with pytest.raises(ValueError, match="its header claims"):
            read_tensors(path)

    def test_json_that_was_changed_is_refused(self, tmp_path):
        path = tmp_path / "facts.json"
        write_checked_json(path, {"steps": (1, 2), "name": "ü"})
        assert read_checked_json(path, "steps") == {"steps": [1, 2], "name": "ü"}
        path.write_text(path.read_text(encoding="utf-8").replace("2", "3", 1), encoding="utf-8")
        with pytest.raises(ValueError, match=r"facts\.json is damaged.*delete it"):
            read_checked_json(path)

    @pytest.mark.parametrize("content", ["[]", "3", "{", "{}", "[" * 10_000])
    def test_json_of_another_kind_is_an_error_that_names_it(self, tmp_path, content):
        path = tmp_path / "facts.json"
        path.write_text(content)
        with pytest.raises(ValueError, match=r"facts\.json"):
            read_checked_json(path, "steps")


def test_parts_of_the_dead_are_removed_and_others_left(tmp_path):
    """Fails if a part is left for ever, or one is taken from a process that still writes it."""
    node, alive = files.machine_name(), os.getppid()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gone = [f".a.json.{node}-{dead.pid}-0a.part"]
    left = [f".a.json.{node}-{alive}-0a.part", f".a.json.elsewhere-{dead.pid}-0a.part", "b.part"]
    for name in gone + left:
        (tmp_path / name).touch()
    remove_parts(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(left)
