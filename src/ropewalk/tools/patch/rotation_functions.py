"""What a model's functions that rotate q and k do, and how one object calls others instead.

A function is known by calling it on random numbers. The object gets a subclass of its own class, in
which methods that call a replaced function are copies with other globals; neither its class nor a
Python module changes.

Axes: B batch, H heads, S sequence, D head_dim, R rotary_dim.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import re
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from ropewalk.rotary.interop import to_freqs_cis, to_transformers
from ropewalk.rotary.kernels import operator
from ropewalk.rotary.pairing import PAIRINGS, Pairing
from ropewalk.rotary.reference import Layout, rotate_reference
from ropewalk.rotary.rotate import check_tables
from ropewalk.rotary.tables import Tables

TableForm = Literal["half", "interleaved", "once", "complex"]
"""Columns of a model's tables: each frequency twice, in halves or next to each other (cos and sin
of R columns); once (R/2 columns); or once as complex numbers."""

TABLE_FORMS: tuple[TableForm, ...] = ("half", "interleaved", "once", "complex")
SIZES = B, H, S, R = 2, 3, 5, 8
TOLERANCE = 1e-5  # float32 rounding of random numbers is about 1e-6


def as_model_has_them(tables: Tables, form: TableForm) -> tuple[Tensor, ...]:
    """Return tables (…, S, R/2) with the columns of a form: (cos, sin), or one complex tensor."""
    if form == "complex":
        return (to_freqs_cis(*tables),)
    return tables if form == "once" else to_transformers(*tables, pairing=form)


@dataclass(frozen=True)
class Rotation:
    """How a function rotates the tensors that it is called with.

    parameters: names of its parameters, in order. form: of the tables that it takes. trailing: the
    last R dimensions of a wider head rotate, not the first. reverse: by the negative angle.
    seq_dim: as `rotate` has it.
    """

    parameters: tuple[str, ...]
    form: TableForm
    pairing: Pairing
    write_pairing: Pairing
    reverse: bool = False
    trailing: bool = False
    seq_dim: int = -2

    def apply(
        self, xs: Sequence[Tensor], cos: Tensor, sin: Tensor, unsqueeze_dim: int | None = None
    ) -> Sequence[Tensor]:
        """Rotate tensors by tables of the form (B, S, R or R/2), in one call.

        unsqueeze_dim: the axis of heads, 1 or 2, or None for the function's own.
        """
        if unsqueeze_dim is not None and unsqueeze_dim not in (1, 2):
            raise ValueError(f"unsqueeze_dim must be 1 or 2, where heads are, got {unsqueeze_dim}")
        seq_dim = {None: self.seq_dim, 1: -2, 2: -3}[unsqueeze_dim]
        cos, sin = (_each_once(table, self.form) for table in (cos, sin))
        for x in xs:
            check_tables(cos, sin, x, seq_dim)
        if self.reverse:
            sin = -sin
        return operator.dispatch(xs, cos, sin, self._layout(xs[0], cos, seq_dim))

    def of(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate x (B, H, S, D) by tables (B, S, R/2), by the plain formula."""
        sin = -sin if self.reverse else sin
        return rotate_reference(x, cos, sin, self._layout(x, cos, -2))

    def _layout(self, x: Tensor, cos: Tensor, seq_dim: int) -> Layout:
        start = x.shape[-1] - 2 * cos.shape[-1] if self.trailing else 0
        return Layout.of(self.pairing, self.write_pairing, start, seq_dim)


