"""Published config.json files that tests read, as they are and with changes."""

import copy
import functools
import json
import pathlib
from typing import Any

import pytest

from ropewalk import ModelSpec

FOLDER = pathlib.Path(__file__).parents[1] / "rotary" / "config" / "published_configs"
PUBLISHED: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text())
    for path in sorted(FOLDER.glob("*.json"))
    if path.stem != "sources"
}

# Files that cannot be read, and why: their content is unknown, contradictory, or no rope.
REFUSED = {
    # Only the diff that added its rope fields was available; the full file has a model_type.
    "alfred-40b-1023": "model_type must be given",
    # Saved by its own script; transformers ignores `attn_factor` and uses another amplitude.
    "dseek-draft-test": "rope_type 'yarn' has no field 'attn_factor'",
    "baichuan2-13b-chat": "ALiBi adds distances to its scores, except with hidden_size 4096",
    "nomic-embed-vision-v1.5": "use_rotary_pos_emb must be null or absent",
    "minicpm3-4b": "model_type must be given",
    # A custom model with qwen2's name; qwen2's code would ignore the sections.
    "slimm-qwen2-0.5b": "use_mrope must be false or absent",
    "voxcpm2": "model_type must be given",
}
READ = sorted(PUBLISHED.keys() - REFUSED.keys())


@functools.cache
def published_spec(name: str) -> ModelSpec:
    """What is read in a published file, once for all tests."""
    return ModelSpec.from_config(PUBLISHED[name])


GONE = object()  # in a change: the key is removed


def changed(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    """A published file with other values at dotted keys."""
    config = copy.deepcopy(PUBLISHED[name])
    for path, value in changes.items():
        section = config
        *parents, last = path.split(".")
        for key in parents:
            assert key in section, f"{name} has no {key}"  # else the test is wrong
            section = section[key]
        if value is GONE:
            assert last in section, f"{name} has no {last}"
            del section[last]
        else:
            section[last] = value
    return config


def ropes(spec: ModelSpec, stack: str = "text") -> list[tuple[Any, ...]]:
    """A stack's layers without their types, which an earlier format may lack."""
    return [(each.rope, each.softmax_factor, each.query_temperature) for each in spec.stacks[stack]]


def in_transformers(name: str, raw: dict[str, Any] | None = None) -> Any:
    """The config that transformers reads from the same file, or from `raw`, a changed copy of it.

    Skips the test if transformers does not know its type.
    """
    transformers = pytest.importorskip(
        "transformers", reason="the outside reference: pip install 'ropewalk[dev]'"
    )
    raw = copy.deepcopy(PUBLISHED[name] if raw is None else raw)
    if raw.get("model_type") not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers has no model type {raw.get('model_type')!r}")
    if name == "llama-4-scout-17b-16e":
        raw["text_config"]["attn_temperature_tuning"] = True  # 4, as published, is now refused
    transformers.logging.set_verbosity_error()
    return transformers.CONFIG_MAPPING[raw["model_type"]].from_dict(raw)
