"""Rotations by a model's own tables, as attention processors of diffusers call them.

A processor calls a global function, or one that its method defines or imports. Whatever form its
tables have, what it does to unit vectors are their cos and sin. All layers of a step share them.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import itertools
import re
import types
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ropewalk.rotary.interop import to_freqs_cis, to_transformers
from ropewalk.rotary.kernels import operator
from ropewalk.rotary.reference import Layout
from ropewalk.tools.patch import rotation_functions as known

Function = Callable[..., Any]

#: What functions do with a table, while the table exists.
_FOUND = WeakTensorKeyDictionary()


def rotated(
    function: Function, xs: Sequence[Any], given: Sequence[Any], options: dict[str, Any]
) -> list[Tensor] | None:
    """Return what the kernel rotates instead of a function, or None if only the function can."""
    tables = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    both = (*xs, *tables)
    if not tables or not all(isinstance(x, Tensor) and x.device == both[0].device for x in both):
        return None
    if operator.is_transformed() or not operator.are_plain(both) or xs[0].dtype == torch.float64:
        return None
    if torch.is_grad_enabled() and any(table.requires_grad for table in tables):
        return None
    versions = [0 if table.is_inference() else table._version for table in tables]
    before, others, found_for = _FOUND.get(tables[0], (None, (), {}))
    if before != versions or any(a is not b for a, b in zip(others, tables[1:], strict=True)):
        _FOUND[tables[0]] = versions, tables[1:], (found_for := {})
    key = function, tuple(options.items()), tuple(x.shape for x in xs)
    if key not in found_for:
        if xs[0].is_cuda and torch.cuda.is_current_stream_capturing():
            return None  # values cannot be compared
        with torch.inference_mode(False), torch.no_grad():  # a training step may use it later
            found_for[key] = _find(function, xs, given, options)
    if (found := found_for[key]) is None:
        return None
    layout, flat, cos, sin = found
    ys = operator.dispatch([x.flatten(1, 2) if flat else x for x in xs], cos, sin, layout)
    return [y.reshape(x.shape) for x, y in zip(xs, ys, strict=True)]


def _find(
    function: Function, xs: Sequence[Tensor], given: Sequence[Any], options: dict[str, Any]
) -> tuple[Layout, bool, Tensor, Tensor] | None:
    """Return how a function rotates: a layout, whether angles are of each head, cos and sin."""
    shape = xs[0].shape
    if len(shape) not in (3, 4) or shape[-1] % 2 or any(x.shape != shape for x in xs):
        return None
    for interleaved in (True, False):
        columns: list[Tensor] = []
        for place in (0, 1):
            units = [torch.zeros(shape, dtype=torch.float32, device=x.device) for x in xs]
            for unit in units:
                _pairs(unit, interleaved)[place].fill_(1)
            columns += _pairs(_each(function(*units, *given, **options))[0], interleaved)
        cos, sin, minus_sin, again = columns
        if torch.equal(cos, again) and torch.equal(sin, -minus_sin):
            break
    else:
        return None
    same = [i for i in range(len(shape) - 1) if all(_is_constant(t, i) for t in (cos, sin))]
    heads = max((axis for axis in same if axis and len(shape) == 4), default=None)
    cos, sin = (t.flatten(1, -2) if heads is None else t.select(heads, 0) for t in (cos, sin))
    cos, sin = (cos[0], sin[0]) if 0 in same else (cos, sin)
    layout = Layout(interleaved, interleaved, 0, -3 if heads == 2 else -2)
    return layout, heads is None and len(shape) == 4, cos.contiguous(), sin.contiguous()


def _pairs(x: Tensor, interleaved: bool) -> Sequence[Tensor]:
    return (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)


def _is_constant(x: Tensor, axis: int) -> bool:
    return torch.equal(x, x.narrow(axis, 0, 1).expand_as(x))


def _each(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


def replacing(function: Function) -> Function:
    """Return what to call instead of a function. A compiler fuses the function itself."""
    count = 1 + (list(inspect.signature(function).parameters)[1:2] == ["xk"])

    def rotate(*arguments: Any, **options: Any) -> Any:
        if not torch.compiler.is_compiling():
            found = rotated(function, arguments[:count], arguments[count:], options)
            if found is not None:
                return found[0] if count == 1 else tuple(found)
        return function(*arguments, **options)

    return rotate


OPTIONS = {"use_real": (True, False), "use_real_unbind_dim": (-1, -2), "sequence_dim": (1, 2)}
#: Tables of a form, from cos and sin (…, R/2); the last one is Helios's.
FORMS: tuple[Function, ...] = (
    lambda c, s: to_transformers(c, s, pairing="interleaved"),
    lambda c, s: to_transformers(c, s, pairing="half"),
    lambda c, s: (c, s),
    lambda c, s: (to_freqs_cis(c, s),),
    lambda c, s: (torch.stack((c, -s, s, c), -1).unflatten(-1, (2, 2)),),
    lambda c, s: (torch.cat(to_transformers(c, s, pairing="interleaved"), -1),),
)
#: Sizes of x, and of tables for it.
SIZES: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = {
    (2, 5, 3): ((5,), (2, 5), (2, 5, 1), (5, 1), (5, 3)),
    (2, 3, 5): ((5,), (2, 1, 5)),
    (2, 5): ((2, 5),),
}


def is_rotation(function: Function) -> bool:
    """Return whether a function rotates random numbers as the kernel, and keeps their dtype.

    It is called with tables of all forms, and with all options that models pass.
    """
    named = list(inspect.signature(function).parameters)
    count = 1 + (named[1:2] == ["xk"])
    choices = [[(name, v) for v in values] for name, values in OPTIONS.items() if name in named]
    generator = torch.Generator().manual_seed(0)
    sizes = [(of_x, of_table) for of_x, tables in SIZES.items() for of_table in tables]
    calls = itertools.product(sizes, FORMS, map(dict, itertools.product(*choices)))
    for (of_x, of_table), form, options in calls:
        angles = 3 * known.random_numbers((*of_table, 4), generator)
        xs = [known.random_numbers((*of_x, 8), generator) for _ in range(count)]
        tables = form(angles.cos(), angles.sin())
        for given in (tables, (tables,)):
            with suppress(Exception), warnings.catch_warnings(), torch.no_grad():
                warnings.simplefilter("ignore")  # code of a model may raise anything here
                ours = rotated(function, xs, given, options) or ()
                half = _each(function(*(x.bfloat16() for x in xs), *given, **options))
                theirs = _each(function(*(x.clone() for x in xs), *given, **options))
                off = [float((y - z).abs().max()) for y, z in zip(ours, theirs, strict=True)]
                if max(off) < known.TOLERANCE and {y.dtype for y in half} == {torch.bfloat16}:
                    return True
    return False


CALLED = re.compile("apply_.*(rot|rope)|rope_apply|rotate_half", re.IGNORECASE)


def called_functions(method: types.FunctionType) -> dict[str, Function]:
    """Return the functions about rotation that a method calls: global, imported or its own."""
    found: dict[str, Any] = {}
    scope = method.__globals__
    for code in known.code_parts(method.__code__):
        found |= {name: scope.get(name) for name in known.global_names(code)}
        read = list(dis.get_instructions(code))
        for level, names, each in zip(read, read[1:], read[2:], strict=False):
            if each.opname == "IMPORT_NAME" and any(map(CALLED.search, names.argval or ())):
                path = "." * level.argval + each.argval
                module = import_module(path, scope.get("__package__"))
                found |= {name: getattr(module, name) for name in names.argval}
    for code in method.__code__.co_consts:
        if isinstance(code, types.CodeType) and not code.co_freevars:
            found[code.co_name] = types.FunctionType(code, scope, code.co_name)
    return {n: f for n, f in found.items() if CALLED.search(n) and inspect.isroutine(f)}


def calling_class(cls: type, names: tuple[str, ...]) -> type:
    """Return a subclass whose methods call the kernel instead of functions of these names."""
    methods: dict[str, Any] = {}
    for _, name, method in known.own_methods(cls):
        called = called_functions(method)
        if name not in methods and any(each in called for each in names):
            functions = {n: replacing(called[n]) for n in names if n in called}
            methods[name] = _calling(method, functions)
    return known.subclass(cls, methods, calling_class, names)


def _calling(method: types.FunctionType, functions: dict[str, Function]) -> Function:
    """Return a copy of a method with other functions, also for those that it defines or imports."""

    def imported(name: str, *more: Any) -> Any:
        module = __import__(name, *more)
        taken = {n: f for n, f in functions.items() if n in (more[2] or ())}
        return types.SimpleNamespace(**{**vars(module), **taken}) if taken else module

    def own(*arguments: Any, **options: Any) -> Any:
        return GLOBAL(*arguments, **options)  # type: ignore[name-defined]  # noqa: F821

    constants = tuple(
        own.__code__.replace(co_names=(name,))
        if (name := getattr(each, "co_name", None)) in functions
        else each
        for each in method.__code__.co_consts
    )
    # Without a name, as in rotation_functions.
    scope = {n: v for n, v in method.__globals__.items() if n != "__name__"} | functions
    scope["__builtins__"] = {**vars(builtins), "__import__": imported}
    code = method.__code__.replace(co_consts=constants)
    return known.copied(method, code, scope, method.__closure__ or ())
