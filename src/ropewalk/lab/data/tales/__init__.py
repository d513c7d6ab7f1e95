"""Built-in running text: English tales of a small village, generated from a seed.

A tale introduces people early with their homes, things, wishes and fears, and returns to these
facts hundreds of words later. People are called by name, by trade or by a pronoun, ask each other
what the reader has been told, and pass things on, so that the story determines at any time where a
thing is.

elements   names, trades, places, things and other word lists
world      the people and things of a tale, and their current state
plans      the sentences, with slots
telling    fills the slots: names, trades, pronouns
story      the events
"""

from __future__ import annotations

from ropewalk.lab.data.rng import SPLITS, Rng, Split, split_of
from ropewalk.lab.data.tales.story import Paragraphs, Story

__all__ = ["SHORTEST", "derive", "tales"]

SHORTEST = 300
"""Least number of words of a tale: an opening, an end, and scenes between."""


def tales(count: int, words: int, seed: int, split: Split = "train") -> list[str]:
    """Return `count` tales of about `words` words each, one paragraph per line.

    A cast, by names and trades, occurs in one split only, so that no tale is in two. Equal
    arguments give equal tales in every version of Python.

    Raises:
        ValueError: if count is negative, words is below `SHORTEST` or the split is unknown.
    """
    return [
        "\n".join(" ".join(passage.text for passage in paragraph) for paragraph in tale)
        for tale in derive(count, words, seed, split)
    ]


def derive(count: int, words: int, seed: int, split: Split = "train") -> list[Paragraphs]:
    """Return the tales of `tales`, each passage with the event that it tells."""
    if count < 0:
        raise ValueError(f"count must not be negative, got {count}")
    if words < SHORTEST:
        raise ValueError(f"words must be at least {SHORTEST}, got {words}")
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    rng = Rng(f"tales/{split}/{seed}")
    told: list[Paragraphs] = []
    while len(told) < count:
        story = Story(rng, words)
        if split_of(story.world.describe_cast()) == split:
            told.append(story.tell())
    return told
