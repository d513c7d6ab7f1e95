"""Sizes of the tensors that a computation allocates."""

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Sizes(TorchDispatchMode):
    """Records the size of the largest tensor that is allocated, in float64 elements."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(x, Tensor):
                self.largest = max(self.largest, x.untyped_storage().nbytes() // 8)
        return out
