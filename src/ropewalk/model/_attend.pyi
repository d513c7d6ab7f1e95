from torch import Tensor

def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    added: Tensor | None,
    out: Tensor,
    scale: float,
    threads: int,
) -> bool: ...
def limit(most: str) -> str: ...
