"""Tools that find out what a rope does, or change the rope of a model."""

from ropewalk.tools.attention import attention
from ropewalk.tools.catalogue import catalogue, catalogue_vectors
from ropewalk.tools.convert import convert
from ropewalk.tools.extend import extend
from ropewalk.tools.inspect import compare_ropes, inspect
from ropewalk.tools.loss import measure_loss
from ropewalk.tools.patch import Patch, patch
from ropewalk.tools.usage import usage
from ropewalk.tools.verify import load_model, verify, verify_model

__all__ = [
    "Patch",
    "attention",
    "catalogue",
    "catalogue_vectors",
    "compare_ropes",
    "convert",
    "extend",
    "inspect",
    "load_model",
    "measure_loss",
    "patch",
    "usage",
    "verify",
    "verify_model",
]
