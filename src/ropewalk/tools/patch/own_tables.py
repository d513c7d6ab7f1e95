"""Rotations by a model's own tables, as attention processors of diffusers call them.

A processor calls a global function, or one that its method defines or imports. Calls on random
numbers show what it does. The replacement calls the function itself for all that was not measured.
"""

from __future__ import annotations

import builtins
import dis
import inspect
import itertools
import operator as operators
import re
import types
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ropewalk.rotary.interop import to_freqs_cis, to_transformers
from ropewalk.rotary.kernels import operator
from ropewalk.rotary.reference import Layout
from ropewalk.rotary.tables import Tables
from ropewalk.tools.patch.rotation_functions import (
    TOLERANCE,
    code_parts,
    copied,
    global_names,
    own_methods,
    random_numbers,
    subclass,
)

Function = Callable[..., Any]


def _pairs(*tables: Tensor) -> Any:
    return tuple((table[..., ::2], table[..., 1::2]) for table in tables)


#: Tables of a form from cos and sin (…, R/2), and their columns: once, or all that must be equal.
FORMS: dict[str, tuple[Function, Function]] = {
    "interleaved": (lambda c, s: to_transformers(c, s, pairing="interleaved"), _pairs),
    "half": (
        lambda c, s: to_transformers(c, s, pairing="half"),
        lambda c, s: (c.chunk(2, -1), s.chunk(2, -1)),
    ),
    "once": (lambda c, s: (c, s), lambda c, s: ((c,), (s,))),
    "complex": (lambda c, s: (to_freqs_cis(c, s),), lambda t: ((t.real,), (t.imag,))),
    "matrices": (
        lambda c, s: (torch.stack((c, -s, s, c), -1).unflatten(-1, (2, 2)),),
        lambda t: ((t[..., 0, 0], t[..., 1, 1]), (t[..., 1, 0], -t[..., 0, 1])),
    ),
    "joined": (
        lambda c, s: (torch.cat(to_transformers(c, s, pairing="interleaved"), -1),),
        lambda t: _pairs(*t.chunk(2, -1)),
    ),
}
ONCE = ("once", "complex")

#: What was read from a table, while the table exists: all layers of a step have the same one.
_READ = WeakTensorKeyDictionary()


def read_tables(tables: Sequence[Tensor], form: str, order: tuple[int, ...]) -> Tables | None:
    """Return cos and sin with one column for each pair, or None if they cannot be had.

    order: of their axes. Columns are compared and copied once for each tensor. They cannot be
    compared while a compiler reads the code, or a CUDA graph is recorded.
    """
    if torch.compiler.is_compiling():
        ((cos, *_), (sin, *_)) = FORMS[form][1](*tables)
        return (cos.permute(order), sin.permute(order)) if form in ONCE else None
    versions = [0 if table.is_inference() else table._version for table in tables]
    key, (first, *more) = (form, order, versions), tables
    of, others, found = _READ.get(first, (None, (), None))
    if of == key and all(map(operators.is_, others, more)):
        return found  # type: ignore[no-any-return]
    if first.is_cuda and torch.cuda.is_current_stream_capturing():
        return None
    # Copies, because a view would keep its table alive. A later training step may use them.
    with torch.inference_mode(False), torch.no_grad():
        columns = FORMS[form][1](*tables)
        equal = (torch.equal(one, each) for one, *rest in columns for each in rest)
        cos, sin = (one.permute(order).clone().float().contiguous() for one, *_ in columns)
        found = (cos, sin) if cos.shape == sin.shape and all(equal) else None
    _READ[first] = key, more, found
    return found


