"""Tables of other libraries; the ONNX operator: the public names of `ropewalk.rotary.interop`."""

from ropewalk.rotary.interop import *
from ropewalk.rotary.interop import __all__ as __all__
