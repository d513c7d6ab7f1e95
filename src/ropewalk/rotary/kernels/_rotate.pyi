from collections.abc import Sequence

from torch import Tensor

def rotate(
    xs: Sequence[Tensor],
    outs: Sequence[Tensor] | None,
    cos: Tensor,
    sin: Tensor,
    first: int,
    layout: tuple[bool, bool, int, int, bool],
    threads: int,
    chunk: int,
) -> tuple[Tensor, ...] | None: ...
def limit(most: str) -> str: ...
