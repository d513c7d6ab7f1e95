"""Kill commands while they work, go on with the same command, and compare what they end in.

``python tests/fuzz/kills.py [KILLS] [SEED]`` takes the targets below in turn until so many kills
have hit. A kill waits for an event, such as a cell that says that it trains, stops the process,
sees that it lives, and only then sends the signal. Some go on with a clock a day earlier
(Debian's faketime), or after a bit of a stored file has flipped. What has come to its end is
compared with what was never interrupted, bit for bit. It fails if one differs, if damage is not
named, or if a ``.part`` file, a lock or a cell is left.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from select import select

from ropewalk.files import is_locked
from ropewalk.lab.running.events import read_session

SMALL = [
    *("width=16", "heads=2", "feed_forward=16", "dropout=0.1", "batch_tokens=32"),
    *("validations=6", "keep=2", "average=2", "precision=float32", "device=cpu"),
]
CELLS = ["--encodings", "none,rotary", "--seeds", "1", "--jobs", "2"]
COPY = [
    *("compare", "--task", "copy", *CELLS, *SMALL, "layers=1", "examples=400", "epochs=1"),
    *("train_length=6", "length_multiples=1,2", "test_examples=8"),
]
TALES = [
    *("compare", "--task", "causal-lm", *CELLS, *SMALL, "layers=1", "examples=8", "epochs=0.2"),
    *("train_length=16", "length_multiples=1,2", "test_examples=40", "vocabulary=200"),
]
PHRASES = [
    *("compare", *CELLS, *SMALL, "encoder_layers=1", "decoder_layers=1", "examples=60"),
    *("epochs=0.2", "beam=2", "vocabulary=300"),
]
Kind = tuple[str, signal.Signals]
#: Who is hit, and by what; "both" are the parent and every cell, at once.
KINDS: list[Kind] = [
    *(("parent", each) for each in (signal.SIGKILL, signal.SIGHUP, signal.SIGTERM, signal.SIGINT)),
    *(("cell", each) for each in (signal.SIGKILL, signal.SIGTERM)),
    *(("both", each) for each in (signal.SIGKILL, signal.SIGTERM)),
]
TIMED = {"seconds", "tokens_per_s", "peak_memory_bytes", "checksum", "duration_s", "started"}
TIMED |= {"equal_time"}
PATIENCE = 300  # seconds that a process may take to end before that is a failure
CLOCK = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
STORED = ("last.safetensors", "text.safetensors", "splits.safetensors", "*.hypotheses.txt")


@dataclass(frozen=True)
class Target:
    """A command that is killed.

    words: those of the command; {out} is what it writes, {in} what `before` has made. phase: what
    a cell must be doing. Without it, the command itself is hit, as soon as a part of {out} is there
    or, if it writes none, it has printed its first byte.
    """

    words: list[str]
    phase: str | None = None
    before: Callable[[Path], None] | None = None


def _translator(folder: Path) -> None:
    run([*PHRASES, "--out", str(folder)])


def _model(folder: Path) -> None:
    """Write a Llama of 30 MB, which takes long enough to convert that a kill can hit."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8}
    config = LlamaConfig(vocab_size=2000, num_hidden_layers=2, **sizes)
    LlamaForCausalLM(config).save_pretrained(folder)


TARGETS = {
    "training": Target([*COPY, "--out", "{out}"], "training"),
    "answering": Target([*COPY, "--out", "{out}"], "answering"),
    "scoring": Target([*TALES, "--out", "{out}"], "scoring"),
    "decoding": Target([*PHRASES, "--out", "{out}"], "translating"),
    "tuning": Target(["tune", "{out}", "length_penalty=0.6,1.4"], "tuning", _translator),
    "export": Target(
        ["export", "{in}/cells/rotary/seed-1", "{out}", "--to", "ctranslate2"], None, _translator
    ),
    "convert": Target(["convert", "{in}", "{out}", "--to", "interleaved"], None, _model),
    "catalogue": Target(["catalogue", "--json"]),
}


