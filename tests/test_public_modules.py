"""Fail if a public module cannot be imported from, or its names are not those in rotary/."""

from importlib import import_module

import pytest

import ropewalk


@pytest.mark.parametrize("name", ["axes", "interop", "positions", "scaling"])
def test_public_modules_are_those_of_rotary(name):
    public, own = import_module(f"ropewalk.{name}"), import_module(f"ropewalk.rotary.{name}")
    assert getattr(ropewalk, name) is public
    assert public.__all__ == own.__all__
    assert all(getattr(public, word) is getattr(own, word) for word in own.__all__)
