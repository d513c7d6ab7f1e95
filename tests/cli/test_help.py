"""The help of every command.

These fail if an option or argument has no description or shows a Python type for a metavar, if the
list of commands cuts a description, or if a line is longer than 100 characters.
"""

import re

import pytest
import typer

from ropewalk.cli.app import app

GROUP = typer.main.get_command(app)


@pytest.fixture
def help_of(monkeypatch, command):
    def run(*words, columns=100):
        monkeypatch.setenv("COLUMNS", str(columns))
        status, text, err = command(*words, "--help")
        assert (status, err) == (0, "")
        assert max(map(len, text.splitlines())) <= 100
        return text

    return run


def test_the_list_of_commands_is_complete_and_not_cut(help_of):
    text = help_of()
    listed = dict(re.findall(r"^  ([a-z]+)  +(\S.*)$", text[text.index("Commands:") :], re.M))
    assert listed.keys() == GROUP.commands.keys()
    assert all(what.endswith(".") and not what.endswith("...") for what in listed.values())
    assert "..." not in help_of(columns=80).partition("Commands:")[2]


@pytest.mark.parametrize("name", GROUP.commands)
def test_every_option_has_a_metavar_and_a_description(name, help_of):
    text = help_of(name)
    assert not re.search(r"<\w|list\[|\bstr\b|None", text)
    shown = " ".join(re.sub(r"-\n +", "-", text).split())
    for parameter in GROUP.commands[name].params:
        assert parameter.help.strip()
        assert " ".join(parameter.help.split()) in shown
        if parameter.param_type_name == "option" and not parameter.is_flag:
            metavar = parameter.metavar
            assert re.match(r"[A-Z]+", metavar)
            assert f"{parameter.opts[-1]} {metavar} " in shown


def test_usage_marks_what_may_be_left_out(help_of):
    assert help_of("translate").startswith("Usage: ropewalk translate [OPTIONS] MODEL [FILE]\n")
    assert help_of("tune").startswith("Usage: ropewalk tune [OPTIONS] RUN FIELD=VALUE,VALUE...\n")
    assert help_of("train").startswith("Usage: ropewalk train [OPTIONS] [FIELD=VALUE]...\n")
