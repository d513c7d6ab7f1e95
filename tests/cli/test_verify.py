"""`ropewalk verify`: its table, JSON and exit status, and code that does not answer.

These fail if a fault does not exit with 1, if wrong use shows a traceback or exits otherwise than
with 2, if what the user's code prints reaches standard output, or if code that hangs is waited for.
"""

import json
import signal
import sys
from fractions import Fraction
from functools import partial

import pytest

from ropewalk.cli import verify as verify_command
from ropewalk.tools.verify.load_target import limited, load_target

PORT = """
import time
import torch

def right(q, k, positions):
    print("hello from the port")
    f = 1 / 1e4 ** (torch.arange(0, q.shape[-1], 2) / q.shape[-1])
    angles = positions[..., None].float() * f
    angles = torch.cat((angles, angles), -1)
    def one(x):
        a, b = x.chunk(2, -1)
        return x * angles.cos() + torch.cat((-b, a), -1) * angles.sin()
    return one(q), one(k)

def alone(x):
    return right(x, x, torch.arange(x.shape[-2]))[0]

class Needs:
    def __init__(self, size):
        pass

def hangs(x):
    while True:
        pass

def other_shape(x):
    return x[..., :3]

number = 3
"""


@pytest.fixture
def run(monkeypatch, command, tmp_path):
    """Run the command in a folder with `a_port.py`; return status, output and errors."""
    (tmp_path / "a_port.py").write_text(PORT)
    (tmp_path / "raises.py").write_text("raise SystemExit('stop')")
    config = {"model_type": "llama", "head_dim": 64, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps({**config, "rope_theta": 500_000.0}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield partial(command, "verify")
    sys.modules.pop("a_port", None)


def test_right_code_exits_with_0_and_prints_one_line_for_each_check(run):
    status, out, err = run("a_port:right")
    assert status == 0
    assert "no fault found" in out
    assert "ok    pairing" in out
    assert "hello" not in out
    assert "hello" in err


def test_a_fault_exits_with_1_and_names_its_cause(run):
    status, out, _ = run("a_port:right", "--like", ".")
    assert status == 1
    assert "FAULT  frequencies" in out
    assert "theta:  theta differs. Likely cause:" in out


def test_axes_that_are_stated_are_believed(run):
    status, out, _ = run("a_port:alone", "--axes", "bshd")
    assert status == 1
    assert "FAULT  axes" in out
    assert "heads: rotates along the axis of heads of (B, S" in out


def test_json_is_all_that_is_printed(run):
    status, out, _ = run("a_port:right", "--like", "config.json", "--json")
    report = json.loads(out)
    assert status == 1
    assert (report["right"], report["faults"]) == (False, ["theta"])
    assert {check["name"] for check in report["checks"]} >= {"pairing", "position 131,071"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a_port"], "TARGET must be module:function"),
        (["a_port:"], "TARGET must be module:function"),
        (["nowhere:f"], "TARGET must name a module that can be imported"),
        (["a_port:rihgt"], "did you mean 'right'"),
        (["a_port:number"], "TARGET must be callable"),
        (["a_port:Needs"], "a class that needs no arguments"),
        (["raises:f"], "raised SystemExit: 'stop'"),
        (["a_port:other_shape"], "returned (1, 2, 7, 3) for x"),
        (["a_port:right", "--like", "none.json"], "no such file"),
        (["a_port:right", "--layer", "1"], "layer must be left out without like"),
        (["a_port:right", "--layer", "one"], "--layer must be an integer of at least 0, got 'one'"),
        (["a_port:right", "--like", ".", "--layer", "2"], "layer must be in 0..1"),
        (["a_port:right", "--head-dim", "9" * 50], "head_dim must be"),
        (["a_port:right", "--form", "x,y"], "form must name the role"),
        (["a_port:right", "--like", ".", "--head-dim", "32"], "head_dim must be that of like, 64"),
        (["a_port:right", "--like", ".", "--length", "9"], "length must be left out"),
        ([], "either MODULE:FUNCTION or --model must be given"),
        (["a_port:right", "--model", "."], "either MODULE:FUNCTION or --model must be given"),
        (["--model", "."], "model must have *.safetensors"),
        (["--model", "nowhere"], "model must be a folder with config.json, got nowhere"),
        (["--model", ".", "--layer", "1"], "--layer must be left out with --model"),
        (["a_port:right", "--meta"], "--meta must be left out without --model"),
    ],
)
def test_wrong_use_is_one_line_and_exits_with_2(run, words, message):
    status, out, err = run(*words)
    assert status == 2
    assert not out
    last = err.splitlines()[-1]
    assert last.startswith("ropewalk: ")
    assert message in last
    if "one" not in words:  # which no command began with
        status, out, _ = run(*words, "--json")
        assert (status, json.loads(out)) == (2, {"error": last.removeprefix("ropewalk: ")})


def test_code_that_hangs_ends_at_the_limit(run, monkeypatch):
    monkeypatch.setattr(verify_command, "SECONDS", 0.3)
    status, _, err = run("a_port:hangs")
    assert status == 2
    assert "TARGET must answer within 0.3 seconds" in err


def test_the_limit_leaves_signals_as_they_were():
    before = signal.getsignal(signal.SIGALRM)
    with limited(60):
        pass
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_methods_are_found():
    assert load_target("fractions:Fraction.from_float")(0.5) == Fraction(1, 2)


@pytest.fixture
def model_folder(tmp_path):
    pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
    from tiny_models import tiny_model

    tiny_model("llama").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_model_is_verified_layer_by_layer(run, model_folder):
    status, out, _ = run("--model", "model")
    assert status == 0
    assert "ok  layers 0-3; q and k, frequencies" in out
    assert "ok  layers 0-3; v, values" in out
    status, out, _ = run("--model", "model", "--meta", "--json")
    assert status == 1
    assert json.loads(out)["faults"] == ["uninitialised-frequencies"]


def test_converted_weights_have_a_hint(run, model_folder):
    """The model's own code does not read `rope_pairing`, so the fault is true until patched."""
    config = json.loads((model_folder / "config.json").read_text())
    (model_folder / "config.json").write_text(json.dumps({**config, "rope_pairing": "interleaved"}))
    status, out, err = run("--model", "model")
    assert status == 1
    assert "FAULT" in out
    assert "ropewalk.patch(model) does, and makes this right" in err


def test_a_model_is_compared_with_another_config(run, model_folder):
    config = json.loads((model_folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 5e5
    (model_folder.parent / "config.json").write_text(json.dumps(config))
    status, out, _ = run("--model", "model", "--like", ".")
    assert status == 1
    assert "FAULT  layers 0-3; q and k, frequencies" in out


def test_a_model_of_which_nothing_could_be_tested_exits_with_1(run, model_folder, monkeypatch):
    from ropewalk.tools.verify.verify_report import Report, not_tested

    report = Report("M", "model", (not_tested("layers", "no attention"),), ("layer 0, q",))
    package = sys.modules["ropewalk.tools.verify"]
    monkeypatch.setattr(package, "verify_model", lambda *args, **kwargs: report)
    status, out, _ = run("--model", "model")
    assert (status, out.splitlines()[-1]) == (1, "nothing could be tested")
