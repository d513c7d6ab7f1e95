"""Token ids of a text are those of the model's tokenizer, and every kind of bad input is named."""

import json

import pytest
import torch
from byte_tokenizers import write_tokenizer
from tiny_models import FEW

from ropewalk.tools.model_files import read_source, read_tokens, start_tokens

pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

FIELDS = {**FEW, "model_type": "llama", "vocab_size": 300}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(FIELDS))
    write_tokenizer(tmp_path)
    return tmp_path


def test_the_tokens_are_those_of_the_text_cut_at_the_end(folder):
    file = folder / "text"
    file.write_text("The ropewalk, 3 °C.\n" * 100, encoding="utf-8")
    whole = read_tokens(read_source(folder), file, 1, 10**6)
    assert len(whole) == 100 * len("The ropewalk, 3 °C.\n".encode())
    assert whole.dtype == torch.int64
    assert torch.equal(whole[:21], whole[21:42])
    for count in (1, 20, 21, 500):
        assert torch.equal(read_tokens(read_source(folder), file, 1, count), whole[:count])


def test_a_text_of_long_tokens_is_read_far_enough(folder):
    words = {"[UNK]": 0, "w" * 40: 1}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    file = folder / "text"
    file.write_text(f"{'w' * 40} x " * 100)
    found = read_tokens(read_source(folder), file, 150, 150)
    assert found.tolist() == [1, 0] * 75


def test_start_tokens_are_those_before_a_text(folder):
    source = read_source(folder)
    assert start_tokens(source).tolist() == []
    write_tokenizer(folder, special=True)
    assert start_tokens(source).tolist() == [256]
    file = folder / "text"
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
def test_a_bad_text_is_named(folder, content, says):
    file = folder / "text"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=says):
        read_tokens(read_source(folder), file, 1280, 2000)


def test_a_bad_tokenizer_is_named(folder):
    file, tokenizer = folder / "text", folder / "tokenizer.json"
    file.write_text("abc")
    (folder / "config.json").write_text(json.dumps({**FIELDS, "vocab_size": 65}))
    source = read_source(folder, name="MODEL")
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
