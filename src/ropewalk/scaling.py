"""Scaling rules for longer contexts: the public names of `ropewalk.rotary.scaling`."""

from ropewalk.rotary.scaling import *
from ropewalk.rotary.scaling import __all__ as __all__
