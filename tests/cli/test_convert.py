"""`ropewalk convert`: its list, summary and JSON; wrong use is one line and exit status 2.

These fail if wrong use shows a traceback, if --dry-run writes, or if the next step is not said.
"""

import json
import os

import pytest
from safetensors_files import llama_folder, tensors_file

from ropewalk import files, tools
from ropewalk.cli.convert import next_step


@pytest.fixture
def run(command, tmp_path, monkeypatch):
    """Run the command next to a folder `in`: its status, output and errors."""
    llama_folder(tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    return lambda *words: command("convert", *words)


@pytest.fixture
def output(run):
    """Return what the command prints; it must succeed."""

    def printed(*words):
        status, out, _ = run(*words)
        assert status == 0
        return out

    return printed


def test_a_dry_run_lists_tensors_by_layers_and_writes_nothing(output, tmp_path):
    text = output("in", "out", "--to", "interleaved", "--dry-run")
    assert text.splitlines()[:5] == [
        "llama: half -> interleaved",
        "",
        "self_attn.k_proj.weight  layers 0-1  16 rows",
        "self_attn.q_proj.weight  layers 0-1  32 rows",
        "",
    ]
    assert '4 tensors would change; config.json gets "rope_pairing": "interleaved"' in text
    assert "nothing was written (--dry-run)" in text
    assert os.listdir(tmp_path) == ["in"]


def test_the_summary_says_what_to_do_next(output, tmp_path):
    text = " ".join(output("in", "out", "--to", "interleaved").split())
    assert "written to out" in text
    assert "Code that does not read rope_pairing pairs llama as half" in text
    assert "ropewalk.patch(model)" in text
    text = " ".join(output("out", "back", "--to", "half").split())
    assert "config.json is written without rope_pairing" in text
    assert "load OUT as it is" in text


def test_a_key_of_the_family_is_named_as_thenext_step(tmp_path):
    latent = {"q_lora_rank": None, "kv_lora_rank": 8, "qk_rope_head_dim": 8,
              "qk_nope_head_dim": 8, "v_head_dim": 8}  # fmt: skip
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16}
    config = {"model_type": "deepseek_v3", **sizes, **latent}
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "config.json").write_text(json.dumps(config))
    shapes = {"q_proj": (32, 16), "kv_a_proj_with_mqa": (16, 16), "kv_b_proj": (32, 8)}
    tensors = {f"model.layers.0.self_attn.{n}.weight": ("F32", s) for n, s in shapes.items()}
    (tmp_path / "in" / "model.safetensors").write_bytes(tensors_file(tensors))
    found = tools.convert(tmp_path / "in", tmp_path / "out", to="half")
    assert "transformers loads OUT as it is" in next_step(found)
    assert [tensor.rows for tensor in found.tensors] == [8, 16]


def test_json_has_each_tensor(output):
    found = json.loads(output("in", "out", "--to", "interleaved", "--json"))
    assert (found["from"], found["to"], found["written"]) == ("half", "interleaved", True)
    assert found["tensors"][0] == {
        "name": "model.layers.0.self_attn.k_proj.weight",
        "layer": 0,
        "what": "self_attn.k_proj.weight",
        "file": "model.safetensors",
        "bytes": 16 * 16 * 4,
        "rows": 16,
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["in", "out"], "--to"),
        (["in"], "OUT must be given"),
        ([], "IN must be given"),
        (["in", "out", "--to", "neox"], "'neox' of other code is called 'half' here"),
        (["in", "out", "--to", ""], '--to must be "half"'),
        (["in", "out", "--to", "half"], "there is nothing to do"),
        (["in", "out", "--to", "half", "--from", "x"], "--from must be"),
        (["nowhere", "out", "--to", "half"], "IN must be a model's folder, but nowhere is missing"),
        (["in/config.json", "out", "--to", "half"], "IN must be a model's folder, got the file"),
        (["in", "in", "--to", "interleaved"], "OUT must not exist yet"),
        (["in", "in/x", "--to", "interleaved"], "OUT must not be inside IN"),
        (["in", "a/b/c", "--to", "interleaved"], "OUT must be in a folder that exists"),
        (["in", "", "--to", "interleaved"], "OUT must name a path"),
        (["in", "x" * 300, "--to", "interleaved"], "File name too long"),
        (["in", "x" * 5000, "--to", "interleaved"], "OUT must be a path of at most"),
        (["in", "out", "--to", "interleaved", "--dryrun"], "--dry-run"),
        (["in", "out", "more", "--to", "interleaved"], "more"),
    ],
)
def test_wrong_use_is_one_line_and_writes_nothing(run, mistake, words, message, tmp_path):
    assert message in mistake("convert", *words)
    assert os.listdir(tmp_path) == ["in"]


def test_an_interruption_after_the_last_step_says_that_out_is_complete(run, monkeypatch, tmp_path):
    real = files._move

    def move(part, out):
        real(part, out)
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "_move", move)
    status, _, err = run("in", "out", "--to", "interleaved")
    assert (status, err) == (130, "ropewalk: interrupted after out was written completely\n")
    assert sorted(os.listdir(tmp_path / "out")) == sorted(os.listdir(tmp_path / "in"))