def heed_signals() -> None:
    """Undo what a child inherits: Ctrl-C ignored in the background, SIGHUP under nohup."""
    for number in {number for _, number in KINDS} - {signal.SIGKILL}:
        signal.signal(number, signal.SIG_DFL)


def start(words: list[str], *, yesterday: bool = False) -> subprocess.Popen[bytes]:
    """Start a command, with a clock that is a day late if it should."""
    clock = {"LD_PRELOAD": str(CLOCK), "FAKETIME": "-1d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "ropewalk.cli", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(clock if yesterday else {})},
        preexec_fn=heed_signals,
    )


def ended(process: subprocess.Popen[bytes]) -> tuple[bytes, str]:
    """Wait for a command and give what it printed, and what it said on standard error."""
    printed, said = process.communicate(timeout=PATIENCE)
    assert b"Traceback" not in said, said.decode()
    return printed, said.decode()


def run(words: list[str]) -> bytes:
    """Let a command end as it should, and give what it printed."""
    process = start(words)
    printed, said = ended(process)
    assert process.returncode == 0, said
    return printed


def state(pid: int) -> str:
    """Return the letter of a process in /proc: T if it is stopped, Z if it has ended; else X."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(") ")[2][0]
    except OSError:
        return "X"


def stops(pid: int) -> bool:
    """Stop a process, and tell whether it lives, and so waits."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    while (now := state(pid)) not in "TZX":
        time.sleep(0.001)
    return now == "T"


def cells_of(out: Path, phase: str = "", share: float = 0.0) -> list[int]:
    """List the cells that live, by what they do, and in training by how far."""
    found = []
    for folder in out.glob("cells/*/*"):
        if not (session := read_session(folder)):
            continue  # its first line is being written
        event = next((each for each in reversed(session) if "phase" in each), {})
        far = event.get("step", 1) >= share * event.get("steps", 1)
        if str(event.get("phase", "")).startswith(phase) and far:
            found.append(session[0].get("pid", 0))
    return [pid for pid in found if pid and state(pid) not in "ZX"]


def shown_by(
    process: subprocess.Popen[bytes], target: Target, out: Path, share: float
) -> list[int]:
    """List the processes that show the event of a target, if there are any."""
    if target.phase is not None:
        return cells_of(out, target.phase, share)
    if "{out}" in target.words:
        return [process.pid] if any(out.parent.glob(f".{out.name}.*")) else []
    return [process.pid] if select([process.stdout], [], [], 0)[0] else []


def strike(
    process: subprocess.Popen[bytes], target: Target, out: Path, share: float, kind: Kind
) -> bool:
    """Send a signal to those whom it is meant for, once the event is there and they live."""
    who, by = kind
    while process.poll() is None:
        if shows := shown_by(process, target, out, share):
            stopped = [pid for pid in {process.pid, *shows, *cells_of(out)} if stops(pid)]
            chosen = [
                pid for pid in stopped if who == "both" or (who == "parent") == (pid == process.pid)
            ]
            hit = chosen if {*shows} & {*stopped} else []
            for pid in hit:
                os.kill(pid, by)
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            if hit:
                return True
        time.sleep(0.001)
    return False


def written(out: Path, printed: bytes) -> dict[str, object]:
    """Give what a command has written and printed, without what time it took."""
    if not (out / "cells").exists():
        files = [path for path in out.rglob("*") if path.is_file()]
        return {str(path.relative_to(out)): path.read_bytes() for path in files} or {"": printed}
    found: dict[str, object] = {}
    for path in sorted((out / "cells").rglob("*.*")):
        if path.is_file() and path.name != "events.jsonl":  # of the last session alone
            name = str(path.relative_to(out))
            found[name] = path.read_bytes()
            if path.suffix == ".json":
                found[name] = _untimed(json.loads(path.read_bytes()))
    found["results.json"] = _untimed(json.loads((out / "results.json").read_bytes())["encodings"])
    return found


