"""Configs of every task, as small as they can be."""

import torch

from ropewalk.lab.config_sources import make_config
from ropewalk.lab.data.batches import EncodedSplit

TEXT = ("masked-lm", "causal-lm")
TINY = {
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "layers": 1,
    "train_length": 4,
    "length_multiples": (1, 3),
    "test_examples": 6,
    "batch_tokens": 64,
    "validations": 2,
    "keep": 2,
    "precision": "float32",
    "device": "cpu",
    "seeds": (1, 2),
}
#: A comparison that trains in a second.
TINY_COPY = {
    "task": "copy",
    "layers": 1,
    "width": 16,
    "heads": 2,
    "feed_forward": 16,
    "examples": 40,
    "train_length": 3,
    "length_multiples": (1,),
    "test_examples": 5,
    "epochs": 1,
    "device": "cpu",
}
TINY_TRANSLATION = {
    "epochs": 2,
    "width": 16,
    "heads": 2,
    "feed_forward": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "dropout": 0.1,
    "batch_tokens": 64,
    "precision": "float32",
    "validations": 3,
    "keep": 2,
    "average": 2,
    "device": "cpu",
}
TRANSLATION_VOCABULARY = 20


def config_of(task, **fields):
    more = {"examples": 40}
    if task in TEXT:
        more = {"examples": 3, "vocabulary": 120, "train_length": 8}
    if task == "masked-lm":
        more["length_multiples"] = (1,)
    return make_config(settings={"task": task, **TINY, **more, **fields})


def translation_config(**fields):
    return make_config(settings={**TINY_TRANSLATION, **fields})


def translation_splits():
    """Pairs of random rows to train and validate a translation with."""
    generator = torch.Generator().manual_seed(0)

    def rows(count):
        lengths = torch.randint(2, 9, (count,), generator=generator).tolist()
        return [
            torch.randint(4, TRANSLATION_VOCABULARY, (n,), generator=generator).tolist()
            for n in lengths
        ]

    return {
        "train": EncodedSplit(rows(60), rows(60)),
        "validation": EncodedSplit(rows(10), rows(10)),
    }
