"""`ropewalk catalogue` shows what the catalogue has.

These fail if a model type is not listed, if a fact of an entry is not shown, if JSON has anything
else on standard output, or if an unknown type is not one line with the nearest name.
"""

import dataclasses
import json

import pytest

from ropewalk import tools
from ropewalk.tools.catalogue import read_data


@pytest.fixture
def shown(command):
    """Return what the command prints; it must succeed."""

    def run(*words):
        status, out, err = command("catalogue", *words)
        assert (status, err) == (0, "")
        return out

    return run


def test_every_model_type_is_listed_once(shown):
    head, *lines = shown().splitlines()
    assert head.split() == ["MODEL", "TYPE", "PAIRING", "ROTATES", "THETA", "AXES"]
    names = [line.split()[0] for line in lines if not line.startswith(" ")]
    assert names == [entry.model_type for entry in tools.catalogue()]
    assert max(map(len, lines)) <= 100
    by_name = {line.split()[0]: line.split() for line in lines}
    assert by_name["deepseek_v3"][1:] == ["interleaved→half", "last", "10000", "one"]
    assert by_name["phi"][1:] == ["half", "first", "0.5", "10000", "one"]
    assert by_name["bert"][1:] == ["-", "-", "-", "no", "rope"]


@pytest.mark.parametrize("name", ["llama", "deepseek_v4", "qwen2_vl", "falcon", "bert", "clvp"])
def test_an_entry_is_shown_in_full(name, shown):
    text = " ".join(shown(name).split())
    entry = tools.catalogue(name)
    assert entry.source in text
    assert (entry.reason or "") in text
    if entry.rope is not None:
        fields = [field.name for field in dataclasses.fields(entry.rope)]
        assert all(f" rope.{field}" in text for field in fields)
        assert ", ".join(entry.rope.vectors) in text


def test_the_stacks_of_a_model_are_shown_too(shown):
    text = " ".join(shown("qwen2_vl").split())
    assert "sections.text.path text_config" in text
    assert "model_type qwen2_vl_text kind rope" in text
    assert "model_type qwen2_vl_vision kind rope" in text


def test_json_is_the_data(shown):
    assert json.loads(shown("--json")) == read_data("catalogue")
    facts = read_data("catalogue")["model_types"]["olmo3"]
    assert json.loads(shown("olmo3", "--json")) == {"model_type": "olmo3", **facts}


def test_an_unknown_type_is_one_line_with_the_nearest_name(mistake):
    assert mistake("catalogue", "deepseek_v3_") == (
        "ropewalk: model_type must be one that the catalogue has, got 'deepseek_v3_'; "
        "did you mean 'deepseek_v3'?\n"
    )
    assert mistake("catalogue", "a\x1b[2J" * 1000)
