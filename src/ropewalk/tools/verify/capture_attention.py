"""Run a model for its ropes alone, and record the queries, keys and values that reach attention.

Projections return random vectors, the same at all positions. What attention then gets differs
between positions by the rope and by nothing else. Weights are not read, so that a large model takes
seconds, and badly conditioned weights do no harm. Norms return their input: they would leave out a
dimension, or hide what they follow. Everything that belongs to the rope is the model's own: its
buffers, tables and functions.

Attention is met in three places: transformers' table of attention functions,
`scaled_dot_product_attention`, and the product of queries and keys, by matmul or einsum.
Functions that rotate are known by their names, such as `apply_rotary_pos_emb`.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import permutations
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ropewalk.tools.live_model import ROTATES

SMALL = 2**22  # numbers in a parameter that is worth a float32 copy
EXPERTS = re.compile(r"(?<!Parallel)Experts$")
NORMS = re.compile(r"Norm")
ROUTERS = re.compile(r"Router|Gate")  # linear layers that return more than a vector


class Shape:
    """The number of rows and of positions in the current run."""

    def __init__(self) -> None:
        self.rows, self.positions = 1, 3


@contextmanager
def hollow(model: nn.Module, shape: Shape) -> Iterator[None]:
    """Context in which projections, embeddings and experts are replaced, in float32."""
    embedding = _input_embedding(model)
    with ExitStack() as stack:
        for number, module in enumerate(model.modules()):
            name, leaf = type(module).__name__, not any(True for _ in module.children())
            sizes = (getattr(module, size, None) for size in ("out_features", "nf"))
            width = next((size for size in sizes if type(size) is int), None)
            forward: Callable[..., Tensor]
            if width is not None and leaf and not ROUTERS.search(name):  # linear, of any make
                forward = _projection(width, number, shape)
            elif module is embedding:
                forward = _embedded(module.weight.shape[-1], shape)
            elif EXPERTS.search(name):
                forward = _nothing
            elif leaf and NORMS.search(name):
                forward = _unchanged
            else:  # small parameters of a half-precision model are read in float32, buffers are not
                for parameter in module.parameters(recurse=False):
                    half = parameter.dtype in (torch.bfloat16, torch.float16)
                    if half and parameter.numel() <= SMALL:
                        stack.callback(setattr, parameter, "data", parameter.data)
                        parameter.data = parameter.data.to(torch.float32)
                continue
            stack.enter_context(mock.patch.object(module, "forward", forward))
        yield


def _input_embedding(model: nn.Module) -> Any:
    """Return the module that embeds tokens: the model's own word, or its first `nn.Embedding`."""
    try:
        embedding = model.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        embedding = next((m for m in model.modules() if type(m) is nn.Embedding), None)
    return embedding if type(embedding) is nn.Embedding else None


