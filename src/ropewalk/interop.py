"""Public names of `ropewalk.rotary.interop`: tables of other libraries, and ONNX's operator."""

from ropewalk.rotary.interop import *
from ropewalk.rotary.interop import __all__ as __all__
