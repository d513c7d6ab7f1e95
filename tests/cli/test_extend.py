"""`ropewalk extend`, as a user types it.

These fail if a mistake ends in a traceback or in another status than 2, if JSON is mixed with other
text, or if a line that is not to be pasted is wider than a terminal.
"""

import json
from functools import partial
from pathlib import Path

import pytest
from published import FOLDER


@pytest.fixture
def extend(monkeypatch, command):
    """Run the command in the folder of the configs: status, standard output, standard error."""
    monkeypatch.chdir(FOLDER)
    return partial(command, "extend")


def test_the_table_that_the_docs_have_the_recommendation_and_one_fragment(extend):
    status, out, err = extend("qwen3-0.6b.json", "--to", "131072", "--original", "32768")
    assert (status, err) == (0, "")
    for said in (
        "qwen3-0.6b.json: qwen3, 32,768 -> 131,072 tokens, factor s = 4",
        "none     1 times           24 of 64 (38%)",
        "yarn     1 to 4 times      0 of 64 (0%)           1.139",
        "try first: yarn",
        "transformers 5, yarn: run by ropewalk's tests",
        "remove  rope_theta",
        '"original_max_position_embeddings": 32768',
    ):
        assert said in out
    assert max(map(len, out.splitlines())) <= 100
    json.loads(out[out.index("\n{") :])  # what is to be pasted comes last
    page = (Path(__file__).parents[2] / "docs" / "extend-a-context.md").read_text("utf-8")
    table = page.partition("```text\n")[2].partition("```")[0].splitlines()
    assert len(table) > 5
    assert {line for line in table if line.strip() != "..."} <= set(out.splitlines())


@pytest.mark.parametrize("engine", ["vllm", "sglang", "all"])
def test_other_engines(extend, engine):
    _, out, _ = extend("qwen3.5-9b.json", "--to", "524288", "--engine", engine)
    assert ("vllm serve" in out) == (engine != "sglang")
    assert ("sglang.launch_server" in out) == (engine != "vllm")
    assert "not run" in out


def test_one_method(extend):
    _, out, _ = extend("llama-2-7b.json", "--to", "8192", "--method", "linear")
    assert "transformers 5, linear" in out
    assert "\n  yarn " not in out
    assert "try first: yarn" in out  # the advice is the same as without --method


def test_a_model_that_follows_no_rule(extend):
    status, out, _ = extend("gpt-j-6b.json", "--to", "8192")
    assert status == 0
    assert "the code of model type gptj does not follow it" in " ".join(out.split())
    assert "try first: no rule" in out
    _, out, _ = extend("gemma-4-12b.json", "--to", "1048576")
    assert "nothing to paste" in out


def test_json_is_one_document(extend):
    _, out, _ = extend("gemma-4-12b.json", "--to", "1048576", "--json")
    found = json.loads(out)
    assert found["factor"] == 8.0
    assert None in found["results"][0]["numbers"][0]["wavelengths_before"]


def test_a_plot_of_wavelengths(extend, tmp_path):
    assert extend("qwen3-0.6b.json", "--to", "131072", "--plot", tmp_path / "w.svg")[0] == 0
    assert b"131,072" in (tmp_path / "w.svg").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["missing.json", "--to", "8192"], "missing.json: no such file"),
        (["llama-2-7b.json", "--to", "4096"], "to must be longer than the original context, 4,096"),
        (["llama-2-7b.json", "--to", "8192", "--engine", "ollama"], "--engine must be one of"),
        (["llama-2-7b.json", "--to", "8192", "--method", "magic"], "method must be one of"),
        (["llama-2-7b.json", "--to", "8192", "--plot", "w.gif"], "--plot must end in .png or .svg"),
        (["phi-4.json", "--to", "65536", "--method", "yarn"], "does not follow it"),
        (["vicuna-13b-v1.5-16k.json", "--to", "65536"], "--original must be given"),
        (["llama-2-7b.json"], "--to"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(extend, mistake, words, message):
    assert message in mistake("extend", *words)
