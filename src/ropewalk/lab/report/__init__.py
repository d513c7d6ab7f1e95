"""The report of a run: one self-contained HTML file that opens without a network."""

from __future__ import annotations

from ropewalk.lab.report.page import write_report

__all__ = ["write_report"]
