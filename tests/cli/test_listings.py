"""Listings of encodings, tasks and fields.

These fail if a name of the library is not listed, is listed twice or without a description, if a
listed default is not the real one, or if a line is longer than 100 characters.
"""

import json
import re
from importlib.metadata import EntryPoint

import pytest

from ropewalk.cli.messages import print_rows, summary
from ropewalk.encodings import REGISTRY, outside, parse
from ropewalk.lab.config import Config
from ropewalk.lab.config_sources import make_config, read_setting
from ropewalk.lab.presets import PRESETS, TASKS, fields_of_other_tasks, presets_of
from ropewalk.lab.tasks import CLASSES

OWN_ENCODING = """
from functools import partial
from ropewalk.encodings import REGISTRY, Encoding

class Mine(Encoding):
    def __init__(self, shape, size, mode="a\\x1b[2J"):
        super().__init__()

def doubled(shape, factor=2):
    '''Double `what` is there.

    Further words.
    '''
    return Encoding()

REGISTRY["mine"] = Mine
REGISTRY["doubled"] = doubled
REGISTRY["tripled"] = partial(doubled, factor=3)
"""


@pytest.fixture
def lines(command):
    """Return what a command of these words prints, line by line; it must succeed."""

    def run(*words):
        status, out, err = command(*words)
        assert (status, err) == (0, "")
        assert all(len(line) <= 100 and line.isprintable() for line in out.splitlines())
        return out.splitlines()

    return run


@pytest.fixture
def registry(monkeypatch):
    """Keep what a test adds to the registry out of the others."""
    before = dict(REGISTRY)
    monkeypatch.setattr(outside, "_imported", {})
    monkeypatch.setattr(outside, "_brought", {})
    yield REGISTRY
    REGISTRY.clear()
    REGISTRY.update(before)


def named(lines):
    """Return the lines that start with a name, by name; each name must have one."""
    found = [line for line in lines if line and not line.startswith(" ")]
    by_name = {re.match(r"[\w-]+", line)[0]: line for line in found}
    assert len(by_name) == len(found)
    return by_name


def test_every_encoding_is_listed_once_with_a_description(lines):
    listed = named(lines("encodings"))
    assert list(listed) == list(REGISTRY)
    for name, line in listed.items():
        assert len(line.removeprefix(name).split()) >= 3, line


def test_json_lists_the_same(command):
    found = [json.loads(command(each, "--json")[1]) for each in ("encodings", "tasks", "fields")]
    assert [[next(iter(row.values())) for row in rows] for rows in found[:2]] == [
        list(REGISTRY),
        list(CLASSES),
    ]
    (alibi,) = [row for row in found[0] if row["encoding"] == "alibi"]
    assert alibi["arguments"] == ["symmetric=True"]
    defaults = {row["field"]: row["default"] for row in found[2]}
    assert defaults.keys() == Config.model_fields.keys()
    assert (defaults["kv_heads"], defaults["epochs"]) == (None, 1.3)


def test_listed_arguments_can_be_given(lines):
    listed = lines("encodings")
    names = [line.split()[0] for line in listed if not line.startswith(" ")]
    starts = [listed.index(line) for line in listed if not line.startswith(" ")]
    given = 0
    for name, start, end in zip(names, starts, [*starts[1:], None], strict=True):
        for argument in re.findall(r"(\w+=[^,\s]+)(?:,|$)", " ".join(listed[start + 1 : end])):
            assert parse(f"{name}({argument})")
            given += 1
    assert given > 20
    assert "theta=10000.0" in " ".join(listed)


def test_encodings_of_the_user_are_listed(lines, registry, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(OWN_ENCODING)
    listed = [" ".join(line.split()) for line in lines("encodings", "--import", file)]
    assert listed[-6:] == [
        "mine (no description)",
        "size (must be given), mode=a\\x1b[2J",
        "doubled Double what is there.",
        "factor=2",
        "tripled Double what is there.",
        "factor=3",
    ]


def test_encodings_of_installed_packages_are_listed(lines, registry, monkeypatch):
    group = outside.GROUP
    points = [
        EntryPoint("offered", "ropewalk.encodings.absolute:Sinusoidal", group),
        EntryPoint("broken", "no_such_module:thing", group),
    ]

    def entry_points(group, name=None):
        return [point for point in points if name in (None, point.name)]

    monkeypatch.setattr(outside, "entry_points", entry_points)
    listed = named(lines("encodings"))
    assert listed["offered"].endswith(listed["sinusoidal"].removeprefix("sinusoidal").strip())
    assert "no_such_module:thing" in listed["broken"]


def test_every_task_is_listed_once_with_its_data_and_score(lines):
    head, *rest = lines("tasks")
    assert head.split() == ["TASK", "DATA", "SCORE", "DESCRIPTION"]
    listed = named(rest)
    assert list(listed) == list(TASKS)
    starts = [head.index(title) for title in head.split()]
    for task, line in listed.items():
        _, data, score, what = (
            line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)
        )
        generated = "data" in fields_of_other_tasks(task)
        assert data == ("generated" if generated else make_config(settings={"task": task}).data)
        assert score == CLASSES[task].metrics[0].name
        assert what


def test_every_field_is_listed_once_with_a_description(lines):
    listed = named(lines("fields"))
    assert set(listed) == set(Config.model_fields)
    for line in listed.values():
        setting, _, described = line.partition("  ")
        assert re.fullmatch(r"\w+=\S+", setting)
        assert described.strip(), line


@pytest.mark.parametrize(
    ("task", "preset"),
    [*(("translation", preset) for preset in PRESETS), ("masked-lm", "quick"), ("sort", "default")],
)
def test_listed_defaults_are_those_of_the_preset(task, preset, lines):
    listed = lines("fields", "--task", task, "--preset", preset)
    settings = dict(read_setting(line.split("  ")[0]) for line in listed if line[0] != " ")
    assert settings.keys() == Config.model_fields.keys() - fields_of_other_tasks(task)
    settings.pop("preset")
    given = Config.model_validate({**settings, "preset": preset})
    assert given == make_config(preset, None, {"task": task})


def test_a_rule_is_listed_where_it_fits(lines):
    listed = named(lines("fields"))
    assert listed["beam"].endswith("(an integer from 1 to 100)")
    assert listed["schedule"].endswith("(linear or noam)")


@pytest.mark.parametrize("task", TASKS)
def test_a_task_has_the_presets_that_are_named(task):
    for preset in PRESETS:
        if preset in presets_of(task):
            assert make_config(preset, None, {"task": task}).preset == preset
        else:
            with pytest.raises(ValueError, match=f"must be default or quick for task '{task}'"):
                make_config(preset, None, {"task": task})


def test_rows_are_aligned_and_wrapped(capsys):
    print_rows([("a", "1", "x " * 60), ("long", "22", ""), ("y" * 50, "3", "end\x1b[2J")])
    assert capsys.readouterr().out.splitlines() == [
        f"a{' ' * 41}1   {'x ' * 26}x",
        f"{' ' * 46}{'x ' * 26}x",
        f"{' ' * 46}{'x ' * 5}x",
        f"long{' ' * 38}22",
        f"{'y' * 50}  3   end\\x1b[2J",
    ]


def test_the_summary_is_the_first_line():
    assert summary("Add ``a`` to `b`.\n\n    More.") == "Add a to b."
    assert summary(None) == summary(" ") == "(no description)"
