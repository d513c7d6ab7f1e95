"""Tools that find out what a rope does. Each is a function that returns plain data."""

from ropewalk.tools.catalogue import catalogue, catalogue_vectors
from ropewalk.tools.convert import convert
from ropewalk.tools.inspect import compare_ropes, inspect
from ropewalk.tools.verify import load_model, verify, verify_model

__all__ = [
    "catalogue",
    "catalogue_vectors",
    "compare_ropes",
    "convert",
    "inspect",
    "load_model",
    "verify",
    "verify_model",
]
