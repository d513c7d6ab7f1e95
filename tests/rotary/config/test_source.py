"""The contents of a config.json, from wherever they are.

These fail when the same config is read otherwise from a path, a folder, a dictionary or a
transformers config, when what is no config ends in an error of Python's own, and when a config that
is small or refused takes more than 2 s of CPU or 500 MB.
"""

import json
import os
import re
import sys
from contextlib import nullcontext

import pytest
from bounds import bounded
from published import PUBLISHED, changed, in_transformers, published_spec, ropes

from ropewalk import ModelSpec
from ropewalk.rotary.config.config_json import MAX_BYTES


@pytest.mark.parametrize("name", ["llama-3.1-8b-instruct", "gemma-3-4b-it", "deepseek-v3"])
def test_path_folder_dictionary_and_object_are_read_alike(name, tmp_path):
    expected, file = published_spec(name), tmp_path / "config.json"
    file.write_text(json.dumps(PUBLISHED[name]))
    for config in (tmp_path, file, str(tmp_path), str(file)):
        assert ModelSpec.from_config(config) == expected
    assert ropes(ModelSpec.from_config(in_transformers(name))) == ropes(expected)


FILES = [
    ("{", "config must be a readable JSON file, or"),
    ("", "config.json': it is empty"),
    ("{" * 3, "the text at line 1, column 2 is not JSON"),
    ("[1, 2]", "config must be a JSON object, got list in"),
    ('"llama"', "config must be a JSON object, got str in"),
    (
        '{"rope_theta": 1e4, "rope_theta": 5e5}',
        "rope_theta must be given once, got 10000.0 and 500000.0 in the same object",
    ),
    ('{"a": NaN, "a": 1}', "a must be given once, got nan and 1 in the same object"),
    ('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", "config must be at most 64 objects and"),
    ('{"x": ' + "[" * 70 + "]" * 70 + "}", "config must be at most 64 objects and lists deep"),
    ('{"head_dim": ' + "9" * 5_000 + "}", "it has an integer of too many digits"),
    ('{"model_type": "llama", "rope\\ud800": 1}', "'rope\\ud800' must be a key that is known"),
    ('{"model_type": "\\ud800"}', "got '\\ud800'"),
    ('{"model_type": "' + "x" * 300_000 + '"}', "model_type must be one with a known pairing"),
    ('{"' + "rope" * 50_000 + '": 1, "model_type": "llama"}', "a key that is known"),
]


@pytest.mark.parametrize(("written", "message"), FILES)
def test_a_file_of_no_model(written, message, tmp_path):
    (tmp_path / "config.json").write_text(written)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        ModelSpec.from_config(tmp_path)
    assert len(str(caught.value)) < 500
    assert str(caught.value).encode()  # no lone surrogate, so that any terminal can show it


def test_no_file(tmp_path):
    for config in (tmp_path, tmp_path / "other.json", str(tmp_path / "config.json")):
        with pytest.raises(
            ValueError, match=r"must be a config.json or its folder, got .* no such"
        ):
            ModelSpec.from_config(config)
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"config must be a config.json .* not UTF-8 at byte 0"):
        ModelSpec.from_config(tmp_path)


@pytest.mark.parametrize("config", [None, 3, ["llama"], ModelSpec])
def test_what_is_no_config(config):
    with pytest.raises(TypeError, match="config must be a path, a dictionary or a transformers"):
        ModelSpec.from_config(config)


def test_a_nan_that_stands_twice_is_no_contradiction(tmp_path):
    text = json.dumps(PUBLISHED["llama-2-7b"])[:-1] + ', "a": NaN, "a": NaN}'
    (tmp_path / "config.json").write_text(text)
    assert ModelSpec.from_config(tmp_path).model_type == "llama"


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "x" * 300_000, "a/" * 3_000])
def test_a_path_of_no_file(path):
    with pytest.raises(
        ValueError, match=r"config must be a config.json or its folder, got"
    ) as caught:
        ModelSpec.from_config(path)
    assert len(str(caught.value)) < 500
    assert str(caught.value).encode()
    assert repr(path)[1:5].strip("'") in str(caught.value)


def test_what_models_have_is_far_within_the_bounds():
    config = changed("llama-2-7b", {"rope_theta": 1e9, "num_hidden_layers": 1_000})
    config["per_layer_config"] = {str(i): {"rope_theta": 1e4 + i % 100} for i in range(10_000)}
    layers = ModelSpec.from_config(config).layers
    assert len({id(layer) for layer in layers}) == 100
    config = changed("llama-2-7b", {"head_dim": 4_096})
    assert ModelSpec.from_config(config).layer(0).rope.pairs == 2_048


MANY_LAYERS = {"per_layer_config": {str(i): {} for i in range(200_000)}}
LARGE = {
    "objects": lambda: '{"x": [' + "{}," * 1_300_000 + "{}]}",
    "layers": lambda: json.dumps(PUBLISHED["llama-2-7b"] | MANY_LAYERS),
    "deep": lambda: '{"x": ' + "[" * 4_000_000,
    "too large": lambda: '{"x": 1}' + " " * MAX_BYTES,
    "doubled": lambda: "{" + '"x": [1, 2],' * 250_000 + '"x": 3}',
    "keys": lambda: "{" + ",".join(f'"rope{i}": 0' for i in range(250_000)) + "}",
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of Linux")
@pytest.mark.parametrize("name", LARGE)
def test_a_large_file_takes_at_most_two_seconds_and_500_mb(name, tmp_path):
    path = tmp_path / "large.json"
    path.write_text(LARGE[name]())
    refused = nullcontext() if name == "layers" else pytest.raises(ValueError, match="must")
    with bounded(), refused:
        ModelSpec.from_config(path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs files of Linux")
def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"config must .* a pipe, not a regular file"):
        ModelSpec.from_config(tmp_path / "pipe")
    for device in ("/dev/zero", "/dev/null"):
        with pytest.raises(ValueError, match=r"a device, not a regular file"):
            ModelSpec.from_config(device)
