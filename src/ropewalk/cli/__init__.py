"""The command line: one file per command, which parses, calls and prints; app.py orders them."""

from ropewalk.cli.app import main, run_command

__all__ = ["main", "run_command"]
