"""Imports scripts of a folder outside the package, as if one of them were run there."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load_scripts(folder: str, *names: str) -> tuple[ModuleType, ...]:
    """Import these modules of a folder; `studies` and `benchmarks` have a `common` of their own."""
    sys.modules.pop("common", None)
    sys.path.insert(0, str(ROOT / folder))
    try:
        return tuple(importlib.import_module(name) for name in names)
    finally:
        sys.path.remove(str(ROOT / folder))
        sys.modules.pop("common", None)