def _each_once(table: Tensor, form: TableForm) -> Tensor:
    """Return a view of a model's table with one column for each pair: (S, R/2) or (B, S, R/2).

    A table in half precision is widened: it is one that the model computed itself.
    """
    if form == "half":
        table = table[..., : table.shape[-1] // 2]
    elif form == "interleaved":
        table = table[..., ::2]
    if table.ndim == 3 and table.shape[0] == 1:  # all sequences have the same positions
        table = table[0]
    return table if table.dtype in (torch.float32, torch.float64) else table.float()


#: The names of the parameters that models' functions have.
PARAMETERS = (
    ("q", "k", "cos", "sin", "unsqueeze_dim"),
    ("q", "k", "cos", "sin", "position_ids", "unsqueeze_dim"),
    ("x", "cos", "sin", "unsqueeze_dim"),
    ("tensor", "sin", "cos"),
    ("xq", "xk", "freqs_cis"),
)


def measure(function: Callable[..., Any], form: TableForm) -> Rotation | None:
    """Return what a function does with tables of a form, or None if it is no known rotation.

    It is called on random numbers. If it takes heads wider than R, their other dimensions must stay
    as they are.
    """
    parameters = tuple(inspect.signature(function).parameters)
    if parameters not in PARAMETERS:
        return None
    generator = torch.Generator().manual_seed(0)
    angles = random_numbers((B, S, R // 2), generator) * 3
    tables = angles.cos(), angles.sin()
    given = as_model_has_them(tables, form)
    if (len(given) == 1) != (parameters[-1] == "freqs_cis"):
        return None
    possible = [
        Rotation(parameters, form, read, write, reverse, trailing, seq_dim)
        for seq_dim, trailing, reverse, write, read in itertools.product(
            (-2, -3), (False, True), (False, True), PAIRINGS, PAIRINGS
        )
    ]
    for width in (R, R + 4):
        xs = tuple(random_numbers((B, heads, S, width), generator) for heads in (H, 1))
        answers = {
            seq_dim: _answer(function, parameters, xs, given, seq_dim) for seq_dim in (-2, -3)
        }
        if width > R and all(answer is None for answer in answers.values()):
            break  # it takes only dimensions that rotate
        possible = [each for each in possible if _is_as(each, answers[each.seq_dim], xs, tables)]
    return possible[0] if possible else None


def random_numbers(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return random numbers, whatever the user's default dtype and device are."""
    return torch.randn(shape, generator=generator, dtype=torch.float32, device="cpu")


def _answer(
    function: Callable[..., Any],
    parameters: tuple[str, ...],
    xs: tuple[Tensor, ...],
    tables: tuple[Tensor, ...],
    seq_dim: int,
) -> tuple[Tensor, ...] | None:
    """Return what is rotated as (B, H, S, D), or None if the function takes no such tensors."""
    if parameters[0] not in ("q", "xq"):
        xs = xs[:1]
    if seq_dim == -3:
        xs = tuple(x.transpose(1, 2).contiguous() for x in xs)
    if parameters[1] == "sin":
        tables = tables[::-1]
    try:
        with torch.no_grad():
            rotated = function(*xs, *tables)
    except Exception:  # code of a model may raise anything for a shape that it does not expect
        return None
    rotated = (rotated,) if isinstance(rotated, Tensor) else tuple(rotated)
    if [y.shape for y in rotated] != [x.shape for x in xs]:
        return None
    return tuple(y.transpose(1, 2) for y in rotated) if seq_dim == -3 else rotated


def _is_as(
    rotation: Rotation, answers: tuple[Tensor, ...] | None, xs: tuple[Tensor, ...], tables: Tables
) -> bool:
    if answers is None:
        return False
    pairs = zip(answers, xs, strict=False)  # a function of one tensor has one answer
    return all(bool((y - rotation.of(x, *tables)).abs().max() < TOLERANCE) for y, x in pairs)


@lru_cache(maxsize=256)
def replacement(rotation: Rotation) -> Callable[..., Any]:
    """Return the function that does the same by the kernel, with the same parameters."""
    apply = rotation.apply

    def of_two(
        q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
    ) -> Any:
        if k is None:
            return apply((q,), cos, sin, unsqueeze_dim)[0], None
        return tuple(apply((q, k), cos, sin, unsqueeze_dim))

    functions: tuple[Callable[..., Any], ...] = (
        of_two,
        lambda q, k, cos, sin, position_ids=None, unsqueeze_dim=1: of_two(
            q, k, cos, sin, unsqueeze_dim
        ),
        lambda x, cos, sin, unsqueeze_dim=1: apply((x,), cos, sin, unsqueeze_dim)[0],
        lambda tensor, sin, cos: apply((tensor,), cos, sin)[0],
        lambda xq, xk, freqs_cis: tuple(apply((xq, xk), freqs_cis.real, freqs_cis.imag)),
    )
    return functions[PARAMETERS.index(rotation.parameters)]


ROTATES = re.compile("rotary|rope|rotate", re.IGNORECASE)
TABLES = re.compile(r"^(cos|sin|freqs_cis)$")
GLOBAL_READS = ("LOAD_GLOBAL", "LOAD_NAME")
Place = tuple[str, str]
"""A function by its module and its name there."""

MARK = "class_before_patch"  # an attribute of the classes made here

#: Classes made so far, so that equal layers share one, and a compiler compiles it once. The key has
#: all that a class was made from: functions may be replaced between two patches.
MADE: WeakValueDictionary[tuple[Any, ...], type] = WeakValueDictionary()


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
    reaches one by `super()`, or if the class pickles itself: then a replacement would not be
    complete.
    """
    if any("__reduce__" in vars(c) or "__reduce_ex__" in vars(c) for c in cls.__mro__[:-1]):
        raise NotRebindableError(f"{cls.__name__} has its own way to be copied")
    found: dict[Place, Callable[..., Any]] = {}
    first: dict[str, types.FunctionType] = {}
    for owner, name, method in own_methods(cls):
        called = {
            place: function
            for part in unwrapped(method)
            for place, function in _called(part).items()
        }
        overriding = first.setdefault(name, method)
        if overriding is not method:
            reached = "__class__" in overriding.__code__.co_freevars  # it calls super()
            if reached and called:
                raise NotRebindableError(f"{cls.__name__}.{name} rotates by super()")
            continue
        if not called and any(_multiplies_tables(part.__code__) for part in unwrapped(method)):
            raise NotRebindableError(f"{owner.__name__}.{name} computes with cos and sin itself")
        found |= called
    return found


def unwrapped(function: types.FunctionType) -> Iterator[types.FunctionType]:
    """Return a function and those that its decorators wrap."""
    yield function
    for cell in function.__closure__ or ():
        if (inner := _wrapped(cell, function)) is not None:
            yield from unwrapped(inner)


def _wrapped(cell: types.CellType, outer: types.FunctionType) -> types.FunctionType | None:
    """Return the function in a cell of another's closure, if there is one."""
    try:
        inner = cell.cell_contents
    except ValueError:  # still empty
        return None
    return inner if isinstance(inner, types.FunctionType) and inner is not outer else None


def code_parts(code: types.CodeType) -> Iterator[types.CodeType]:
    """Return a code, and those of the functions that it defines."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_parts(constant)


def _called(function: types.FunctionType) -> dict[Place, Callable[..., Any]]:
    found: dict[Place, Callable[..., Any]] = {}
    module = function.__globals__.get("__name__", "")
    for code in code_parts(function.__code__):
        for name in global_names(code):
            value = function.__globals__.get(name)
            if ROTATES.search(name) and inspect.isroutine(value):
                found[module, name] = value
    return found


@lru_cache(maxsize=1024)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names that code reads as globals; other names may be attributes."""
    names = (each.argval for each in dis.get_instructions(code) if each.opname in GLOBAL_READS)
    return tuple(dict.fromkeys(names))


def _multiplies_tables(code: types.CodeType) -> bool:
    """Return whether code has variables named cos or sin, and products: it may rotate itself."""
    return any(
        any(TABLES.search(name) for name in part.co_varnames)
        and any(each.argrepr in ("*", "*=", "@") for each in dis.get_instructions(part))
        for part in code_parts(code)
    )


def rotating_class(cls: type, rotations: tuple[tuple[Place, Rotation], ...]) -> type:
    """Return a subclass whose methods rotate by these rotations instead of their own functions."""
    scope: dict[str, dict[str, Any]] = {}
    methods: dict[str, Any] = {}
    for _, name, method in own_methods(cls):
        if name in methods or not any(_called(part) for part in unwrapped(method)):
            continue
        static = inspect.getattr_static(cls, name)
        copy = _with_globals(method, dict(rotations), scope)
        is_bound = isinstance(static, (staticmethod, classmethod))
        methods[name] = type(static)(copy) if is_bound else copy
    return subclass(cls, methods, rotating_class, rotations)


def _with_globals(
    function: types.FunctionType, rotations: dict[Place, Rotation], scope: dict[str, dict[str, Any]]
) -> types.FunctionType:
    """Return a copy of a function, and of those that it wraps, that calls the replacements."""
    module = function.__globals__.get("__name__", "")
    if module not in scope:
        made = {name: replacement(each) for (of, name), each in rotations.items() if of == module}
        # A snapshot: what is replaced in the module later does not reach patched layers.
        scope[module] = {**function.__globals__, **made}
        # With a name, torch.compile would look functions up in the module of that name instead.
        scope[module].pop("__name__", None)
    cells = []
    for cell in function.__closure__ or ():
        inner = _wrapped(cell, function)
        if inner is not None and any(_called(part) for part in unwrapped(inner)):
            cell = types.CellType(_with_globals(inner, rotations, scope))
        cells.append(cell)
    own = scope[module] if _called(function) else function.__globals__
    return copied(function, function.__code__, own, cells)


def copied(
    function: types.FunctionType,
    code: types.CodeType,
    scope: dict[str, Any],
    cells: Sequence[types.CellType],
) -> types.FunctionType:
    """Return a copy of a function with other code, globals and cells of its closure."""
    closure = None if function.__closure__ is None else tuple(cells)
    copy = types.FunctionType(code, scope, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__dict__.update(function.__dict__)
    copy.__qualname__, copy.__doc__ = function.__qualname__, function.__doc__
    copy.__module__ = function.__module__
    return copy


def subclass(cls: type, members: dict[str, Any], maker: Callable[..., type], *args: Any) -> type:
    """Return a subclass with the name of its base, which copies and pickles by its maker."""
    key = maker, cls, args, tuple(_sources(cls))
    if (known := MADE.get(key)) is not None:
        return known

    def reduce(self: Any, protocol: Any) -> tuple[Any, ...]:
        return new_object, (maker, cls, *args), self.__getstate__()

    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    made = type(cls.__name__, (cls,), {**members, **names, MARK: cls, "__reduce_ex__": reduce})
    MADE[key] = made
    return made


def _sources(cls: type) -> Iterator[Any]:
    """Return what a class's methods are made from: functions, and the globals that they read."""
    for _, _, method in own_methods(cls):
        for part in unwrapped(method):
            yield part
            for code in code_parts(part.__code__):
                for name in global_names(code):
                    yield id(part.__globals__.get(name))


def new_object(maker: Callable[..., type], cls: type, *args: Any) -> Any:
    """Return an empty object of a subclass that `maker` makes; pickle fills it."""
    made: Any = maker(cls, *args)
    return made.__new__(made)
