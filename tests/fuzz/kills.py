"""Kill a comparison at random moments, go on with the same command, and compare what it ends in.

``python tests/fuzz/kills.py [KILLS] [SEED]`` counts kills, by whom they hit and how, until so many
have hit somebody; a run that has come to its end is compared with an uninterrupted one, bit for
bit, and a new one is begun. It fails if one differs, or if a ``.part`` file, a lock or a cell is
left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from ropewalk.files import is_locked

WORDS = [
    *("compare", "--task", "copy", "--encodings", "none,rotary", "--seeds", "1", "--jobs", "2"),
    *("width=16", "heads=2", "feed_forward=16", "layers=1", "dropout=0.1", "examples=400"),
    *("train_length=6", "length_multiples=1,2", "test_examples=8", "batch_tokens=32", "epochs=1"),
    *("validations=6", "keep=2", "average=2", "precision=float32", "device=cpu"),
]
#: Who is hit, and by what; "both" are the parent and every cell, at once.
KINDS = [
    *(("parent", each) for each in (signal.SIGKILL, signal.SIGHUP, signal.SIGTERM, signal.SIGINT)),
    *(("cell", each) for each in (signal.SIGKILL, signal.SIGTERM)),
    *(("both", each) for each in (signal.SIGKILL, signal.SIGTERM)),
]
TIMED = {"seconds", "tokens_per_s", "peak_memory_bytes", "checksum", "duration_s", "started"}
TIMED |= {"equal_time"}
PATIENCE = 300  # seconds that a process may take to end before that is a failure


def heed_signals() -> None:
    """Undo what a child inherits: Ctrl-C ignored in the background, SIGHUP under nohup."""
    for number in {number for _, number in KINDS} - {signal.SIGKILL}:
        signal.signal(number, signal.SIG_DFL)


def start(run: Path) -> subprocess.Popen[bytes]:
    """Start the comparison in this run folder."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "ropewalk.cli", *WORDS, "--out", str(run)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=heed_signals,
    )


def cells_in(run: Path) -> list[int]:
    """List the processes of cells that work in this run folder."""
    written = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"ropewalk.lab.running.worker" in words and str(run).encode() in words:
                written.append(int(entry.name))
    return written


def kill(process: subprocess.Popen[bytes], run: Path, who: str, number: signal.Signals) -> bool:
    """Send the signal to whom it is meant for, where there is one; tell whether there was."""
    targets = [process.pid] if who in ("parent", "both") and process.poll() is None else []
    targets += cells_in(run) if who in ("cell", "both") else []
    for pid in targets:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            targets = [each for each in targets if each != pid]
    return bool(targets)


def ended(process: subprocess.Popen[bytes]) -> str:
    """Wait for a command and give what it said on standard error."""
    assert process.stderr is not None
    said = process.communicate(timeout=PATIENCE)[1].decode()
    assert "Traceback" not in said, said
    return said


def completed(run: Path) -> dict[str, object]:
    """Let a run end; give what it has written, without what time it took."""
    process = start(run)
    said = ended(process)
    assert process.returncode == 0, said
    written: dict[str, object] = {}
    for path in sorted((run / "cells").rglob("*.*")):
        if path.is_file() and path.name != "events.jsonl":  # of the last session alone
            name = str(path.relative_to(run))
            written[name] = path.read_bytes()
            if path.suffix == ".json":
                written[name] = _untimed(json.loads(path.read_bytes()))
    written["results.json"] = _untimed(json.loads((run / "results.json").read_bytes())["encodings"])
    return written


def leftovers(run: Path) -> list[str]:
    """List parts, locks and processes that a finished run has left."""
    parts = [str(path) for path in run.rglob("*.part")]
    locks = [f"lock on {path}" for path in (run / "cells").glob("*/*") if is_locked(path)]
    return parts + locks + [f"process {pid}" for pid in cells_in(run)]


def trial(
    folder: Path, kills: int, seed: int, wanted: dict[str, object], seconds: float
) -> Counter:
    """Kill so many times within runs in this folder, each let to its end; count what was hit."""
    draw, counts, number = random.Random(seed), Counter[str](), 0
    hits = 0
    while hits < kills:
        run = folder / f"run-{number}"
        number += 1
        most = draw.randint(4, 16)  # kills of one run
        for _ in range(min(most, kills - hits)):
            who, by = draw.choice(KINDS)
            process = start(run)
            time.sleep(draw.uniform(0.1, 1.0) * seconds)
            hit = kill(process, run, who, by)
            hits += hit
            counts[f"{who} {by.name}" if hit else f"{who} {by.name}, nobody there"] += 1
            ended(process)
        written = completed(run)
        differing = [k for k in wanted.keys() | written.keys() if wanted.get(k) != written.get(k)]
        assert not differing, f"{run}: {differing} differ after {dict(counts)}"
        assert not leftovers(run), leftovers(run)
        print(f"{number} runs compared: {dict(counts)}", file=sys.stderr, flush=True)
    counts["runs compared"] = number
    return counts


def uninterrupted(folder: Path) -> tuple[dict[str, object], float]:
    """Give what an uninterrupted run writes, and the seconds that it takes."""
    began = time.monotonic()
    return completed(folder / "whole"), time.monotonic() - began


def _untimed(value: object) -> object:
    if isinstance(value, dict):
        timed = {name for name in value if name in TIMED or name.endswith("_seconds")}
        return {name: _untimed(value[name]) for name in value.keys() - timed}
    return [_untimed(each) for each in value] if isinstance(value, list) else value


def main(kills: int = 100, seed: int = 0) -> None:
    """Run the trial and print its counts as JSON."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wanted, seconds = uninterrupted(folder)
        counts = trial(folder, kills, seed, wanted, seconds)
    print(json.dumps({"kills": kills, "seed": seed, **dict(sorted(counts.items()))}, indent=1))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