def _projection(width: int, seed: int, shape: Shape) -> Callable[..., Tensor]:
    """Return a forward that draws a vector for each row and repeats it at all positions."""

    def forward(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        rows, positions = shape.rows, shape.positions
        sizes = [*x.shape[:-1], width]
        if rows * positions in sizes[:-1]:  # rows and positions are one axis
            at = sizes.index(rows * positions)
            drawn = [*sizes[:at], rows, 1, *sizes[at + 1 :]]
            repeated = [*sizes[:at], rows, positions, *sizes[at + 1 :]]
        else:
            drawn = [1 if size == positions else size for size in sizes[:-1]] + [width]
            repeated = sizes
        vectors = torch.randn(drawn, generator=torch.Generator().manual_seed(seed))
        return vectors.expand(repeated).reshape(sizes).to(x.device).contiguous()

    return forward


def _embedded(width: int, shape: Shape) -> Callable[..., Tensor]:
    def forward(ids: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        drawn = torch.randn(shape.rows, 1, width, generator=torch.Generator().manual_seed(0))
        return drawn.expand(*ids.shape, width).contiguous().to(ids.device)

    return forward


def _unchanged(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return x


def _nothing(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return torch.zeros_like(x)


def as_product(S: int, equation: Any, *operands: Any) -> tuple[Tensor, Tensor] | None:
    """Return a (..., S, C) and b (..., C, N) whose product is that of an einsum, or None.

    Letters of a that b has not, other than that of its S rows, are heads that share a key.
    """
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not isinstance(equation, str) or len(operands) != 2 or "." in equation:
        return None
    inputs, _, output = equation.replace(" ", "").partition("->")
    letters = inputs.split(",")
    if [len(x) for x in letters] != [x.ndim for x in operands]:
        return None
    for (a, left), (b, right) in permutations(zip(letters, operands, strict=True)):
        batch = [x for x in a if x in b and x in output]
        summed = [x for x in a if x in b and x not in output]
        columns = [x for x in output if x in b and x not in a]
        heads = [x for x in output if x in a and x not in b]
        rows = [x for x in heads if left.shape[a.index(x)] == S]
        if len(summed) != 1 or len(columns) != 1 or not rows or not batch:
            continue
        if output.index(rows[0]) > output.index(columns[0]):
            continue
        order = [*batch, *(x for x in heads if x != rows[0]), rows[0], summed[0]]
        if len(order) != len(a) or len(batch) + 2 != len(b):
            continue
        left = left.permute([a.index(x) for x in order])
        right = right.permute([b.index(x) for x in (*batch, summed[0], *columns)])
        return left.flatten(len(batch) - 1, len(order) - 3), right
    return None


LOCK = threading.RLock()
LATEST = 8  # projections that are remembered: q, k, v, and their norms
EINSUMS = (torch.einsum, torch.functional.einsum)
PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm)


@dataclass(frozen=True)
class Rotated:
    """Vectors before and after a function that rotates: `(N, H, S, R)`, or another order."""

    before: Tensor
    after: Tensor


@dataclass(frozen=True)
class Attended:
    """What one attention got: q `(N, H, S, D)`, k and v `(N, K, S, D)`, and rotations before it.

    paths: of the modules that were running, the last of which called attention.
    projections: what modules without parts returned shortly before, at the first position: (N, O).
    """

    paths: tuple[str, ...]
    q: Tensor
    k: Tensor
    v: Tensor
    rotations: tuple[Rotated, ...]
    projections: tuple[Tensor, ...]


@dataclass
class Recorder:
    """Calls `on_attention` with each attention of a run.

    error: what it raised, which would look like an error of the model's code otherwise. thread: the
    only one whose calls are recorded.
    """

    on_attention: Callable[[Attended], None]
    shape: Shape
    paths: list[str] = field(default_factory=list)
    rotations: list[Rotated] = field(default_factory=list)
    projections: deque[Tensor] = field(default_factory=lambda: deque(maxlen=LATEST))
    depth: int = 0  # of functions that rotate
    error: Exception | None = None
    thread: int = field(default_factory=threading.get_ident)

    @property
    def here(self) -> bool:
        """Whether the current thread is the one that is recorded."""
        return threading.get_ident() == self.thread

    def attention(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        """Record one attention; heads may be folded into the batch."""
        if self.error is not None:
            return
        q, k, v = (self._unfolded(x) for x in (q, k, v))
        rotations, self.rotations = tuple(self.rotations), []
        projections = tuple(self.projections)
        try:
            self.on_attention(Attended(tuple(self.paths), q, k, v, rotations, projections))
        except Exception as error:
            self.error = error

    def _unfolded(self, x: Tensor) -> Tensor:
        if x.ndim == 3 and x.shape[0] % self.shape.rows == 0:
            return x.reshape(self.shape.rows, -1, *x.shape[1:])
        return x

    def interface(self, original: Callable[..., Any] | None) -> Callable[..., Any]:
        """Return what stands for one of transformers' attention functions; the result is zero."""

        def attend(
            module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
        ) -> Any:
            if original is not None and not self.here:
                return original(module, query, key, value, *args, **kwargs)
            self.attention(query, key, value)
            N, H, S, _ = query.shape
            return value.new_zeros(N, S, H, value.shape[-1]), None

        return attend

    def rotating(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that rotates, recorded; functions that it calls in turn are not."""

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if self.depth or not self.here:
                return function(*args, **kwargs)
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            before = [x.clone() for x in given]
            self.depth += 1
            try:
                returned = function(*args, **kwargs)
            finally:
                self.depth -= 1
            outputs = returned if isinstance(returned, (tuple, list)) else (returned,)
            for after in outputs:
                if not isinstance(after, Tensor) or after.ndim < 3:
                    continue
                at = next((i for i, x in enumerate(before) if x.shape == after.shape), None)
                if at is not None:
                    self.rotations.append(Rotated(before.pop(at), after.clone()))
            return returned

        return recorded


class _Table:
    """Stands for transformers' table of attention functions, in the recorder's thread."""

    def __init__(self, recorder: Recorder, original: Any):
        self._recorder, self._original = recorder, original

    def get_interface(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        return self._of(lambda: self._original.get_interface(*args, **kwargs))

    def get(self, *args: Any) -> Callable[..., Any]:
        return self._of(lambda: self._original.get(*args))

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._of(lambda: self._original[name])

    def _of(self, find: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
        return self._recorder.interface(None) if self._recorder.here else find()

    def __contains__(self, name: str) -> bool:
        return self._recorder.here or name in self._original

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


class _Products(TorchFunctionMode):
    """Meets attention that calls torch directly."""

    def __init__(self, recorder: Recorder):
        super().__init__()
        self._recorder = recorder
        self._pair: tuple[Tensor, Tensor] | None = None

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            q, k, v = (*args, *(kwargs[n] for n in ("query", "key", "value") if n in kwargs))[:3]
            self._recorder.attention(q, k, v)
            return q.new_zeros(*q.shape[:-1], v.shape[-1])
        if func in PRODUCTS and len(args) > 1:
            self._product(args[0], args[1])
        elif func in EINSUMS:
            product = as_product(self._recorder.shape.positions, *args)
            if product is not None:
                self._product(*product)
        elif func is torch.baddbmm and len(args) > 2:
            self._product(args[1], args[2])
        return func(*args, **kwargs)

    def _product(self, a: Any, b: Any) -> None:
        S = self._recorder.shape.positions
        if not isinstance(b, Tensor) or min(a.ndim, b.ndim) < 3:
            return
        if a.shape[-2] == S and b.shape[-1] == S and a.shape[-1] not in (1, S):
            self._pair = a, b.transpose(-1, -2)
        elif self._pair is not None and a.shape[-2:] == (S, S) and b.shape[-2] == S:
            q, k = self._pair
            self._pair = None
            self._recorder.attention(q, k, b)


@contextmanager
def capture(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Context in which each attention of a model's forward reaches the recorder.

    Functions that models share are replaced for this thread alone: in other threads, other models
    run as before. One capture runs at a time.
    """
    classes = {cls for module in model.modules() for cls in type(module).__mro__}
    theirs = {cls for cls in classes if not cls.__module__.startswith(("torch.", "builtins"))}
    sources = {sys.modules[cls.__module__] for cls in theirs if cls.__module__ in sys.modules}
    with LOCK, ExitStack() as stack:
        for source in sources:
            _replace_functions(source, recorder, stack)
        for cls in theirs - {nn.Module, object}:
            for name, value in list(vars(cls).items()):
                static = isinstance(value, (staticmethod, classmethod))
                if ROTATES.search(name) and callable(value) and not static:
                    stack.enter_context(mock.patch.object(cls, name, recorder.rotating(value)))
        _follow(model, recorder, stack)
        stack.enter_context(_Products(recorder))
        yield


def _replace_functions(source: ModuleType, recorder: Recorder, stack: ExitStack) -> None:
    for name, value in list(vars(source).items()):
        made: Any = None
        if name == "ALL_ATTENTION_FUNCTIONS":
            made = _Table(recorder, value)
        elif name == "eager_attention_forward":
            made = recorder.interface(value)
        elif ROTATES.search(name) and callable(value) and not isinstance(value, type):
            made = recorder.rotating(value)
        if made is not None:
            stack.enter_context(mock.patch.object(source, name, made))


def _follow(model: nn.Module, recorder: Recorder, stack: ExitStack) -> None:
    """Keep track of the modules that run, and of what they project."""

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        recorder.paths.pop()
        projects = isinstance(output, Tensor) and output.ndim == 3
        if projects and output.shape[1] == recorder.shape.positions:
            recorder.projections.append(output[:, 0].clone())

    for path, module in model.named_modules():

        def enter(module: nn.Module, args: Any, path: str = path) -> None:
            recorder.paths.append(path)

        stack.callback(module.register_forward_pre_hook(enter).remove)
        stack.callback(module.register_forward_hook(leave, always_call=True).remove)
