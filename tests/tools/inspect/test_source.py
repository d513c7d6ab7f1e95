"""What `inspect` accepts, and what it answers to files that it cannot read.

These fail if a wrong file ends in another error than ValueError, in more than a line, or after a
long time; and if a name on the hub is asked for although a file has this name.
"""

import json
import sys
import time
from types import SimpleNamespace

import pytest
from published import FOLDER, PUBLISHED

import ropewalk as rw

LLAMA = PUBLISHED["llama-3-8b"]


def test_a_file_its_folder_and_its_contents_are_the_same(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    reports = [rw.tools.inspect(each) for each in (tmp_path, tmp_path / "config.json", LLAMA)]
    assert len({(each.kinds, each.warnings).__repr__() for each in reports}) == 1
    assert reports[0].source.endswith("config.json")


def test_a_folder_with_one_gguf_file(tmp_path):
    from gguf_files import write_gguf

    write_gguf(tmp_path / "model.gguf")
    assert rw.tools.inspect(tmp_path).form == "GGUF"
    write_gguf(tmp_path / "other.gguf")
    with pytest.raises(ValueError, match=r"which has 2 \.gguf files; name one of them"):
        rw.tools.inspect(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"[" * 100_000, "more"),
        (b'{"model_type": 5}', "model_type must be a string"),
        (b"x" * (5 * 2**20), "at most 4,194,304 are allowed"),
    ],
)
def test_bad_json_is_an_error_in_bounded_time(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    start = time.process_time()
    with pytest.raises(ValueError, match=message) as error:
        rw.tools.inspect(path)
    assert time.process_time() - start < 3
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_a_config_with_many_ropes_is_not_read_again_for_each_key():
    """Every layer has a rope of its own; one read is fine, a hundred would take minutes."""
    layers = {str(i): {"rope_theta": 1e4 + i} for i in range(60)}
    config = {"model_type": "granite_swa", "num_hidden_layers": 60, "head_dim": 128}
    config |= {"layer_rope_theta": [1e4 + i for i in range(60)], "per_layer_config": layers}
    config |= {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    start = time.process_time()
    assert len(rw.tools.inspect(config).kinds) == 60
    assert time.process_time() - start < 6


def test_weights_are_refused_by_their_name(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes((2**63).to_bytes(8, "little") + b"{")
    with pytest.raises(ValueError, match="pass the folder that has their"):
        rw.tools.inspect(path)


def test_what_is_not_there_or_not_a_file(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"which has neither a config\.json nor a"):
        rw.tools.inspect(tmp_path / "empty")
    with pytest.raises(ValueError, match="no such file"):
        rw.tools.inspect(tmp_path / "missing.json")
    with pytest.raises(ValueError, match=r"File name too long|no such file"):
        rw.tools.inspect("x" * 5000)
    with pytest.raises(ValueError, match="cannot be the name of a file"):
        rw.tools.inspect("a\0b")
    with pytest.raises(ValueError, match="a name on the hub, got ''"):
        rw.tools.inspect("")
    with pytest.raises(TypeError, match="config must be a path"):
        rw.tools.inspect(5)


@pytest.mark.parametrize("name", ["config.json", "model.gguf"])
def test_a_file_without_permission(tmp_path, name, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    path = tmp_path / name
    path.write_text("{}")
    path.chmod(0)  # root may read it all the same
    for place in ("os.open", "io.open"):
        monkeypatch.setattr(place, refuse)
    with pytest.raises(ValueError, match=f"{name}: .*ermission") as error:
        rw.tools.inspect(path)
    monkeypatch.undo()
    assert "\n" not in str(error.value)


class Hub:
    """A stand-in for huggingface_hub: what it has cached, and what it could download."""

    def __init__(self, cached=None, online=None, size=1000):
        self.cached, self.online, self.size, self.downloads = cached, online, size, 0

    def hf_hub_download(self, name, file, *, local_files_only=False, etag_timeout=None):
        assert (name, file) == ("org/model", "config.json")
        if local_files_only and self.cached is None:
            raise OSError("not cached")
        self.downloads += not local_files_only
        return str(self.cached or self.online)

    def hf_hub_url(self, name, file):
        return f"https://hub/{name}/{file}"

    def get_hf_file_metadata(self, url, *, timeout):
        assert timeout <= 10
        if self.online is None:
            raise ConnectionError("no network\nand more")
        return SimpleNamespace(size=self.size)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def use(**kwargs):
        made = Hub(**kwargs)
        monkeypatch.setitem(sys.modules, "huggingface_hub", made)
        return made

    return use


def test_a_name_on_the_hub(hub):
    made = hub(online=FOLDER / "llama-3-8b.json")
    report = rw.tools.inspect("org/model")
    assert (report.source, report.model_type) == ("org/model", "llama")
    assert made.downloads == 1
    made = hub(cached=FOLDER / "llama-3-8b.json")
    assert rw.tools.inspect("org/model").model_type == "llama"
    assert made.downloads == 0


def test_a_file_goes_before_the_hub(hub, tmp_path):
    hub()
    (tmp_path / "org" / "model").mkdir(parents=True)
    (tmp_path / "org" / "model" / "config.json").write_text(json.dumps(LLAMA))
    assert rw.tools.inspect("org/model").source == "org/model/config.json"


def test_a_hub_that_does_not_answer_or_has_too_much(hub, monkeypatch):
    hub()
    with pytest.raises(ValueError, match=r"cannot be read from the hub \('no network'\)"):
        rw.tools.inspect("org/model")
    made = hub(online=FOLDER / "llama-3-8b.json", size=2**40)
    with pytest.raises(ValueError, match="at most 4,194,304 bytes are allowed"):
        rw.tools.inspect("org/model")
    assert made.downloads == 0
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install .*\[hub\]"):
        rw.tools.inspect("org/model")
