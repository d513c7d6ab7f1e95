"""`ropewalk explore --model`: what it opens, and the line that each mistake gets.

These fail if a model without a tokenizer or without weights is not opened as asked for, if random
weights are not said to be random, or if a mistake is found only after the model has run.
"""

import io
import json
import shutil
import sys

import pytest

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
pytest.importorskip("uvicorn", reason="the extra explore is not installed")
from byte_tokenizers import write_tokenizer

from ropewalk.explorer import page_files
from ropewalk.tools.attention import open_model


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A model with all files, one without a tokenizer, and one without weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    base = tmp_path_factory.mktemp("models")
    whole, no_tokenizer, no_weights = (base / name for name in ("whole", "ids", "config"))
    config = LlamaConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        vocab_size=300, max_position_embeddings=64,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(whole)
    write_tokenizer(whole)
    for copy, left_out in ((no_tokenizer, "tokenizer.json"), (no_weights, "*.safetensors")):
        shutil.copytree(whole, copy, ignore=shutil.ignore_patterns(left_out))
    return whole, no_tokenizer, no_weights


@pytest.fixture
def exported(command, monkeypatch, tmp_path):
    """Run with --export; return what the page knows of the model."""
    monkeypatch.setattr("ropewalk.explorer.encodings_room.encodings_data", dict)  # takes seconds

    def export(*words):
        status, out, err = command("explore", *map(str, words), "--export", str(tmp_path / "page"))
        assert (status, err) == (0, "")
        assert "bytes" in out
        text = (tmp_path / "page" / "data" / "model.js").read_text("utf-8")
        return json.loads(text.removeprefix("window.ropewalkData=").rstrip(";\n"))

    return export


def test_a_text_of_standard_input_is_read(exported, folders, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("to be or not"))
    told = exported("--model", folders[0], "--text", "-")
    assert "".join(told["tokens"]) == "to▁be▁or▁not"
    assert [layer["heads"] for layer in told["layers"]] == [2, 2]
    assert told["random"] is False


def test_without_a_tokenizer_ids_are_read_and_random_weights_are_named(exported, folders):
    (folders[2] / "tokenizer.json").unlink()
    told = exported("--model", folders[2], "--text", "5 6 7", "--random-weights")
    assert told["tokens"] == ["5", "6", "7"]
    assert told["random"] is True


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--model", "whole"], "--text must be given with --model"),
        (["--text", "a b"], "--model must be given with --text"),
        (["--model", "nothing", "--text", "a b"], "must be a folder with config.json"),
        (["--model", "config", "--text", "a b"], "--random-weights opens its config.json"),
        (["--model", "ids", "--text", "a b"], "must be token ids, whole numbers"),
        (["--model", "ids", "--text", "1 300"], "below the vocab_size 300, got 300"),
        (["--model", "whole", "--text", "a"], "2 to 64 tokens (the model's context), got 1"),
        (["--model", "whole", "--text", "a" * 65], "2 to 64 tokens (the model's context), got 65"),
        (["--model", "whole", "--text", "ab", "--dtype", "int8"], "--dtype must be"),
        (["--dtype", "bfloat16"], "--dtype must be left out without --model"),
        (["--model", "whole", "--text", "ab", "--export", "."], "that does not exist yet"),
    ],
)
def test_a_mistake_is_one_line(command, folders, words, says, monkeypatch):
    monkeypatch.chdir(folders[0].parent)
    monkeypatch.setattr(open_model, "load_model", None)  # nothing is loaded before
    monkeypatch.setattr(page_files, "export", None)
    status, _, err = command("explore", *words, *([] if "--export" in words else ["--no-open"]))
    assert status == 2
    assert says in " ".join(err.split())
    assert "Traceback" not in err
