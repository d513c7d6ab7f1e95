"""The reference experiment: encodings on real text, up to 8 times the trained length.

`bash studies/runs.sh reference` trains its models, as results/reference/design.md says.

    python studies/reference.py rate RUNS    # the learning rate of the run with the least loss
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from ropewalk.lab.results import read_results


def best_rate(runs: Path) -> float:
    """Return the learning rate of the run in a folder whose validation loss is least."""
    losses = {}
    for path in sorted(runs.glob("*/results.json")):
        results = read_results(path.parent)
        ((cell,),) = (row.cells for row in results.encodings)
        loss = cell.validation_loss
        losses[results.config.learning_rate] = math.inf if loss is None else loss
    if not losses:
        raise SystemExit(f"reference: RUNS must have finished runs, got {runs}")
    return min(losses, key=losses.__getitem__)


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    actions = parser.add_subparsers(dest="action", required=True)
    rate = actions.add_parser("rate", help="print the learning rate with the least loss")
    rate.add_argument("runs", type=Path)
    options = parser.parse_args()
    print(best_rate(options.runs))


if __name__ == "__main__":
    main()
