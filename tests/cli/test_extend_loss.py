"""`ropewalk extend --model PATH --text FILE`, as a user types it.

These fail if losses are printed that were not measured, if JSON is mixed with other text, if a
mistake is noticed only after the model was loaded, or if it is not one line with status 2.
"""

import json
from functools import partial

import pytest
import torch
from byte_tokenizers import write_tokenizer
from tiny_models import tiny_model

from ropewalk import tools
from ropewalk.tools.loss.loss_report import ruler_command

pytest.importorskip("transformers")

SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 64, "vocab_size": 300}
WORDS = ("model", "--to", "256", "--model", "model", "--text", "text", "--passages", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("extend")
    tiny_model("llama", **SIZES).save_pretrained(path / "model")
    write_tokenizer(path / "model", special=True)
    (path / "text").write_text("Rope walks are long and straight. " * 40)
    return path


@pytest.fixture
def extend(folder, monkeypatch, command):
    """Run the command in the folder: status, standard output, standard error."""
    monkeypatch.chdir(folder)
    return partial(command, "extend")


def test_the_tables_and_the_findings(extend):
    status, out, err = extend(*WORDS)
    assert (status, err) == (0, "")
    for said in (
        "loss of the last 16 tokens of 2 passages, in nats per token, by tokens of context",
        "           32     64     128    256",
        "change from none with 64 tokens of context",
        "change from none with the same context",
        "the same 2 passages of 64 tokens, at shifted positions",
        "none, angles of transformers",
        "lowest loss with 256 tokens of context:",
        "LongPPL, arXiv 2410.23771",
        "RULER's tasks need contexts of at least 512 tokens: no command",
    ):
        assert said in " ".join(out.split()) or said in out
    assert "there are no intervals: 16 tokens of each of 2 passages are too few" in " ".join(
        out.split()
    )
    assert max(map(len, out.splitlines())) <= 100


def test_json_has_the_losses_of_the_tool(extend, folder):
    status, out, _ = extend(*WORDS, "--method", "yarn", "--json")
    found = json.loads(out)["loss"]
    assert status == 0
    model = tools.load_model(folder / "model")
    text = (folder / "text").read_bytes()
    alphabet = json.loads((folder / "model" / "tokenizer.json").read_text())["model"]["vocab"]
    ids = torch.tensor([alphabet[{32: "Ġ"}.get(byte, chr(byte))] for byte in text])
    rule = tools.extend(folder / "model", 256, "yarn").result("yarn").rule
    own = tools.measure_loss(
        model, ids, {"yarn": rule}, original=64, to=256, passages=2,
        start=torch.tensor([256]),
    )  # fmt: skip
    plain = json.loads(json.dumps(own.to_dict()))
    for mine, tools_own in zip(found["results"], plain["results"], strict=True):
        assert mine["method"] == tools_own["method"]
        for a, b in zip(mine["contexts"], tools_own["contexts"], strict=True):
            assert a["loss"] == pytest.approx(b["loss"], abs=1e-5)


def test_a_plot_of_losses(extend, tmp_path):
    assert extend(*WORDS, "--method", "linear", "--plot", tmp_path / "loss.svg")[0] == 0
    assert b"context in tokens" in (tmp_path / "loss.svg").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model", "--to", "256", "--model", "model"], "--text must be given with --model"),
        (["model", "--to", "256", "--text", "text"], "--model must be given with --text"),
        (["model", "--to", "256", "--passages", "2"], "--passages must be left out without"),
        ([*WORDS[:3], "--model", "none", "--text", "text"], "--model must be a config.json or a"),
        ([*WORDS[:3], "--model", "model", "--text", "none"], "--text must be a UTF-8 text file,"),
        (["model", "--to", "9000", *WORDS[3:]], "--text text has 1,360 tokens, at least 9,000 are"),
        ([*WORDS, "--method", "longrope"], "method longrope cannot be used: it needs a divisor"),
        ([*WORDS, "--dtype", "float64"], "--dtype must be one of float32, bfloat16, float16"),
        ([*WORDS, "--dtype", ""], "--dtype must be one of float32, bfloat16, float16, got ''"),
        ([*WORDS, "--device", ""], "device must be one that this machine has"),
        ([*WORDS, "--seconds", "0"], "--seconds must be above 0, got 0"),
        (["model", "--to", "256", "--dtype", ""], "--dtype must be left out without --model"),
        ([*WORDS, "--device", "tpu"], "device must be one that this machine has"),
        ([*WORDS, "--seconds", "0.000001"], "s, more than 1e-06 s; seconds can allow"),
        (["other.json", *WORDS[1:]], "--model must have the ropes of CONFIG, got other ones"),
        (["model", *WORDS[1:4], "other.json", *WORDS[5:]], "--model must be a folder with weights"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(extend, mistake, folder, monkeypatch, words, message):
    config = json.loads((folder / "model" / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 5e5
    (folder / "other.json").write_text(json.dumps(config))
    if "0.000001" not in words:
        # it would fail if called
        monkeypatch.setattr("ropewalk.tools.model_files.load", None)
    assert message in mistake("extend", *words)


def test_more_passages_than_any_text_has_are_as_many_as_fit(extend, folder):
    (folder / "short").write_text("Rope walks are long and straight. " * 9)
    words = ["short" if each == "text" else each for each in WORDS[:-1]]
    status, out, _ = extend(*words, 10**20, "--method", "linear")
    assert status == 0
    assert "loss of the last 16 tokens of 4 passages" in out


def test_weights_that_do_not_fit_are_refused_before_they_are_loaded(extend, mistake, monkeypatch):
    monkeypatch.setattr("ropewalk.tools.model_files.load", None)
    monkeypatch.setattr("ropewalk.machine.available_memory", lambda _: 1)
    assert "--model must fit into memory: its " in mistake("extend", *WORDS)


def test_the_command_for_ruler():
    """As in lm_eval/tasks/ruler/README.md; shorter contexts have no room for a task."""
    assert ruler_command("my model", [256, 4096, 8192], "bfloat16") == (
        "lm-eval run --model hf --model_args "
        "'pretrained=my model,max_length=8192,dtype=bfloat16' --tasks niah_single_1,ruler_vt "
        """--metadata '{"max_seq_lengths":[4096,8192]}' --batch_size 1"""
    )
    assert ruler_command("model", [64, 256], "float32") is None
