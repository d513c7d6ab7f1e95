"""Which frequencies a model's heads use: norms of pairs, kinds of heads, the cost of p-RoPE."""

from ropewalk.tools.usage.head_usage import Cost, Head, Layer, Usage
from ropewalk.tools.usage.usage import usage

__all__ = ["Cost", "Head", "Layer", "Usage", "usage"]
