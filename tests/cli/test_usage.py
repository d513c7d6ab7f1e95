"""`ropewalk usage`, as a user types it.

These fail if a mistake ends in a traceback or is told after work has begun, if JSON is mixed with
other text, or if a run's model reads another vocabulary than its own.
"""

import json
from functools import partial

import pytest
import torch
from cells_here import run_cells_here
from tiny_tasks import config_of, translation_config

from ropewalk.files import write_checked_json
from ropewalk.lab.running.run_folder import prepare

WORDS = "the tale of a gray cat and the old mill at the sea ".split()  # noqa: SIM905


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two encodings and two seeds, 16 tokens at a time."""
    folder = tmp_path_factory.mktemp("run")
    config = config_of(
        "causal-lm",
        encodings=("rotary(theta=100)", "alibi"),
        train_length=16,
        length_multiples=(1,),
    )
    prepare(config, folder)
    run_cells_here(config, folder, None, None)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "text.txt"
    file.write_text(" ".join(WORDS * 60))
    return file


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder of a tiny model of transformers, whose tokenizer puts a token before a text."""
    pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
    from tiny_models import tiny_model
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    folder = tmp_path_factory.mktemp("model")
    tiny_model("llama").save_pretrained(folder)
    vocabulary = {word: i for i, word in enumerate(["<s>", *dict.fromkeys(WORDS)])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture
def usage(command):
    """Run the command: status, standard output, standard error."""
    return partial(command, "usage")


def test_a_model_of_a_run(usage, run, text, tmp_path):
    pytest.importorskip("matplotlib", reason="pip install 'ropewalk[lab]'")
    picture = tmp_path / "usage.svg"
    chosen = ("--encoding", "rotary(theta=100)", "--seed", 2)
    status, out, err = usage(run, "--text", text, *chosen, "--tokens", 400, "--plot", picture)
    assert (status, err) == (0, "")
    for said in (
        "rotary(theta=100), seed 2: LanguageModel, 25 rows of 16 tokens",
        "q fast", "even", "p-RoPE without training", "4 of 4", "0 of 4", "what this shows",
    ):  # fmt: skip
        assert said in out
    assert max(map(len, out.splitlines()[1:])) <= 100
    assert b"window 16" in picture.read_bytes()


def test_json_alone_is_printed(usage, run, text):
    cell = next((run / "cells").glob("rotary*/seed-1"))
    status, out, err = usage(cell, "--text", text, "--tokens", 400, "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert [cost["fraction"] for cost in found["costs"]] == [1, 0.9, 0.75, 0.5, 0.25, 0]
    assert found["rows"] == 25


def test_a_model_of_transformers_reads_windows_after_its_first_token(
    usage, model, text, monkeypatch
):
    import ropewalk.tools

    read = []
    measure = ropewalk.tools.usage

    def keep(loaded, ids, targets):
        read.append(ids)
        return measure(loaded, ids, targets=targets)

    monkeypatch.setattr(ropewalk.tools, "usage", keep)
    status, out, err = usage(model, "--text", text, "--window", 33, "--tokens", 400)
    assert (status, err) == (0, "")
    assert "LlamaForCausalLM, 12 rows of 33 tokens" in out
    assert torch.equal(read[0][:, 0], torch.zeros(12, dtype=torch.long))
    assert (read[0][:, 1:] > 0).all()


def test_mistakes_are_one_line_before_any_model_is_loaded(
    mistake, run, model, text, tmp_path, monkeypatch
):
    monkeypatch.setattr("ropewalk.lab.tasks.text_model.load_model", None)
    monkeypatch.setattr("ropewalk.tools.model_files.load_model", None)
    short, binary = tmp_path / "short.txt", tmp_path / "binary.txt"
    short.write_text("the tale")
    binary.write_bytes(b"\xff\xfe")
    one = ("--encoding", "rotary(theta=100)", "--seed", 1)
    there = "rotary(theta=100) with seed 1, 2; alibi with seed 1, 2"
    random = tmp_path / "random" / "config.json"
    random.parent.mkdir()
    random.write_text((model / "config.json").read_text())
    for words, message in (
        ((run, "--text", text), f"--encoding and --seed must name one of the models that are "
                                f"there, got neither: {there}"),
        ((run, "--text", text, "--encoding", "rotari", "--seed", 1), there),
        ((run, "--text", text, "--encoding", "alibi"), "alibi with seed 1, 2"),
        ((run, "--text", short, *one), "has 4 tokens, at least 160 are needed"),
        ((run, "--text", binary, *one), "--text must be a UTF-8 text file"),
        ((run, "--text", tmp_path / "no.txt", *one), "no.txt"),
        ((run, "--text", text, *one, "--tokens", 100), "--tokens must be at least 160 with"),
        ((run, "--text", text, *one, "--window", 4), "--window must be at least 16 tokens, got 4"),
        ((run, "--text", text, *one, "--plot", "x.txt"), "--plot must end in .png or .svg"),
        ((tmp_path / "no", "--text", text), "MODEL must be an existing file or folder"),
        ((tmp_path, "--text", text, "--seed", 1), "--seed must be left out"),
        ((random.parent, "--text", text), "MODEL must be a folder with weights"),
        ((random, "--text", text), "folder with config.json, or a run folder"),
        ((model, "--text", short), "at least"),
        ((model, "--text", text, "--window", 10**6 - 1), "max_position_embeddings"),
        ((model, "--text", text, "--dtype", "int8"), "--dtype must be one of float32, bfloat16"),
    ):  # fmt: skip
        assert message in mistake("usage", *words), words


def test_a_model_that_does_not_fit_into_memory(mistake, run, model, text, monkeypatch):
    for module in ("ropewalk.lab.tasks.text_model", "ropewalk.tools.model_files"):
        monkeypatch.setattr(f"{module}.load_model", None)
    monkeypatch.setattr("ropewalk.machine.available_memory", lambda device: 1000)
    for words in ((run, "--encoding", "rotary(theta=100)", "--seed", 1), (model, "--window", 64)):
        said = mistake("usage", *words, "--text", text, "--tokens", 700)
        assert "MODEL must fit into memory" in said


def test_an_encoding_without_a_rope_is_named(mistake, run, text):
    words = ("--text", text, "--encoding", "alibi", "--seed", 1, "--tokens", 400)
    said = "got the encoding alibi; with a rope in this run: rotary(theta=100)"
    assert said in mistake("usage", run, *words)


@pytest.mark.parametrize("config", [config_of("copy"), translation_config()])
def test_runs_without_one_text_are_refused(mistake, text, tmp_path, config):
    (tmp_path / "corpus.json").write_text("{}")
    write_checked_json(tmp_path / "config.json", config.facts())
    said = f"task causal-lm or masked-lm, got task {config.task}"
    assert said in mistake("usage", tmp_path, "--text", text)
