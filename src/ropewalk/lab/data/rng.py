"""Random choices that are the same in every version of Python, and splits by hash."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import Literal, TypeVar, get_args

T = TypeVar("T")
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


def split_of(key: str) -> Split:
    """Return the split of this key, by its hash: 80 % train, 10 % validation, 10 % test."""
    place = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % 10
    return "test" if place == 0 else "validation" if place == 1 else "train"


class Rng:
    """Random choices from `random.Random(seed).random`, which is the same in every Python."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def below(self, stop: int) -> int:
        """Draw an integer from 0 to stop - 1."""
        return int(self.random() * stop)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def several(self, options: Sequence[T], count: int) -> list[T]:
        """Draw `count` options with replacement."""
        return [self.pick(options) for _ in range(count)]

    def shuffled(self, options: Sequence[T], count: int | None = None) -> list[T]:
        """Draw `count` options, or all, without replacement, in random order."""
        left = list(options)
        count = len(left) if count is None else count
        for i in range(count):
            j = i + self.below(len(left) - i)
            left[i], left[j] = left[j], left[i]
        return left[:count]
