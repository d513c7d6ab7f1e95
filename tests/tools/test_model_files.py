"""Models and texts from files: weights are counted before they are loaded, texts become token ids.

These fail if a model that fits is refused because its folder has the weights twice, or if one that
does not fit is reported as a problem of its file; if token ids are not those of the model's
tokenizer; and if bad input is not named.
"""

import json
import os

import pytest
import torch
from byte_tokenizers import write_tokenizer
from safetensors_files import file_of
from tiny_models import FEW, tiny_model

from ropewalk.tools import model_files
from ropewalk.tools.model_files import read_source, read_tokens, start_tokens

pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

CPU = torch.device("cpu")
FIELDS = {**FEW, "model_type": "llama", "vocab_size": 300}


@pytest.fixture
def folder(tmp_path):
    tiny_model("llama", num_hidden_layers=1).save_pretrained(tmp_path)
    return tmp_path


def write_huge(file):
    """Write a file of 1 TiB whose only tensor is a hole that takes no space on the disk."""
    rows = 2**30
    entry = {"dtype": "F32", "shape": [rows, 256], "data_offsets": [0, rows * 1024]}
    header = file_of({"model.embed_tokens.weight": entry})
    file.write_bytes(header)
    os.truncate(file, len(header) + rows * 1024)


def test_a_file_larger_than_memory_is_refused_by_its_size(folder):
    write_huge(folder / "model.safetensors")
    source = read_source(folder)
    says = r"^--model must fit into memory: its [\d,]+ weights in float32 need 1,024\.0 GiB"
    with pytest.raises(ValueError, match=says):
        model_files.check_memory(source, torch.float32, CPU)


def test_weights_that_are_there_twice_are_counted_once(folder):
    """Mistral's folders have consolidated.safetensors beside the files that transformers reads."""
    source = read_source(folder)
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
    source = read_source(folder)
    with pytest.raises(ValueError, match=r"^--model must have weights that can be read, got") as e:
        model_files.check_memory(source, torch.float32, CPU)
    assert says in str(e.value)


# Texts


@pytest.fixture
def text_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(FIELDS))
    write_tokenizer(tmp_path)
    return tmp_path


def test_the_tokens_are_those_of_the_text_cut_at_the_end(text_folder):
    file = text_folder / "text"
    file.write_text("The ropewalk, 3 °C.\n" * 100, encoding="utf-8")
    whole = read_tokens(read_source(text_folder), file, 1, 10**6)
    assert len(whole) == 100 * len("The ropewalk, 3 °C.\n".encode())
    assert whole.dtype == torch.int64
    assert torch.equal(whole[:21], whole[21:42])
    for count in (1, 20, 21, 500):
        assert torch.equal(read_tokens(read_source(text_folder), file, 1, count), whole[:count])


def test_a_text_of_long_tokens_is_read_far_enough(text_folder):
    words = {"[UNK]": 0, "w" * 40: 1}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(text_folder / "tokenizer.json"))
    file = text_folder / "text"
    file.write_text(f"{'w' * 40} x " * 100)
    found = read_tokens(read_source(text_folder), file, 150, 150)
    assert found.tolist() == [1, 0] * 75


def test_start_tokens_are_those_before_a_text(text_folder):
    source = read_source(text_folder)
    assert start_tokens(source).tolist() == []
    write_tokenizer(text_folder, special=True)
    assert start_tokens(source).tolist() == [256]
    file = text_folder / "text"
    file.write_text("abc")
    assert len(read_tokens(source, file, 1, 10)) == 3


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"abc \xff", "--text must be a UTF-8 text file, got .*text: not UTF-8 at byte 4"),
        (b"", "--text .*text has 0 tokens, at least 1,280 are needed"),
        (b"x" * 812, "--text .*text has 812 tokens, at least 1,280 are needed"),
        (None, "--text must be a UTF-8 text file, got .*text: no such file"),
    ],
)
def test_a_bad_text_is_named(text_folder, content, says):
    file = text_folder / "text"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_tokens(read_source(text_folder), file, 1280, 2000)


def test_a_bad_tokenizer_is_named(text_folder):
    file, tokenizer = text_folder / "text", text_folder / "tokenizer.json"
    file.write_text("abc")
    (text_folder / "config.json").write_text(json.dumps({**FIELDS, "vocab_size": 65}))
    source = read_source(text_folder, name="MODEL")
    with pytest.raises(ValueError, match=r"MODEL must have a tokenizer.json with ids below its "):
        read_tokens(source, file, 1, 3)
    tokenizer.write_text("{}")
    with pytest.raises(ValueError, match="that the tokenizers library reads, got "):
        read_tokens(source, file, 1, 3)
    tokenizer.unlink()
    with pytest.raises(ValueError, match=r"MODEL must have a tokenizer.json to read a text, got "):
        read_tokens(source, file, 1, 3)


def test_messages_name_the_argument_of_the_command(tmp_path):
    with pytest.raises(ValueError, match=r"^MODEL must be a config.json or a folder"):
        read_source(tmp_path, name="MODEL")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "opt", "hidden_size": 64}))
    with pytest.raises(ValueError, match=r"^MODEL must "):
        read_source(tmp_path, name="MODEL")
