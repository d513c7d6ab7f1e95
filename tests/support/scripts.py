"""Imports scripts of a folder outside the package, and runs commands as a page shows them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
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


def run_shell(script: str, folder: Path) -> str:
    """Return what a shell prints in a folder, with `ropewalk` and `python` of this environment."""
    with TemporaryDirectory() as programs:
        for name, call in (("ropewalk", "-m ropewalk.cli "), ("python", "")):
            program = Path(programs, name)
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {call}"$@"\n')
            program.chmod(0o755)
        ran = subprocess.run(
            ["sh", "-e", "-c", script],
            cwd=folder,
            env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
