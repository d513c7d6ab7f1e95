"""Write the answers about one run that the exported explorer has instead of Python.

    ropewalk compare --encodings sinusoidal,rotary,alibi --seeds 1 --out runs/explorer
    python studies/explorer_run.py runs/explorer

The corpus must be the built-in one, which may be passed on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ropewalk.explorer
from ropewalk.explorer.attention_room import attention_answer, read_run, run_answer
from ropewalk.files import write_bytes

FILE = Path(ropewalk.explorer.__file__).parent / "stored_run.json"
BUILT_IN = "phrases"


def main(run: str) -> None:
    """Write `run` and `attention-1`, …: the answers to what the room Attention asks."""
    _, results, stored = read_run(run)
    if results.corpus.name != BUILT_IN:
        sys.exit(f"the run must be of the built-in {BUILT_IN}, got {results.corpus.name}")
    question = {"run": run, "text": "", "target": ""}
    told = {"run": {**run_answer(question), "typed": False}}  # no model reads a typed text
    for place in range(len(stored.sentences)):
        told[f"attention-{place + 1}"] = attention_answer({**question, "example": place})
    text = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
    write_bytes(FILE, f"{text}\n".encode())
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
