"""Several axes of positions: the public names of `ropewalk.rotary.axes`."""

from ropewalk.rotary.axes import *
from ropewalk.rotary.axes import __all__ as __all__
