"""Change what one object's methods call, without a change to its class or to a module.

The object gets a subclass of its own class, in which methods that call a replaced function are
copies with other globals.
"""

from __future__ import annotations

import dis
import inspect
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from ropewalk.tools.patch.rotation import Rotation, replacement

ROTATES = re.compile("rotary|rope|rotate", re.IGNORECASE)
TABLES = re.compile(r"^(cos|sin|freqs_cis)$")

Place = tuple[str, str]
"""A function by its module and its name there."""


MARK = "class_before_patch"  # an attribute of the classes made here

#: Classes made so far, so that equal layers share one, and a compiler compiles it once.
MADE: dict[tuple[Any, ...], type] = {}


class NotRebindableError(Exception):
    """A class whose calls cannot be replaced, with the reason."""


def own_methods(cls: type) -> Iterator[tuple[type, str, types.FunctionType]]:
    """Return the methods of a class and its bases that are not torch's: owner, name, function."""
    for owner in cls.__mro__:
        if owner is object or owner.__module__.partition(".")[0] == "torch":
            continue
        for name, value in vars(owner).items():
            if isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if isinstance(value, types.FunctionType):
                yield owner, name, value


def rotating_functions(cls: type) -> dict[Place, Callable[..., Any]]:
    """Return the global functions about rotation that a class's methods call.

    Raises NotRebindableError if a method multiplies by cos and sin without such a function, or
    reaches one by `super()`: then a replacement would not be complete.
    """
    found: dict[Place, Callable[..., Any]] = {}
    first_owner: dict[str, type] = {}
    for owner, name, method in own_methods(cls):
        called = {
            place: function for part in _layers(method) for place, function in _called(part).items()
        }
        if first_owner.setdefault(name, owner) is not owner and called:
            raise NotRebindableError(f"{owner.__name__}.{name} is called by super()")
        if not called and any(_multiplies_tables(part.__code__) for part in _layers(method)):
            raise NotRebindableError(f"{owner.__name__}.{name} computes with cos and sin itself")
        found |= called
    return found


def _layers(function: types.FunctionType) -> Iterator[types.FunctionType]:
    """Return a function and those that its decorators wrap."""
    yield function
    for cell in function.__closure__ or ():
        inner = _contents(cell)
        if isinstance(inner, types.FunctionType) and inner is not function:
            yield from _layers(inner)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # still empty
        return None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _called(function: types.FunctionType) -> dict[Place, Callable[..., Any]]:
    found: dict[Place, Callable[..., Any]] = {}
    for code in _codes(function.__code__):
        for name in code.co_names:
            value = function.__globals__.get(name)
            if ROTATES.search(name) and inspect.isroutine(value):
                found[function.__globals__["__name__"], name] = value
    return found


def _multiplies_tables(code: types.CodeType) -> bool:
    """Return whether code has variables named cos or sin, and products: it may rotate itself."""
    return any(
        any(TABLES.search(name) for name in part.co_varnames)
        and any(each.argrepr in ("*", "*=", "@") for each in dis.get_instructions(part))
        for part in _codes(code)
    )


def rotating_class(cls: type, rotations: tuple[tuple[Place, Rotation], ...]) -> type:
    """Return a subclass whose methods rotate by these rotations instead of their own functions."""
    key = rotating_class, cls, rotations
    if key in MADE:
        return MADE[key]
    scope: dict[str, dict[str, Any]] = {}
    methods: dict[str, Any] = {}
    for _, name, method in own_methods(cls):
        if name in methods or not any(_called(part) for part in _layers(method)):
            continue
        static = inspect.getattr_static(cls, name)
        copy = _with_globals(method, dict(rotations), scope)
        is_bound = isinstance(static, (staticmethod, classmethod))
        methods[name] = type(static)(copy) if is_bound else copy
    return subclass(cls, methods, rotating_class, rotations)


def _with_globals(
    function: types.FunctionType,
    rotations: dict[Place, Rotation],
    scope: dict[str, dict[str, Any]],
) -> types.FunctionType:
    """Return a copy of a function, and of those that it wraps, that calls the replacements."""
    module = function.__globals__["__name__"]
    if module not in scope:
        made = {name: replacement(each) for (of, name), each in rotations.items() if of == module}
        scope[module] = {**function.__globals__, **made}
        # With a name, torch.compile would look functions up in the module of that name instead.
        del scope[module]["__name__"]
    cells = []
    for cell in function.__closure__ or ():
        inner = _contents(cell)
        wraps = isinstance(inner, types.FunctionType) and inner is not function
        if wraps and any(_called(part) for part in _layers(inner)):
            cell = types.CellType(_with_globals(inner, rotations, scope))
        cells.append(cell)
    copy = types.FunctionType(
        function.__code__,
        scope[module] if _called(function) else function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(cells) if function.__closure__ is not None else None,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    copy.__qualname__, copy.__doc__ = function.__qualname__, function.__doc__
    copy.__module__ = function.__module__
    return copy


def subclass(cls: type, members: dict[str, Any], maker: Callable[..., type], *args: Any) -> type:
    """Return a subclass with the name of its base, which copies and pickles by its maker."""

    def reduce(self: nn.Module, protocol: Any) -> tuple[Any, ...]:
        return new_object, (maker, cls, *args), self.__dict__

    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    made = {**members, **names, MARK: cls, "__reduce_ex__": reduce}
    return MADE.setdefault((maker, cls, *args), type(cls.__name__, (cls,), made))


def new_object(maker: Callable[..., type], cls: type, *args: Any) -> Any:
    """Return an empty object of a subclass that `maker` makes; pickle fills it."""
    made: Any = maker(cls, *args)
    return made.__new__(made)