def leftovers(out: Path) -> list[str]:
    """List parts, locks and processes that a command which has come to its end has left."""
    parts = [str(path) for path in out.parent.rglob("*.part")]
    locks = [f"lock on {path}" for path in out.glob("cells/*/*") if is_locked(path)]
    return parts + locks + [f"process {pid}" for pid in cells_of(out)]


def flip(draw: random.Random, out: Path) -> Path | None:
    """Flip one bit of a file that the command will read again, if there is one."""
    files = sorted(path for pattern in STORED for path in out.rglob(pattern))
    if not files:
        return None
    path = draw.choice(files)
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)
    return path


@dataclass
class Trial:
    """Kills of one target. made: what its words read. wanted: what it writes if nothing hits it."""

    target: Target
    folder: Path
    draw: random.Random
    counts: Counter[str]

    def __post_init__(self) -> None:
        self.made = self.folder / "made"
        if self.target.before is not None:
            self.target.before(self.made)
        out = self._place("whole")
        self.wanted = written(out, run(self._words(out)))

    def _place(self, name: str) -> Path:
        out = self.folder / name / "out"
        out.parent.mkdir(parents=True)
        if self.target.words[0] == "tune":
            shutil.copytree(self.made, out)
        return out

    def _words(self, out: Path) -> list[str]:
        return [word.format(**{"out": out, "in": self.made}) for word in self.target.words]

    def __call__(self, name: str, kills: int) -> None:
        """Kill so many times, let the command come to its end, and compare."""
        out, yesterday = self._place(name), False
        for _ in range(kills):
            kind = self.draw.choice(KINDS if self.target.phase else KINDS[:4])
            process = start(self._words(out), yesterday=yesterday)
            hit = strike(process, self.target, out, self.draw.random(), kind)
            ended(process)
            self.counts[f"{kind[0]} {kind[1].name}" if hit else "over before the event"] += 1
            yesterday = CLOCK.exists() and self.draw.random() < 0.3
            self.counts["clock a day earlier"] += yesterday
            if self.draw.random() < 0.3 and (damaged := flip(self.draw, out)):
                self._named_or_mended(out, damaged)
        found = written(out, run(self._words(out)))
        differing = [
            k for k in self.wanted.keys() | found.keys() if self.wanted.get(k) != found.get(k)
        ]
        assert not differing, f"{out}: {differing} differ after {dict(self.counts)}"
        assert not leftovers(out), leftovers(out)

    def _named_or_mended(self, out: Path, damaged: Path) -> None:
        """Go on after damage: it is made again, or named by a message whose advice is followed."""
        process = start(self._words(out))
        said = ended(process)[1]
        self.counts["flipped bits"] += 1
        if process.returncode:
            assert damaged.name in said, said
            assert "delete it" in said, said
            damaged.unlink()


def _untimed(value: object) -> object:
    if isinstance(value, dict):
        timed = {name for name in value if name in TIMED or name.endswith("_seconds")}
        return {name: _untimed(value[name]) for name in value.keys() - timed}
    return [_untimed(each) for each in value] if isinstance(value, list) else value


def main(kills: int = 200, seed: int = 0) -> None:
    """Share the kills among the targets, and print the counts of each as JSON."""
    draw, counts = random.Random(seed), {name: Counter[str]() for name in TARGETS}
    with tempfile.TemporaryDirectory() as name:
        trials = [
            Trial(target, Path(name) / key, draw, counts[key]) for key, target in TARGETS.items()
        ]
        number = 0
        while hits(counts) < kills:
            trials[number % len(trials)](f"run-{number}", draw.randint(1, 4))
            number += 1
            print(f"{hits(counts)} kills, {number} compared", file=sys.stderr, flush=True)
    print(json.dumps({"seed": seed, "kills": hits(counts), "compared": number, **counts}, indent=1))


def hits(counts: dict[str, Counter[str]]) -> int:
    """Count the kills that hit."""
    kinds = {f"{who} {by.name}" for who, by in KINDS}
    return sum(each[kind] for each in counts.values() for kind in kinds)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
