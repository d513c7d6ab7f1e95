"""Tools that find out what a rope does. Each is a function that returns plain data."""

from ropewalk.tools.catalogue import catalogue, catalogue_vectors

__all__ = ["catalogue", "catalogue_vectors"]
