"""Change published config.json files at random for some minutes, read each, and print counts.

Run it as `python tests/fuzz/fuzz_configs.py --minutes 10 --seed 1`. Each input may be read or
refused in words, in at most 2 s of CPU and 500 MB more than the imported process has. A fault is
printed with the seed that makes it again (`--only SEED`); the exit status is 1 if there was one.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from bounds import TooSlowError, Use, measured
from config_mutations import mutated, read


def trial(seed: int, folder: Path) -> tuple[str, Use]:
    """Make the input of this seed and read it; return what came of it, and what it took."""
    made = mutated(random.Random(seed))
    with measured() as use:
        try:
            outcome = read(made, folder)
        except AssertionError as error:
            outcome = f"fault: {error}"
        except TooSlowError:
            outcome = "fault: stopped"
        except (Exception, RecursionError) as error:
            outcome = f"fault: {type(error).__name__}: {str(error)[:200]!r}"
    beyond = use.fault()
    if beyond is not None and not outcome.startswith("fault"):
        outcome = f"fault: {beyond}"
    return outcome, use


def main() -> int:
    """Run the trials and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="one trial, by its seed")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    slowest, largest, faults = 0.0, 0, 0
    end = time.monotonic() + 60 * options.minutes
    first = options.seed * 10**9 if options.only is None else options.only
    with tempfile.TemporaryDirectory() as name:
        seed = first
        while time.monotonic() < end:
            outcome, use = trial(seed, Path(name))
            slowest, largest = max(slowest, use.seconds), max(largest, use.memory)
            counts[outcome.partition(":")[0]] += 1
            if outcome.startswith("fault"):
                faults += 1
                print(f"seed {seed}: {outcome}", flush=True)
            seed += 1
            if options.only is not None:
                break
    print(
        f"{sum(counts.values()):,} configs, seeds {first} to {seed - 1}: "
        f"{counts['read']:,} read, {counts['refused']:,} refused, {faults:,} faults; "
        f"slowest {slowest:.2f} s of CPU, {largest / 1e6:.0f} MB above an idle process"
    )
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
