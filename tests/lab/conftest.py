"""What several tests of the laboratory use."""

import pytest

from ropewalk.lab import compare as comparison
from ropewalk.lab.run import cells_of
from ropewalk.lab.worker import run_cell


@pytest.fixture
def compare(monkeypatch):
    """Give `compare` with its cells trained one after another in this process."""

    def run_cells(config, run, jobs, watch):
        for cell in cells_of(config):
            run_cell(run, cell, lambda event: None)
        return 1

    monkeypatch.setattr(comparison, "run_cells", run_cells)
    return comparison.compare
