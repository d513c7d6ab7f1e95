"""The contents of a config.json, from wherever they are.

These fail when the same config is read otherwise from a path, a folder, a dictionary or a
transformers config, or when what is no config ends in an error of Python's own.
"""

import json
import re

import pytest
from published import PUBLISHED, in_transformers, ropes

from ropewalk import ModelSpec


@pytest.mark.parametrize("name", ["llama-3.1-8b-instruct", "gemma-3-4b-it", "deepseek-v3"])
def test_path_folder_dictionary_and_object_are_read_alike(name, tmp_path):
    raw = PUBLISHED[name]
    expected = ModelSpec.from_config(raw)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    for config in (
        tmp_path,
        tmp_path / "config.json",
        str(tmp_path),
        str(tmp_path / "config.json"),
    ):
        assert ModelSpec.from_config(config) == expected
    assert ropes(ModelSpec.from_config(in_transformers(name))) == ropes(expected)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{", "config must be a readable JSON file, or"),
        ("", "config.json': it is empty"),
        ("{" * 3, "the text at line 1, column 2 is not JSON"),
        ("[1, 2]", "config must be a JSON object, got list in"),
        ('"llama"', "config must be a JSON object, got str in"),
        (
            '{"rope_theta": 1e4, "rope_theta": 5e5}',
            "rope_theta must be given once, got 10000.0 and 500000.0 in the same object",
        ),
    ],
)
def test_a_file_that_is_no_config(written, message, tmp_path):
    (tmp_path / "config.json").write_text(written)
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(tmp_path)


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


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", "config must be at most 64 objects and"),
        ('{"x": ' + "[" * 70 + "]" * 70 + "}", "config must be at most 64 objects and lists deep"),
        ('{"head_dim": ' + "9" * 5_000 + "}", "it has an integer of too many digits"),
        ('{"a": NaN, "a": 1}', "a must be given once, got nan and 1 in the same object"),
        ('{"model_type": "llama", "rope\\ud800": 1}', "'rope\\ud800' must be absent"),
        ('{"model_type": "\\ud800"}', "got '\\ud800'"),
        (
            '{"model_type": "' + "x" * 300_000 + '"}',
            "model_type must be one with a known pairing",
        ),
        ('{"' + "rope" * 50_000 + '": 1, "model_type": "llama"}', "must be absent"),
    ],
)
def test_a_file_of_no_model(written, message, tmp_path):
    (tmp_path / "config.json").write_text(written)
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        ModelSpec.from_config(tmp_path)
    assert len(str(caught.value)) < 500
    assert str(caught.value).encode()  # no lone surrogate, so that any terminal can show it


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


def test_numbers_of_another_library_are_told_how_to_be_python_numbers():
    class Int64:
        def __index__(self) -> int:
            return 16

        def __repr__(self) -> str:
            return "np.int64(16)"

    message = "got np.int64(16), of type Int64, which is not a Python number; write int("
    for key in ("head_dim", "max_position_embeddings", "rope_theta"):
        with pytest.raises(ValueError, match=re.escape(message + key)):
            ModelSpec.from_config({**PUBLISHED["llama-2-7b"], key: Int64()})


def test_values_that_no_json_has():
    for value in (10**5_000, {1: {"a": 10**5_000}}, [[]] * 3):
        for key in ("head_dim", "rope_scaling", "model_type"):
            with pytest.raises(ValueError, match=r"must|has no field") as caught:
                ModelSpec.from_config({**PUBLISHED["llama-2-7b"], key: value})
            assert len(str(caught.value)) < 500
    looped: dict = {}
    looped["x"] = looped
    with pytest.raises(ValueError, match="config must be at most 64 objects and lists deep"):
        ModelSpec.from_config(looped)
