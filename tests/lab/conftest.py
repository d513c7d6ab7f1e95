"""What several tests of the laboratory use."""

import pytest
from cells_here import run_cells_here

from ropewalk.lab.running import compare as comparison


@pytest.fixture
def compare(monkeypatch):
    """Give `compare` with its cells trained one after another in this process."""
    monkeypatch.setattr(comparison, "run_cells", run_cells_here)
    return comparison.compare
