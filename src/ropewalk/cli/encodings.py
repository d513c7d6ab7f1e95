"""`ropewalk encodings`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ropewalk.checks import shown
from ropewalk.cli.common import errors, import_all
from ropewalk.cli.listing import print_rows, summary
from ropewalk.cli.options import Imports


def encodings(imports: Imports = None) -> None:
    """List every encoding with its arguments and their defaults.

    Includes the encodings of --import and of installed packages. Write arguments in parentheses,
    as in rotary(theta=1e6). Join encodings by + to use them together, as in sinusoidal+rotary.
    With cross=True, an encoding that acts in attention acts in cross-attention too.
    """
    with errors():
        from ropewalk.encodings import REGISTRY
        from ropewalk.encodings.outside import add_installed, installed_names

        import_all(imports)
        broken = {}
        for name in installed_names():
            if name not in REGISTRY:
                try:
                    add_installed(name, REGISTRY)
                except ValueError as error:
                    broken[name] = str(error)
        rows = [row for name, made in REGISTRY.items() for row in _rows(name, made)]
        print_rows([*rows, *broken.items()])


def _rows(name: str, made: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    documented = made
    while isinstance(documented, partial):  # its own docstring is that of functools.partial
        documented = documented.func
    yield name, summary(documented.__doc__)
    arguments = ", ".join(_arguments(made))
    if arguments:
        yield "", arguments


def _arguments(made: Callable[..., Any]) -> Iterator[str]:
    try:
        parameters = list(inspect.signature(made).parameters.values())
    except ValueError:  # a callable in C may have no signature
        return
    for each in parameters[1:]:  # the first is the shape
        if each.kind is each.VAR_KEYWORD:
            yield f"and the {each.name.replace('_', ' ')}"  # as "fields of rule"
        elif each.default is each.empty:
            yield f"{each.name} (must be given)"
        else:
            default = each.default
            yield f"{each.name}={default if isinstance(default, str) else shown(default, 40)}"
