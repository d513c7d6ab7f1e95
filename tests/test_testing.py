"""`assert_rope_like` passes for what is right, and says what is wrong, where and why.

These fail when a wrong port passes, when the message lacks the fault, its layer or its cause, and
when pytest's plugin is missing, or imports torch for every test run.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from ropewalk import RotaryEmbedding, RotarySpec
from ropewalk.testing import assert_rope_like

ROOT = Path(__file__).parents[1]


def test_a_function_that_is_right_passes_and_a_wrong_one_is_named():
    rope = RotaryEmbedding(RotarySpec(head_dim=16))
    assert_rope_like(lambda x, positions: rope.rotate(x, positions), rope.spec)
    with pytest.raises(AssertionError) as failure:
        assert_rope_like(rope, RotarySpec(head_dim=16, theta=5e5))
    said = str(failure.value)
    assert "theta: theta is 10000, specified is 500000; off by" in said
    assert "likely cause: rope_theta is not read" in said


def test_a_model_that_is_wrong_is_named_with_its_layers():
    pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
    from tiny_models import tiny_model

    model = tiny_model("llama")
    assert_rope_like(model, model.config)
    config = {**model.config.to_dict(), "rope_parameters": {"rope_theta": 5e5}}
    assert_rope_like(tiny_model("llama", rope_parameters={"rope_theta": 5e5}), config)
    with pytest.raises(AssertionError) as failure:
        assert_rope_like(model, config, positions=256)
    said = str(failure.value).splitlines()
    assert said[0] == "LlamaForCausalLM does not rotate as the config says:"
    assert said[1].startswith("  layers 0-3; q and k: theta: theta is 10000, specified is 500000;")
    assert said[2].startswith("    likely cause: rope_theta is not read")
    assert len(said) == 3


def test_what_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="target must be"):
        assert_rope_like("llama", RotarySpec(head_dim=16))
    with pytest.raises(ValueError, match="model_type"):
        assert_rope_like(torch.nn.Embedding(2, 2), {"model_type": "no such type"})


TESTS = """
import sys

def test_the_fixture(assert_rope_like):
    assert "torch" not in sys.modules
    assert assert_rope_like is sys.modules["ropewalk.testing"].assert_rope_like
"""


def test_the_plugin_offers_the_fixture_and_is_light(tmp_path):
    file = tmp_path / "test_port.py"
    file.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "ropewalk.testing", "-q", file]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_pytest_finds_the_plugin():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"ropewalk": "ropewalk.testing"}
