"""Configs of every task but translation, as small as they can be."""

from ropewalk.lab.config import make_config

TEXT = ("masked-lm", "causal-lm")
OF_ONE_STACK = ("layers", "train_length", "length_multiples", "test_examples")
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


def translation_config(**fields):
    more = {"encoder_layers": 1, "decoder_layers": 1}
    tiny = {k: v for k, v in TINY.items() if k not in OF_ONE_STACK}
    return make_config(settings={**tiny, **more, **fields})
