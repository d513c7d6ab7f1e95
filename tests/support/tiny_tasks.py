"""Configs of every task but translation, as small as they can be."""

from ropewalk.lab.config import make_config

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


def config_of(task, **fields):
    more = {"examples": 40}
    if task in TEXT:
        more = {"examples": 3, "vocabulary": 120, "train_length": 8}
    if task == "masked-lm":
        more["length_multiples"] = (1,)
    return make_config(settings={"task": task, **TINY, **more, **fields})
