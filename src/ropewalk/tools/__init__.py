"""Tools that find out what a rope does. Each is a function that returns plain data."""

from ropewalk.tools.verify import verify

__all__ = ["verify"]
