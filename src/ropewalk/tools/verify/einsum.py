"""An einsum of two tensors as a product of matrices."""

from __future__ import annotations

from typing import Any

from torch import Tensor


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
    for first, second in ((0, 1), (1, 0)):
        a, b = letters[first], letters[second]
        batch = [x for x in a if x in b and x in output]
        summed = [x for x in a if x in b and x not in output]
        columns = [x for x in output if x in b and x not in a]
        heads = [x for x in output if x in a and x not in b]
        rows = [x for x in heads if operands[first].shape[a.index(x)] == S]
        if len(summed) != 1 or len(columns) != 1 or not rows or not batch:
            continue
        if output.index(rows[0]) > output.index(columns[0]):
            continue
        order = [*batch, *(x for x in heads if x != rows[0]), rows[0], summed[0]]
        if len(order) != len(a) or len(batch) + 2 != len(b):
            continue
        left = operands[first].permute([a.index(x) for x in order])
        right = operands[second].permute([b.index(x) for x in (*batch, summed[0], *columns)])
        return left.flatten(len(batch) - 1, len(order) - 3), right
    return None
