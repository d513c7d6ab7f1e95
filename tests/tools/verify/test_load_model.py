"""Models are loaded from safetensors alone, normally and through the meta device.

These fail when a pickle is read, when code from a folder runs without leave, when a broken folder
is met with a traceback, and when buffers that stay unset are not noticed.
"""

import json

import pytest

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
from tiny_models import tiny_model

from ropewalk.tools.verify.load_target import load_model
from ropewalk.tools.verify.verify_model import verify_model


@pytest.fixture
def folder(tmp_path):
    tiny_model("qwen3", num_hidden_layers=2).save_pretrained(tmp_path)
    return tmp_path


def test_a_loaded_model_is_right_and_buffers_stay_unset_through_the_meta_device(folder):
    right = load_model(folder)
    assert not right.training
    assert verify_model(right, folder).right
    model = load_model(folder, meta=True)
    assert verify_model(model).faults == ("uninitialised-frequencies",)
    model.model.rotary_emb.inv_freq.copy_(right.model.rotary_emb.inv_freq)
    assert verify_model(model).right  # the fix that the likely cause names
    weights = zip(model.parameters(), right.parameters(), strict=True)
    assert all((a == b).all() for a, b in weights)


def test_nothing_is_unpickled(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"pytorch_model\.bin is not read: nothing is unpickled"):
        load_model(folder)


OWN_CODE = {
    "AutoConfig": "configuration_mine.MineConfig",
    "AutoModelForCausalLM": "modeling_mine.MineForCausalLM",
}


def change_config(folder, **fields):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))
    return config


@pytest.mark.parametrize("meta", [False, True])
def test_code_from_the_folder_runs_only_with_leave(folder, meta):
    ran = folder / "ran"
    for module in ("configuration_mine", "modeling_mine"):
        code = f"import pathlib\npathlib.Path({str(ran)!r}).touch()\nraise ImportError\n"
        (folder / f"{module}.py").write_text(code)
    change_config(folder, auto_map=OWN_CODE)
    assert type(load_model(folder, meta=meta)).__name__ == "Qwen3ForCausalLM"
    change_config(folder, model_type="mine")
    with pytest.raises(ValueError, match="model_type"):
        load_model(folder, meta=meta)
    assert not ran.exists()


def test_broken_folders_are_refused_in_one_line(folder, tmp_path_factory):
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(ValueError, match=r"must be a folder with config\.json"):
        load_model(folder / "nothing")
    with pytest.raises(ValueError, match=r"must have a config\.json"):
        load_model(empty)
    (empty / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(ValueError, match=r"must have \*\.safetensors"):
        load_model(empty)
    (folder / "model.safetensors").write_bytes(b"no tensors")
    for meta in (False, True):
        with pytest.raises(ValueError, match="must load with transformers, got") as failure:
            load_model(folder, meta=meta)
        assert "\n" not in str(failure.value)


@pytest.mark.parametrize("meta", [False, True])
def test_code_from_the_folder_runs_with_leave(tmp_path, monkeypatch, meta):
    from transformers import dynamic_module_utils

    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(tmp_path / "cache")
    folder, model = tmp_path / "mine", tiny_model("llama", num_hidden_layers=2)
    model.save_pretrained(folder)
    (folder / "configuration_mine.py").write_text(
        "from transformers import LlamaConfig\n"
        "class MineConfig(LlamaConfig):\n    model_type = 'mine'\n"
    )
    (folder / "modeling_mine.py").write_text(
        "from transformers import LlamaForCausalLM\n"
        "from .configuration_mine import MineConfig\n"
        "class MineForCausalLM(LlamaForCausalLM):\n    config_class = MineConfig\n"
    )
    mine = {"model_type": "mine", "architectures": ["MineForCausalLM"], "auto_map": OWN_CODE}
    config = change_config(folder, **mine)
    loaded = load_model(folder, meta=meta, trust_remote_code=True)
    assert type(loaded).__name__ == "MineForCausalLM"
    faults = ("uninitialised-frequencies",) if meta else ()
    assert verify_model(loaded, config).faults == faults
