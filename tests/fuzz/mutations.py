"""Mutate configs, encodings' texts, corpora, vocabularies and checkpoints: read, or refused by us.

``python tests/fuzz/mutations.py TARGET [SECONDS] [SEED]`` mutates for so long (ten minutes if not
given) and prints counts: accepted, refused, faults, the most CPU time and memory of one input. A
fault is an error that is not ours, something unsound that was accepted, or more than 2 s of CPU or
500 MB; its input is kept in a file that is named, and the exit status is 1.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from bounds import TooSlowError, measured
from fuzz_targets import TARGETS, Target

import ropewalk

OURS = str(Path(ropewalk.__file__).parent)
LONGEST_MESSAGE = 5_000
WORDS = [b"", b"\0", b"-", b"nan", b"inf", b"1e309", b"9" * 40, b"(" * 50, b'"', b"\n", b"\t"]
WORDS += [b"[" * 60, b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\x1f\x8b", b"2" * 5000, b"null", b","]
WORDS += [b"{}", b'""', b"\r", b"\r\n", b"\xef\xbb\xbf", b"\\u0000", b"+", b"=", b"True", b"1e-320"]


@dataclass
class Outcomes:
    """What became of the inputs."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0
    memory: int = 0


def mutate(data: bytes, draw: random.Random) -> bytes:
    """Change a few places: bits, bytes, words, numbers, pieces doubled, dropped or cut off."""
    for _ in range(draw.choice((0, 0, 1, 1, 2, 4))):
        header = min(len(data), 1500)
        start = draw.randrange((len(data) if draw.random() < 0.5 else header) + 1)
        end = min(len(data), start + draw.choice((0, 1, 1, 3, 20)))
        piece = data[start:end]
        how = draw.randrange(7)
        if how == 0 and piece:
            piece = bytes([piece[0] ^ (1 << draw.randrange(8))]) + piece[1:]
        elif how == 1:
            piece = draw.choice(WORDS)
        elif how == 2:
            piece = str(draw.choice((0, -1, 2**31, 2**40, 2**63, 10**18, 3))).encode()
        elif how == 3:
            piece = piece * draw.choice((0, 2, 200))
        elif how == 4:
            piece = bytes(draw.randrange(256) for _ in piece)
        elif how == 5:  # what stands elsewhere
            there = draw.randrange(len(data) + 1)
            piece = data[there : there + draw.choice((1, 8, 60))]
        elif draw.random() < 0.2:
            end = len(data)
        data = data[:start] + piece + data[end:]
    return data


def fuzz(target: str, folder: Path, seed: int, times: int | None, seconds: float) -> Outcomes:
    """Mutate so many times, or so long; tell what became of it."""
    draw, outcomes, began = random.Random(seed), Outcomes(), time.monotonic()
    for done in count():
        if done == times or (times is None and time.monotonic() - began > seconds):
            break
        data = mutate(TARGETS[target].make(draw), draw)
        outcome = trial(TARGETS[target], data, folder, outcomes)
        if outcome.startswith("fault"):
            path = Path(tempfile.gettempdir()) / f"fault-{target}-{seed}-{done}"
            path.write_bytes(data)
            outcomes.faults.append(f"{path}: {outcome}")
            print(outcomes.faults[-1], file=sys.stderr, flush=True)
        outcomes.counts[outcome.partition(":")[0]] += 1
    return outcomes


def trial(target: Target, data: bytes, folder: Path, outcomes: Outcomes) -> str:
    """Read an input; say whether it was accepted, refused or made a fault, and which."""
    outcome = "accepted"
    with measured() as use:
        try:
            target.read(data, folder)
        except TooSlowError:
            outcome = "fault: stopped"
        except (ValueError, TypeError) as error:
            outcome = _refusal(error)
        except Exception as error:
            outcome = f"fault: {_described(error)}"
    outcomes.seconds = max(outcomes.seconds, use.seconds)
    outcomes.memory = max(outcomes.memory, use.memory)
    beyond = use.fault()
    if beyond is not None and not outcome.startswith("fault"):
        return f"fault: {beyond}, {outcome}"
    return outcome


def _refusal(error: ValueError | TypeError) -> str:
    """Tell whether a refusal is one of ours: raised here, of a length one reads, in UTF-8."""
    message, place = str(error), traceback.extract_tb(error.__traceback__)[-1].filename
    if not place.startswith(OURS) or isinstance(error, UnicodeError):
        return f"fault: {_described(error)}"
    if len(message) > LONGEST_MESSAGE:
        return f"fault: {len(message)} characters: {message[:200]!r}"
    if any("\ud800" <= character <= "\udfff" for character in message):
        return f"fault: cannot be printed: {message[:200]!r}"
    return f"refused: {type(error).__name__}"


def _described(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {last.filename}:{last.lineno}: {str(error)[:200]!r}"


def main(target: str, seconds: str = "600", seed: str = "0") -> int:
    """Mutate for so long and print the counts as JSON."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        outcomes = fuzz(target, Path(name), int(seed), None, float(seconds))
    most = {"most CPU seconds": round(outcomes.seconds, 2), "most MB": outcomes.memory // 10**6}
    print(json.dumps({"target": target, "seed": int(seed), **outcomes.counts, **most}))
    return int(bool(outcomes.faults))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
