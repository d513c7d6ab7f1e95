"""Tools that find out what a rope does. Each is a function that returns plain data."""

from ropewalk.tools.inspect import compare_ropes, inspect

__all__ = ["compare_ropes", "inspect"]
