"""Packed documents, padding, grids, video: the public names of `ropewalk.rotary.positions`."""

from ropewalk.rotary.positions import *
from ropewalk.rotary.positions import __all__ as __all__
