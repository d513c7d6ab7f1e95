"""Convert a model's weights between the two pairings."""

from ropewalk.tools.convert.convert import Conversion, convert

__all__ = ["Conversion", "convert"]
