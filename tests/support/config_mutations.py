"""Published config.json files, changed at random: inputs of the fuzzer, and how one is read."""

from __future__ import annotations

import copy
import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from published import PUBLISHED

from ropewalk import ModelSpec
from ropewalk.rotary.config.config_json import MOST_THETA
from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.rotary.config.stacks import MULTIMODAL_MODELS
from ropewalk.rotary.config.unread_types import UNSUPPORTED, WITHOUT_ROPE
from ropewalk.rotary.spec import MAX_HEAD_DIM

TYPES = [*CONVENTIONS, *MULTIMODAL_MODELS, *UNSUPPORTED, *WITHOUT_ROPE]


def _deep(depth: int) -> Any:
    value: Any = 1
    for i in range(depth):
        value = [value] if i % 2 else {"a": value}
    return value


# Values that no key of a rope can have; each call makes a new one.
NONSENSE: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: math.nan,
    lambda rng: rng.choice((math.inf, -math.inf)),
    lambda rng: -rng.random() * 10 ** rng.randrange(300),
    lambda rng: rng.choice((10**400, -(2**70), 10**5000)),
    lambda rng: rng.choice((5e-324, 1.7e308, 1e-300)),
    lambda rng: rng.choice(("x", "", "1e4", "\ud800", "a\0b", "-" * 100_000)),
    lambda rng: [rng.choice((1, "x", None, math.nan))] * rng.choice((0, 1, 3, 300_000)),
    lambda rng: {str(i): i for i in range(rng.choice((0, 1, 100_000)))},
    lambda rng: _deep(rng.choice((3, 100, 3_000))),
    lambda rng: -rng.randrange(1, 2**40),
)
# Values that some keys can have.
PLAUSIBLE: tuple[Callable[[random.Random], Any], ...] = (
    lambda rng: None,
    lambda rng: rng.choice((True, False)),
    lambda rng: rng.randrange(-3, 200),
    lambda rng: 2 ** rng.randrange(45),
    lambda rng: rng.choice((0.25, 0.5, 1.0, 1.5, 10_000.0, 5e5, 1e6, 1e300)),
    lambda rng: rng.choice(("yarn", "linear", "longrope", "full_attention", "rotary")),
    lambda rng: rng.choice(TYPES),
    lambda rng: [rng.randrange(3) for _ in range(rng.choice((3, 32, 64)))],
    lambda rng: ["full_attention", "sliding_attention"] * rng.choice((1, 16, 100_000)),
    lambda rng: {str(i): {"rope_theta": 1e4 + i} for i in range(rng.choice((2, 10_000)))},
    lambda rng: {"rope_type": rng.choice(("yarn", "linear", "llama3")), "factor": rng.random()},
)


@dataclass
class Mutation:
    """A config, its text if the text was changed too, and its nonsense values by path."""

    config: dict[str, Any]
    text: bytes | None = None
    nonsense: set[str] = field(default_factory=set)


def mutated(rng: random.Random, *, text: bool = True) -> Mutation:
    """Return a published config with one to three changes; `text`: some in its text, or beyond."""
    name = rng.choice(sorted(PUBLISHED))
    made = Mutation(copy.deepcopy(PUBLISHED[name]))
    for _ in range(rng.randint(1, 3)):
        path, section = rng.choice(_sections("", made.config))
        existing = [str(key) for key in section]
        key = rng.choice(existing) if existing and rng.random() < 0.6 else rng.choice(KEYS)
        action = rng.random()
        if action < 0.1:
            section.pop(key, None)
            made.nonsense.discard(f"{path}{key}")
        elif action < 0.2:
            section["model_type"] = rng.choice(TYPES)
        elif action < 0.6:
            section[key] = rng.choice(NONSENSE)(rng)
            if key != "model_type":  # an unknown model type may combine known ones
                made.nonsense.add(f"{path}{key}")
        else:
            section[key] = rng.choice(PLAUSIBLE)(rng)
            made.nonsense.discard(f"{path}{key}")
    if text and rng.random() < 0.3:
        made.text = _changed_text(rng, made.config)
    return made


def _sections(path: str, section: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    sections = [(path, section)]
    for key, value in section.items():
        if isinstance(value, dict) and len(value) < 1_000 and len(path) < 60:
            sections += _sections(f"{path}{key}.", value)
    return sections


KEYS = sorted({key for config in PUBLISHED.values() for _, section in _sections("", config)
               for key in section})  # fmt: skip
KEYS += ["full_attn_idxs", "index_topk_freq", "index_topk_pattern", "indexer_types"]
KEYS += ["layer_rope_theta", "per_layer_config", "rope_interleave", "rope_scaling_layers"]


def _changed_text(rng: random.Random, config: dict[str, Any]) -> bytes:
    """Return the config as JSON with changes in the text itself."""
    try:
        text = json.dumps(config).encode()
    except (ValueError, RecursionError):  # an integer too long, or nested too deeply
        text = json.dumps(PUBLISHED["llama-2-7b"]).encode()
    at = rng.randrange(len(text))
    return rng.choice(
        (
            text,
            text[:at],
            text[:at] + bytes(rng.randrange(256) for _ in range(rng.randint(1, 9))) + text[at:],
            text[:-1] + b', "rope_theta": NaN, "rope_theta": 5}',
            text[:-1] + b', "x": ' + b"[" * 100_000 + b"}",
            text[:-1] + b', "head_dim": ' + b"9" * 5_000 + b"}",
            text[:-1] + b', "rope\\ud800": 1}',
            text + b" " * 5_000_000,
            text[:-1] + b', "y": [' + b"{}," * 1_000_000 + b"1]}",
        )
    )


def read_config(seed: bytes, folder: Path) -> None:
    """Read the config that this seed makes."""
    read(mutated(random.Random(seed)), folder)


def read(made: Mutation, folder: Path) -> None:
    """Read it, or raise ValueError or TypeError.

    Raises AssertionError that names a fault: an error that is long or names no rule, an impossible
    rope, a round trip that loses something, or nonsense that was read.
    """
    source: Any = made.config
    if made.text is not None:
        source = folder / "config.json"
        source.write_bytes(made.text)
    try:
        spec = ModelSpec.from_config(source)
    except (ValueError, TypeError) as error:
        message = str(error)
        assert re.search("must|has no field", message), f"no rule in {message[:200]!r}"
        assert len(message) < 1_500, f"{len(message)} characters: {message[:200]!r}"
        raise
    section = "text_config." if "text_config" in made.config else ""
    for stack, layers in spec.stacks.items():
        for layer in {id(each): each for each in layers}.values():
            if layer.rope is None:
                continue
            assert layer.rope.head_dim <= MAX_HEAD_DIM
            assert 1 <= layer.rope.theta <= MOST_THETA
            lengths = (1, 10**6) if layer.rope.needs_length else (None,)
            for length in lengths:
                assert layer.rope.inverse_frequencies(length).isfinite().all()
            origins = {} if made.text is not None else layer.origins
            # A nonsense value in a key that a layer's rope was read from.
            for path in made.nonsense if stack == "text" else ():
                key = path.removeprefix(section)
                if path.startswith(section):
                    assert key not in origins.values(), f"nonsense was read: {path}"
    if "text" not in spec.stacks:
        return
    try:
        written = spec.to_config()
    except ValueError as error:
        if "form must be one" not in str(error):
            raise AssertionError(f"not written: {error}") from error
    else:
        assert ModelSpec.from_config(written).layers == spec.layers
