"""Checkpoints: these fail if a file that was being written could be left half there, or if a tensor
or a fact does not come back.
"""

import pytest
import torch
from torch import nn

from ropewalk import files
from ropewalk.files import write_bytes, write_json
from ropewalk.lab.checkpoint import load_weights, read_tensors, weights_of, write_tensors


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
