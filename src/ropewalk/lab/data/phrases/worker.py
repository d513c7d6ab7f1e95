"""The process that draws blocks of training pairs: `python -m ropewalk.lab.data.phrases.worker`.

It needs neither torch nor numpy. Its arguments are the first block, the step to its next block, and
the pairs of a block. To standard output it writes, for each block, three sizes and three parts: the
source sentences, the target sentences, and the hashes of both, pair by pair. It never ends by
itself: its parent kills it, or the pipe breaks because the parent has ended.
"""

from __future__ import annotations

import hashlib
import os
import signal
import struct
import sys
from itertools import count, islice

from ropewalk.lab.data.phrases import LONGEST, SHORTEST, Pair, drawn
from ropewalk.lab.data.phrases.grammar import Grammar

#: Sizes of the three parts of a block, in bytes.
SIZES = struct.Struct("<3q")
HASH_BYTES = 8
#: The seed of block 0. The splits of `generate` use seeds 0 and 1.
FIRST_SEED = 1_000_000


def draw_block(number: int, size: int) -> list[Pair]:
    """Return the pairs of a block; no sentence occurs twice in it."""
    usual = range(SHORTEST, LONGEST + 1)
    items = drawn(Grammar(FIRST_SEED + number).sentence, usual, set())
    return [pair for pair, _ in islice(items, size)]


def hash_of(sentence: str) -> bytes:
    """Return a hash that is the same on every machine."""
    return hashlib.blake2b(sentence.encode(), digest_size=HASH_BYTES).digest()


def main(first: int, step: int, size: int) -> None:
    """Write blocks until the pipe breaks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # at Ctrl-C, the parent ends this process
    output = sys.stdout.buffer
    for number in count(first, step):
        pairs = draw_block(number, size)
        parts = [
            "\n".join(source for source, _ in pairs).encode(),
            "\n".join(target for _, target in pairs).encode(),
            b"".join(hash_of(sentence) for pair in pairs for sentence in pair),
        ]
        output.write(SIZES.pack(*map(len, parts)))
        for part in parts:
            output.write(part)
        output.flush()


if __name__ == "__main__":
    try:
        main(*map(int, sys.argv[1:]))
    except BrokenPipeError:
        os._exit(0)  # without the flush at exit, which would fail too
