"""`help(...)` of every public name shows an example, and every example prints what it says.

These fail if a public name has no docstring or no example, and if an example raises or prints
something else.
"""

import doctest
import importlib
import inspect

import pytest

PUBLIC_MODULES = [
    "ropewalk",
    "ropewalk.scaling",
    "ropewalk.axes",
    "ropewalk.positions",
    "ropewalk.interop",
    "ropewalk.encodings",
    "ropewalk.model",
    "ropewalk.tools",
    "ropewalk.figures",
    "ropewalk.testing",
]


def public_names(module_name: str) -> dict[str, object]:
    """Return the classes and functions that a public module offers, by full name."""
    head, _, last = module_name.partition(".")
    package = importlib.import_module(head)
    module = package
    if last:
        found = getattr(package, last, None)
        module = found if inspect.ismodule(found) else importlib.import_module(module_name)
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    found = {name: getattr(module, name) for name in names}
    return {
        f"{module_name}.{name}": value
        for name, value in found.items()
        if inspect.isclass(value) or inspect.isfunction(value)
    }


PUBLIC = {name: value for module in PUBLIC_MODULES for name, value in public_names(module).items()}


def test_public_names_are_found():
    assert {
        "ropewalk.RotarySpec",
        "ropewalk.rotate",
        "ropewalk.scaling.YaRN",
        "ropewalk.positions.packed",
        "ropewalk.encodings.build",
        "ropewalk.model.Attention",
    } <= PUBLIC.keys()


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_that_runs(name):
    value = PUBLIC[name]
    assert inspect.getdoc(value), f"{name} has no docstring"
    home = inspect.getmodule(value)
    tests = doctest.DocTestFinder(recurse=False).find(value, name, home, globs={})
    examples = [test for test in tests if test.examples]
    assert examples, f"{name} has no example"
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if any("transformers" in line.source for test in examples for line in test.examples):
        pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
    for test in examples:
        report: list[str] = []
        result = doctest.DocTestRunner(optionflags=flags).run(test, out=report.append)
        assert not result.failed, "".join(report)