class Way(NamedTuple):
    """How tensors rotate by tables.

    axes: those of x that the axes of a table belong to, in order; if there are as many as of x,
    the last one of x has all heads (LTX-2). read, write: whether pairs are interleaved. partial:
    whether heads may have more than the R dimensions that rotate.
    """

    form: str
    axes: tuple[int, ...]
    read: bool
    write: bool
    partial: bool = False

    def rotate(self, xs: Sequence[Tensor], tables: Sequence[Tensor]) -> list[Tensor] | None:
        """Rotate by the kernel, or return None if only the model's own function can."""
        order = sorted(range(len(self.axes)), key=self.axes.__getitem__)
        if (found := read_tables(tables, self.form, (*order, len(order)))) is None:
            return None
        (cos, sin), views = found, list(xs)
        if len(self.axes) == xs[0].ndim:
            views = [x.unflatten(-1, (cos.shape[-2], -1)) for x in xs]
        sizes = [1] * (views[0].ndim - 1)
        for axis, size in zip(sorted(self.axes), cos.shape, strict=False):
            sizes[axis] = size
        rest = views[0].shape[-1] - 2 * cos.shape[-1]
        if rest < 0 or (rest and not self.partial) or xs[0].dtype == torch.float64:
            return None
        if any(n not in (1, y.shape[i]) for y in views for i, n in enumerate(sizes)):
            return None
        cos, sin, seq_dim = cos.reshape(*sizes, -1), sin.reshape(*sizes, -1), -2
        if len(sizes) == 3 and 1 not in sizes[1:]:  # each head has its angles, as if a position
            views = [y.flatten(1, 2) for y in views]
            cos, sin = cos.flatten(1, 2), sin.flatten(1, 2)
        elif len(sizes) == 3:
            seq_dim = -3 if sizes[2] == 1 else -2
            cos, sin = cos.select(-seq_dim - 1, 0), sin.select(-seq_dim - 1, 0)
        if cos.shape[1] != views[0].shape[seq_dim]:
            return None
        cos, sin = (cos[0], sin[0]) if len(cos) == 1 else (cos, sin)
        rotated = operator.dispatch(views, cos, sin, Layout(self.read, self.write, 0, seq_dim))
        return [y.reshape(x.shape) for x, y in zip(xs, rotated, strict=True)]


OPTIONS = {"use_real": (True, False), "use_real_unbind_dim": (-1, -2), "sequence_dim": (1, 2)}
Ways = tuple[tuple[Any, Way], ...]
"""What a function does, for each kind of arguments."""


def _signature(function: Function) -> tuple[int, dict[str, Any]]:
    """Return how many tensors a function rotates, and the options that it has by default."""
    parameters = inspect.signature(function).parameters
    defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
    return 1 + (list(parameters)[1:2] == ["xk"]), defaults


def _kind(xs: Sequence[Tensor], tables: Sequence[Tensor], options: dict[str, Any]) -> Any:
    first = tables[0]
    return len(tables), first.ndim, first.is_complex(), xs[0].ndim, tuple(options.items())


def _are_served(xs: Sequence[Any], tables: Sequence[Any]) -> bool:
    both = (*xs, *tables)
    if not all(isinstance(each, Tensor) and each.device == both[0].device for each in both):
        return False
    if torch.compiler.is_compiling():
        return bool(tables)
    if operator.is_transformed() or not operator.are_plain(both):
        return False
    derived = torch.is_grad_enabled() and any(table.requires_grad for table in tables)
    return bool(tables) and not derived


def replacing(function: Function, ways: Ways) -> Function:
    """Return what to call instead of a function."""
    known, (count, defaults) = dict(ways), _signature(function)

    def rotate(*arguments: Any, **options: Any) -> Any:
        xs, tables = arguments[:count], arguments[count:]
        if len(tables) == 1 and isinstance(tables[0], (tuple, list)):
            tables = tuple(tables[0])
        if _are_served(xs, tables):
            way = known.get(_kind(xs, tables, {**defaults, **options}))
            if way is not None and (rotated := way.rotate(xs, tables)) is not None:
                return rotated[0] if count == 1 else tuple(rotated)
        return function(*arguments, **options)

    return rotate


def measure_ways(function: Function) -> Ways:
    """Return what a function does with each form of tables, and each place of their axes in x."""
    count, defaults = _signature(function)
    places = [
        (ndim, axes)
        for ndim in (4, 3)
        for n in range(1, ndim)
        for axes in itertools.combinations(range(ndim - 1), n)
    ]
    choices = [
        [(name, value) for value in OPTIONS.get(name, (defaults[name],))] for name in defaults
    ]
    found: dict[Any, Way] = {}
    for options, (ndim, axes), form in itertools.product(
        map(dict, itertools.product(*choices)), [*places, (3, (0, 2, 1))], FORMS
    ):
        generator = torch.Generator().manual_seed(0)
        angles = 3 * random_numbers((*((2, 5, 3)[axis] for axis in axes), 4), generator)
        given = FORMS[form][0](angles.cos(), angles.sin())
        heads = 3 if len(axes) == ndim else 1
        shapes = [(*(2, 5, 3)[: ndim - 1], heads * width) for width in (8, 12)]
        whole, wide = ([random_numbers(s, generator) for _ in range(count)] for s in shapes)
        expected = _answer(function, whole, given, options)
        for read, write in itertools.product((True, False), repeat=2) if expected else ():
            way = Way(form, axes, read, write, True)
            if _equal(way.rotate(whole, given), expected):
                partial = _equal(way.rotate(wide, given), _answer(function, wide, given, options))
                found.setdefault(_kind(whole, given, options), way._replace(partial=partial))
    return tuple(found.items())


