"""`ropewalk inspect`, as a user types it.

These fail if a mistake ends in a traceback or in another status than 2, if JSON is mixed with other
text, or if a line is wider than a terminal.
"""

import io
import json
import os
import sys
from functools import partial

import pytest
from published import FOLDER

from ropewalk.rotary.config.config_json import MAX_BYTES


@pytest.fixture
def inspect(monkeypatch, command):
    """Run the command in the folder of the configs: status, standard output, standard error."""
    monkeypatch.chdir(FOLDER)
    return partial(command, "inspect")


def test_one_model(inspect):
    status, out, err = inspect("llama-3.1-8b-instruct.json")
    assert (status, err) == (0, "")
    assert out.startswith("llama-3.1-8b-instruct.json: llama, context 131,072")
    for said in (
        "pairing         half (by the model type)",
        "theta           500,000 (rope_theta)",
        "Llama3: factor 8, low_freq_factor 1, high_freq_factor 4, original_length 8,192",
        "pairs 0-34 (35 of 64) within the original context of 8,192, without the rule",
        "off by up to 0.0063 rad within 131,072",
        "no warnings",
    ):
        assert said in out
    assert max(map(len, out.splitlines())) <= 100


def test_warnings_have_an_id_a_cause_and_a_way_out(inspect):
    _, out, _ = inspect("llama-2-7b.json")
    assert "theta-default" in out
    assert "Way out:" in out


def test_two_models(inspect):
    status, out, _ = inspect("llama-2-7b.json", "codellama-7b.json")
    assert status == 0
    assert "the ropes differ" in out
    assert "theta   10,000 | 1,000,000" in out
    assert "a pair is off by 1 rad from distance" in out
    _, out, _ = inspect("llama-2-7b.json", "llama-2-7b.json")
    assert "the same ropes in all layers" in out


def test_standard_input_and_pipes_are_read_within_the_limit(inspect, monkeypatch, tmp_path):
    def piped(content, *words):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        return inspect("-", *words)

    content = (FOLDER / "llama-2-7b.json").read_bytes()
    assert piped(content)[1].startswith("the config: llama, context 4,096")
    assert json.loads(piped(content, "codellama-7b.json", "--json")[1])["same"] is False
    assert "at most 4,194,304 bytes, got more in -\n" in piped(b" " * (MAX_BYTES + 1))[2]
    assert "got '-': the end at line 1, column 2 is not JSON" in piped(b"{")[2]
    os.mkfifo(pipe := tmp_path / "pipe")
    assert "it is empty" in inspect(pipe)[2]  # nobody writes, and nobody waits
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    assert inspect(f"/dev/fd/{reader}")[1].startswith("the config: llama")


def test_json_is_one_document(inspect):
    _, out, _ = inspect("gemma-4-12b.json", "--json")
    report = json.loads(out)
    assert report["kinds"][0]["rope"]["pairing"] == "half"
    assert None in report["kinds"][1]["rope"]["wavelengths"]
    _, out, _ = inspect("llama-2-7b.json", "codellama-7b.json", "--json")
    found = json.loads(out)
    assert found["same"] is False
    assert found["layers"][0]["fields"][0]["name"] == "theta"


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_plot_of_wavelengths(inspect, tmp_path, ending):
    path = tmp_path / f"w.{ending}"
    names = [FOLDER / f"{name}.json" for name in ("deepseek-v3", "gemma-4-12b")]
    assert inspect(*names, "--plot", path)[0] == 0
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG") if ending == "png" else b"163,840" in content


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.json"], "missing.json: no such file"),
        (["slimm-qwen2-0.5b.json"], "use_mrope must be false or absent"),
        ([".."], "which has neither a config.json nor a .gguf file"),
        (["llama-2-7b.json", "missing.json"], "missing.json: no such file"),
        (["llama-2-7b.json", "--plot", "w.gif"], "--plot must end in .png or .svg, got 'w.gif'"),
        (["llama-2-7b.json", "--plot", "no/w.png"], "--plot must be a file in a folder that can"),
        (["llama-2-7b.json", "--pairing", "both"], "pairing must be"),
        (["llama-2-7b.json", "--pairing", "interleaved"], "permuted, set rope_pairing in the conf"),
        (["voxcpm2.json"], "says how dimensions are paired; or pass --pairing half or interleaved"),
        ([], "CONFIG must be given"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(inspect, mistake, words, message):
    assert message in mistake("inspect", *words)
