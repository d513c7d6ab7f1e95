"""Exact tables and the fast rotation in a transformers model, and back."""

from ropewalk.tools.patch.patch import patch
from ropewalk.tools.patch.patch_plan import Patch

__all__ = ["Patch", "patch"]
