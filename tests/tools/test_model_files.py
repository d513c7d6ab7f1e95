"""A model's weights are counted as they will be loaded, from the headers of their files alone.

These fail if a model that fits is refused because its folder has the weights twice, or if one that
does not fit is reported as a problem of its file.
"""

import json
import struct

import pytest
import torch
from tiny_models import tiny_model

from ropewalk.tools import model_files

pytest.importorskip("transformers")

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path):
    tiny_model("llama", num_hidden_layers=1).save_pretrained(tmp_path)
    return tmp_path


def write_huge(file):
    """Write a file of 1 TiB whose only tensor is a hole that takes no space on the disk."""
    rows = 2**30
    entry = {"dtype": "F32", "shape": [rows, 256], "data_offsets": [0, rows * 1024]}
    header = json.dumps({"model.embed_tokens.weight": entry}).encode()
    with file.open("wb") as out:
        out.write(struct.pack("<Q", len(header)) + header)
        out.truncate(8 + len(header) + rows * 1024)


def test_a_file_larger_than_memory_is_refused_by_its_size(folder):
    write_huge(folder / "model.safetensors")
    source = model_files.read_source(folder)
    says = r"^--model must fit into memory: its [\d,]+ weights in float32 need 1,024\.0 GiB"
    with pytest.raises(ValueError, match=says):
        model_files.check_memory(source, torch.float32, CPU)


def test_weights_that_are_there_twice_are_counted_once(folder):
    """Mistral's folders have consolidated.safetensors beside the files that transformers reads."""
    source = model_files.read_source(folder)
    count = model_files._weight_count(source)
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "consolidated.safetensors").write_bytes(weights)
    assert model_files._weight_count(source) == count
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert model_files._weight_count(source) == count


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("model.safetensors", lambda old: old[:5000], "model.safetensors is cut off: tensor"),
        ("model.safetensors", lambda old: b"version https://git-lfs", "run git lfs pull"),
        ("model.safetensors.index.json", lambda old: b"[]", "must have a weight_map"),
        (
            "model.safetensors.index.json",
            lambda old: b'{"weight_map": {"a": "model-1.safetensors"}}',
            "model-1.safetensors: no such file",
        ),
        (
            "model.safetensors.index.json",
            lambda old: b'{"weight_map": {"a": "../model.safetensors"}}',
            "must name files of its folder",
        ),
    ],
)
def test_damaged_weights_are_named_before_they_are_loaded(folder, name, content, says):
    weights = folder / "model.safetensors"
    old = weights.read_bytes()
    if name != weights.name:
        weights.rename(folder / "part.safetensors")
    (folder / name).write_bytes(content(old))
    source = model_files.read_source(folder)
    with pytest.raises(ValueError, match=r"^--model must have weights that can be read, got") as e:
        model_files.check_memory(source, torch.float32, CPU)
    assert says in str(e.value)
