"""Convert a model's weights between the two pairings."""

from ropewalk.tools.convert.conversion import Conversion, convert

__all__ = ["Conversion", "convert"]
