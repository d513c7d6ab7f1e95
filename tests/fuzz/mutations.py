"""Mutate encodings' texts, corpora and checkpoints; whatever is read must be read or refused by us.

``python tests/fuzz/mutations.py TARGET [SECONDS] [SEED]`` mutates for so long (ten minutes if not
given) and prints counts: accepted, and each kind of refusal. An exception that is not ours ends it,
with the input in a file.
"""

from __future__ import annotations

import gzip
import json
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import torch
from tiny_tasks import config_of

from ropewalk.lab.checkpoint import write_tensors
from ropewalk.lab.config import make_config
from ropewalk.lab.data.corpus import CorpusError, load_corpus
from ropewalk.lab.models import build_model, load_model, weights_of

Reader = Callable[[bytes, Path], None]
WORDS = [
    b"",
    b"\0",
    b"-",
    b"nan",
    b"inf",
    b"1e309",
    b"9" * 40,
    b"(" * 50,
    b'"',
    b"\n",
    b"\t",
    b"{}",
]
WORDS += [b"[" * 60, b"\xff", b"\xed\xa0\x80", b"\\ud800", b"\x1f\x8b", b"2" * 5000, b"null", b","]
TEXTS = [
    b"rotary(theta=1e6)",
    b"learned(max_positions=40)+t5",
    b"rotary(rule=yarn,factor=4,original_length=64)",
    b"xpos(both_ways=rotary)",
    b"alibi+none",
    b"tupe(relative=True,max_positions=8)",
]


def read_encoding(data: bytes, folder: Path) -> None:
    """Read an encoding's text, as the command line gives it."""
    text = data.decode("utf-8", "surrogateescape")
    make_config(settings={"encodings": [text], "width": 16, "heads": 2})


def read_corpus(data: bytes, folder: Path) -> None:
    """Read the same bytes as a side, as JSON lines, and as a table."""
    refused: CorpusError | None = None
    for ending in ("jsonl", "csv", "tsv", "de"):
        path = folder / f"all.{ending}"
        path.write_bytes(data)
        name = str(path) if ending in ("csv", "tsv") else f"{path},{path}"
        if ending == "jsonl":
            for split in ("train", "val"):
                (folder / f"{split}.jsonl").write_bytes(data)
            name = str(folder)
        try:
            corpus = load_corpus(name)
            json.dumps(dict(corpus.splits), ensure_ascii=False).encode()
        except CorpusError as error:
            refused = error
    if refused is not None:
        raise refused


def read_checkpoint(data: bytes, folder: Path) -> None:
    """Read a model file, as ``translate`` does."""
    path = folder / "model.safetensors"
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, _ = load_model(path, torch.device("cpu"))
    assert all(bool(weight.isfinite().all()) for weight in weights_of(model).values())


def _corpora() -> list[bytes]:
    rows = [(f"Satz {i}.", f"Sentence {i}.") for i in range(6)]
    jsonl = "".join(json.dumps({"de": de, "en": en}) + "\n" for de, en in rows).encode()
    tsv = "".join(f"{de}\t{en}\n" for de, en in rows).encode()
    return [
        jsonl,
        tsv,
        b'"Er sagt ""ja"".",He says\n' + tsv.replace(b"\t", b","),
        gzip.compress(tsv),
    ]


def _checkpoints() -> list[bytes]:
    config = config_of("copy", encodings="rotary", seeds=1)
    facts = {"config": config.training(), "encoding": "rotary", "seed": 1}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.safetensors"
        write_tensors(path, weights_of(build_model(config, "rotary", 1, 12)), facts)
        checked = path.read_bytes()
    # Without its checksum a change is not seen for what it is, and has to be understood.
    return [checked, checked.replace(b"checksum", b"checksun")]


TARGETS: dict[str, tuple[Reader, Callable[[], list[bytes]]]] = {
    "encodings": (read_encoding, lambda: TEXTS),
    "corpora": (read_corpus, _corpora),
    "checkpoints": (read_checkpoint, _checkpoints),
}


def mutate(data: bytes, draw: random.Random) -> bytes:
    """Change a few places: bits, bytes, words, numbers, pieces doubled, dropped or cut off."""
    for _ in range(draw.choice((1, 1, 2, 4))):
        start = draw.randrange(len(data) + 1) if draw.random() < 0.5 else _header(data, draw)
        end = min(len(data), start + draw.choice((0, 1, 1, 3, 20)))
        piece = data[start:end]
        how = draw.randrange(6)
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
        elif draw.random() < 0.2:
            end = len(data)
        data = data[:start] + piece + data[end:]
    return data


def _header(data: bytes, draw: random.Random) -> int:
    return draw.randrange(min(len(data), 1500) + 1)


def fuzz(target: str, folder: Path, seed: int, times: int | None, seconds: float) -> Counter[str]:
    """Mutate so many times, or so long; count what became of it."""
    read, make = TARGETS[target]
    draw, counts, began = random.Random(seed), Counter[str](), time.monotonic()
    originals = make()
    for done in count():
        if done == times or (times is None and time.monotonic() - began > seconds):
            return counts
        data = mutate(draw.choice(originals), draw)
        used, refusal = time.process_time(), None
        try:
            read(data, folder)
        except (ValueError, TypeError) as error:
            refusal = error
        except BaseException:
            (Path(tempfile.gettempdir()) / f"foreign-{target}").write_bytes(data)
            raise
        assert not isinstance(refusal, UnicodeError), data
        assert len(str(refusal)) < 5000, data[:200]
        counts[f"refused: {type(refusal).__name__}" if refusal else "accepted"] += 1
        if time.process_time() - used > 2:
            counts["over 2 s of CPU"] += 1
    raise AssertionError


def main(target: str, seconds: str = "600", seed: str = "0") -> None:
    """Mutate for so long and print the counts as JSON."""
    with tempfile.TemporaryDirectory() as name:
        counts = fuzz(target, Path(name), int(seed), None, float(seconds))
    print(json.dumps({"target": target, "seed": int(seed), **dict(sorted(counts.items()))}))


if __name__ == "__main__":
    main(*sys.argv[1:])