def _equal(ours: list[Tensor] | None, theirs: list[Tensor] | None) -> bool:
    if ours is None or theirs is None:
        return False
    return all(bool((y - z).abs().max() < TOLERANCE) for y, z in zip(ours, theirs, strict=True))


def _answer(
    function: Function, xs: list[Tensor], tables: tuple[Tensor, ...], options: dict[str, Any]
) -> list[Tensor] | None:
    """Return what a function rotates, if it takes such tensors and returns the dtype of x."""
    for given in (tables, (tables,)):
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                halves = function(*(x.bfloat16() for x in xs), *given, **options)
                rotated = function(*(x.clone() for x in xs), *given, **options)
            halves, rotated = ([y] if isinstance(y, Tensor) else list(y) for y in (halves, rotated))
            as_xs = [y.shape for y in rotated] == [x.shape for x in xs]
            if as_xs and all(y.dtype == torch.bfloat16 for y in halves):
                return rotated
        except Exception:  # code of a model may raise anything for what it does not expect
            continue
    return None


CALLED = re.compile("apply_.*(rot|rope)|rope_apply|rotate_half", re.IGNORECASE)


def called_functions(method: types.FunctionType) -> dict[str, Function]:
    """Return the functions about rotation that a method calls: global, imported or its own."""
    found: dict[str, Any] = {}
    scope = method.__globals__
    for code in code_parts(method.__code__):
        found |= {name: scope.get(name) for name in global_names(code)}
        instructions = list(dis.get_instructions(code))
        for level, names, each in zip(
            instructions, instructions[1:], instructions[2:], strict=False
        ):
            if each.opname == "IMPORT_NAME" and any(map(CALLED.search, names.argval or ())):
                path = "." * level.argval + each.argval
                module = import_module(path, scope.get("__package__"))
                found |= {name: getattr(module, name) for name in names.argval}
    for code in method.__code__.co_consts:
        if isinstance(code, types.CodeType) and not code.co_freevars:
            found[code.co_name] = types.FunctionType(code, scope, code.co_name)
    return {n: f for n, f in found.items() if CALLED.search(n) and inspect.isroutine(f)}


Replaced = tuple[tuple[str, tuple[tuple[str, Ways], ...]], ...]
"""Of each method, the functions that are replaced."""


def calling_class(cls: type, replaced: Replaced) -> type:
    """Return a subclass whose methods call the kernel by the names of these functions."""
    first = {name: method for _, name, method in reversed([*own_methods(cls)])}
    methods = {name: _calling(first[name], dict(ways)) for name, ways in replaced}
    return subclass(cls, methods, calling_class, replaced)


def _calling(method: types.FunctionType, ways: dict[str, Ways]) -> types.FunctionType:
    called = called_functions(method)
    functions = {name: replacing(called[name], each) for name, each in ways.items()}

    def imported(name: str, *more: Any) -> Any:
        module = __import__(name, *more)
        return types.SimpleNamespace(**{**vars(module), **functions}) if more[2:3] else module

    def own(*arguments: Any, **options: Any) -> Any:
        return ROTATE(*arguments, **options)  # type: ignore[name-defined]  # noqa: F821

    constants = tuple(
        own.__code__.replace(co_names=(each.co_name,))
        if isinstance(each, types.CodeType) and each.co_name in functions
        else each
        for each in method.__code__.co_consts
    )
    scope = {**method.__globals__, **functions}
    scope["__builtins__"] = {**vars(builtins), "__import__": imported}
    scope.pop("__name__", None)  # see _with_globals in rotation_functions
    code = method.__code__.replace(co_consts=constants)
    return copied(method, code, scope, method.__closure__)
