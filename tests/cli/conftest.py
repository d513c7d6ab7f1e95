"""A mistake on the command line."""

import pytest


@pytest.fixture
def mistake(command):
    """Run a command that is wrong: what it says, in one line on standard error, with status 2."""

    def run(*words):
        status, out, err = command(*words)
        assert (status, out) == (2, ""), words
        assert err.startswith("ropewalk: "), words
        assert err.count("\n") == 1, words
        assert err.rstrip("\n").isprintable(), words
        return err

    return run
