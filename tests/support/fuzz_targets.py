"""External inputs for the fuzzer: inputs of each format and their allowed outcomes.

A reader returns if the input was accepted and its result is sound, raises ValueError or TypeError
if it was refused, and AssertionError if something unsound was accepted.
"""

from __future__ import annotations

import inspect
import random
import tempfile
import warnings
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from config_mutations import read_config
from corpus_inputs import gzipped, lines, running_text, sides, table
from tiny_tasks import config_of, translation_config

from ropewalk.encodings import REGISTRY
from ropewalk.lab.config_sources import make_config
from ropewalk.lab.data.corpus import Corpus, load_corpus
from ropewalk.lab.data.texts import load_texts
from ropewalk.lab.decoding.greedy import generate
from ropewalk.lab.decoding.translator import translate_ids
from ropewalk.lab.models import Model, build_model, load_model, weights_of
from ropewalk.lab.tensors import write_tensors
from ropewalk.lab.tokens import Tokens
from ropewalk.lab.training.checkpoints import training_fields
from ropewalk.model import Transformer

VOCABULARY = 12
MODERATE = 1e3  # larger weights may overflow in a model
BETWEEN_SIDES = b"\n=====\n"  # of two files, in one input
# Texts of encodings, as on the command line, and what their arguments may be changed to.
ENCODINGS = [
    "rotary(theta=1e6)",
    "learned(max_positions=40)+t5",
    "rotary(rule=yarn,factor=4,original_length=64)",
    "rotary(rule=longrope,short_factor=[1,1,1,1],long_factor=[2,2,2,2],original_length=8)",
    "rotary(pairing=interleaved,rotary_dim=4)",
    "xpos(both_ways=rotary)",
    "alibi+none",
    "tupe(relative=True,max_positions=8)",
    "rotary(cross=True)",
]
KEYS = ["rule", "factor", "theta", "pairing", "rotary_dim", "original_length", "cross", "learned"]
NUMBERS = "0 1 2 3 4 8 16 64 -1 0.5 1.5 -0.0 1e-9 1e6 1e300 1e309 5e-324 2**40 1j 0x10 nan inf"
NAMES = "half yarn linear llama3 rotary alibi power head layer ntk dynamic proportional longrope x"
OTHERS = ["True", "False", "None", "[1,2]", "[]", "[1.0,1,1,1]", "(1,)", "{}", "'x'", "b'a'", "..."]
HUGE = [str(2**31), str(2**63), "9" * 500, "[" * 90 + "]" * 90, "-" * 300 + "1", "'\\ud800'", "1if"]
VALUES = [*NUMBERS.split(), *NAMES.split(), *OTHERS, *HUGE]


class Target(NamedTuple):
    """How inputs of a format are made before they are mutated, and how one is read."""

    make: Callable[[random.Random], bytes]
    read: Callable[[bytes, Path], None]


def encoding_text(draw: random.Random) -> bytes:
    """Draw an encoding's text: existing names with possible arguments."""
    if draw.random() < 0.2:
        return draw.choice(ENCODINGS).encode()
    count = draw.choice((1, 1, 1, 2, 3))
    return "+".join(_call(draw) for _ in range(count)).encode("utf-8", "surrogatepass")


def _call(draw: random.Random) -> str:
    name = draw.choice(sorted(REGISTRY))
    known = [each for each in inspect.signature(REGISTRY[name]).parameters if each != "shape"]
    names = draw.sample([*known, *KEYS], draw.choice((0, 1, 1, 2, 3)))
    if not names:
        return name
    return f"{name}({','.join(f'{each}={draw.choice(VALUES)}' for each in names)})"


def read_encoding(data: bytes, folder: Path) -> None:
    """Read an encoding's text, build a small model with it, and run some tokens through it."""
    text = data.decode("utf-8", "surrogateescape")
    task = ("translation", "causal-lm", "masked-lm")[zlib.crc32(data) % 3]
    layers = {"encoder_layers": 1, "decoder_layers": 1} if task == "translation" else {"layers": 1}
    settings = {"task": task, "encodings": [text], "width": 16, "heads": 2, "feed_forward": 16}
    config = make_config(settings={**settings, **layers})
    model = build_model(config, config.encodings[0], 1, VOCABULARY).eval()
    assert all(output.isfinite().all() for output in outputs(model)), "an output is not finite"


@torch.no_grad()
def outputs(model: Model) -> list[torch.Tensor]:
    """Run a few tokens through a model."""
    tokens = torch.tensor([[4, 5, 6, 7, 4, 5], [6, 4, 4, 5, 7, 7]])
    if isinstance(model, Transformer):
        return [model(tokens, tokens[:, :4], torch.ones_like(tokens, dtype=torch.bool))]
    return [model(tokens)]


def corpus_reader(ending: str) -> Callable[[bytes, Path], None]:
    """Return the reader of a corpus of one file, or of two sides if there is no ending."""

    def read(data: bytes, folder: Path) -> None:
        for path in folder.iterdir():
            path.unlink()
        if ending == "jsonl":
            for split in ("train", "val"):
                (folder / f"{split}.jsonl").write_bytes(data)
            corpus = load_corpus(str(folder))
        elif ending:
            (folder / f"all.{ending}").write_bytes(data)
            corpus = load_corpus(str(folder / f"all.{ending}"))
        else:
            one, found, other = data.partition(BETWEEN_SIDES)
            (folder / "all.de").write_bytes(one)
            (folder / "all.en").write_bytes(other if found else one)
            corpus = load_corpus(f"{folder / 'all.de'},{folder / 'all.en'}")
        check_corpus(corpus)

    return read


