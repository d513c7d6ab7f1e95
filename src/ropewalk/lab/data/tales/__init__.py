"""Built-in running text: English tales of a small village, made up from a seed.

A tale tells early who lives there, where, with what and with which wishes and fears, and comes
back to all of it hundreds of words later: people are called by name, by trade or by a pronoun, ask
each other what the reader has been told, and hand things on, so that at any time a thing has the
one place that its story gave it.

words      what tales are made of
world      who and what there is, and how things stand
plans      the sentences, with slots
telling    fills the slots: names, trades, pronouns
story      what happens
"""

from __future__ import annotations

from ropewalk.lab.data.rng import SPLITS, Rng, Split, split_of
from ropewalk.lab.data.tales.story import Paragraphs, Story

__all__ = ["SHORTEST", "derive", "tales"]

SHORTEST = 300
"""Words of the shortest tale: an opening, an end, and something between."""


def tales(count: int, words: int, seed: int, split: Split = "train") -> list[str]:
    """Tell so many tales of about so many words each, one paragraph a line.

    A cast, by names and trades, is met in one split only, so that no tale is in two. Equal
    arguments give equal tales, whatever the version of Python.

    Raises:
        ValueError: a count, a number of words or a split that there cannot be.
    """
    return [
        "\n".join(" ".join(passage.text for passage in paragraph) for paragraph in tale)
        for tale in derive(count, words, seed, split)
    ]


def derive(count: int, words: int, seed: int, split: Split = "train") -> list[Paragraphs]:
    """Give the tales of `tales`, each passage with the event that it tells."""
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