def check_corpus(corpus: Corpus) -> None:
    """Assert what a corpus promises: pairs in each split, both sides not empty, one UTF-8 line."""
    assert {"train", "validation"} <= corpus.splits.keys()
    for pairs in corpus.splits.values():
        assert pairs
        for text in (text for pair in pairs for text in pair):
            check_text(text)
            assert text == text.strip(), text[:80]
            assert "\n" not in text, text[:80]


def check_text(text: str) -> None:
    """Assert what every text promises: it is not empty, UTF-8 can encode it, it has no NUL."""
    assert text, "an empty text"
    assert "\0" not in text, text[:80]
    text.encode()


def read_gzip(data: bytes, folder: Path) -> None:
    """Read a gzipped file as one of the formats, which the input itself chooses."""
    readers = [corpus_reader(ending) for ending in ("tsv.gz", "csv", "jsonl", "")]
    [*readers, read_texts][zlib.crc32(data) % 5](data, folder)


def read_texts(data: bytes, folder: Path) -> None:
    """Read running text."""
    (folder / "all.txt").write_bytes(data)
    texts = load_texts(str(folder / "all.txt"))
    assert {"train", "validation"} <= texts.splits.keys()
    for documents in texts.splits.values():
        assert documents
        for text in documents:
            check_text(text)


def read_checkpoint(data: bytes, folder: Path) -> None:
    """Read a model file, as `translate` does, and run the model on something short."""
    path = folder / "model.safetensors"
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, config = load_model(path, torch.device("cpu"))
    weights = weights_of(model).values()
    assert all(bool(weight.isfinite().all()) for weight in weights), "a weight is not finite"
    ids = [4 % model.shape.vocabulary, 5 % model.shape.vocabulary]
    if isinstance(model, Transformer):
        found = translate_ids(model, [ids, ids[:1]], beam=2)
        answers = [list(hypothesis.ids) for hypotheses in found for hypothesis in hypotheses]
        assert all(found), "a sentence without a translation"
    elif config.causal:
        answers = generate(model, torch.tensor([ids]), max_tokens=5)
    else:
        answers = []
    assert all(0 <= i < model.shape.vocabulary for answer in answers for i in answer)
    if all(weight.abs().max() < MODERATE for weight in weights) and max(ids) >= 5:
        mask = torch.ones(1, 2, dtype=torch.bool)
        one = torch.tensor([ids])
        output = model(one, one, mask) if isinstance(model, Transformer) else model(one)
        assert output.isfinite().all(), "an output is not finite"


def read_tokenizer(data: bytes, folder: Path) -> None:
    """Read a vocabulary; let it write and read a sentence."""
    path = folder / "tokenizer.json"
    path.write_bytes(data)
    tokens = Tokens.load(path)
    (ids,) = tokens.encode(["Ein Satz, gleich hier."])
    assert tokens.size >= 0
    tokens.decode(ids).encode()


def _checkpoints() -> list[bytes]:
    configs = [
        config_of("copy", encodings="rotary", seeds=1),
        config_of("masked-lm", encodings="t5", seeds=1),
        translation_config(encodings="sinusoidal+rotary(cross=True)", seeds=1),
    ]
    found = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.safetensors"
        for config in configs:
            encoding = config.encodings[0]
            facts = {"config": training_fields(config), "encoding": encoding, "seed": 1}
            write_tensors(path, weights_of(build_model(config, encoding, 1, VOCABULARY)), facts)
            checked = path.read_bytes()
            # Without the checksum a change is not detected, so the reader must handle it.
            found += [checked, *[checked.replace(b"checksum", b"checksun")] * 3]
    return found


def _one_of(make: Callable[[], list[bytes]]) -> Callable[[random.Random], bytes]:
    made = cache(make)
    return lambda draw: draw.choice(made())


def _tokenizers() -> list[bytes]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "tokenizer.json"
        Tokens.train(["Ein Satz ist hier, ein Satz ist da."], 40).save(path)
        return [path.read_bytes()]


TARGETS = {
    "configs": Target(lambda draw: b"%d" % draw.getrandbits(64), read_config),
    "encodings": Target(encoding_text, read_encoding),
    "jsonl": Target(lines, corpus_reader("jsonl")),
    "csv": Target(lambda draw: table(draw, ","), corpus_reader("csv")),
    "tsv": Target(lambda draw: table(draw, "\t"), corpus_reader("tsv")),
    "sides": Target(lambda draw: sides(draw, BETWEEN_SIDES), corpus_reader("")),
    "texts": Target(running_text, read_texts),
    "gzip": Target(gzipped, read_gzip),
    "checkpoints": Target(_one_of(_checkpoints), read_checkpoint),
    "tokenizers": Target(_one_of(_tokenizers), read_tokenizer),
}
