"""The modeling file of each model type in transformers, by that library's own mapping."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import transformers
from transformers.models.auto.configuration_auto import (
    CONFIG_MAPPING_NAMES,
    model_type_to_module_name,
)

from ropewalk.rotary.config.stacks import MULTIMODAL_MODELS

VERSION_OF_TRANSFORMERS = transformers.__version__
MODELS = Path(transformers.__file__).parent / "models"
STATED = re.compile(r"^\s+model_type\b[^=\n]*=\s*[\"']([^\"']+)", re.MULTILINE)
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)


def modeling_files(model_types: Iterable[str]) -> dict[str, str]:
    """Return "models/FOLDER/modeling_….py" by model type, without types that transformers lacks."""
    stated = _stated_types()
    owners: dict[str, str] = {}
    for owner, stacks in MULTIMODAL_MODELS.items():
        for _, section_type in stacks.values():
            owners.setdefault(section_type, owner)
    found = {}
    for model_type in model_types:
        # Some sections have a type of ropewalk's alone; their owner has the code.
        names = (model_type, owners.get(model_type, ""))
        folder = next((f for name in names if (f := _folder(name, stated))), None)
        file = None if folder is None else _modeling_file(folder, model_type)
        if file is not None:
            found[model_type] = file
    return found


def _folder(model_type: str, stated: dict[str, str]) -> str | None:
    if model_type in CONFIG_MAPPING_NAMES:
        return str(model_type_to_module_name(model_type))
    return stated.get(model_type)


def _stated_types() -> dict[str, str]:
    """Return the folder of each type that a configuration class states, and of each class."""
    found: dict[str, str] = {}
    for path in sorted(MODELS.glob("*/configuration_*.py")):
        text = path.read_text(encoding="utf-8")
        for name in [*STATED.findall(text), *CLASS.findall(text)]:
            found.setdefault(name, path.parent.name)
    return found


def _modeling_file(folder: str, model_type: str) -> str | None:
    """Return the folder's modeling file; one of the model type's own name comes first.

    None if it has none, since another model's code runs (InternLM3).
    """
    written = sorted(path.name for path in (MODELS / folder).glob("modeling_*.py"))
    wanted = (f"modeling_{model_type.replace('-', '_')}.py", f"modeling_{folder}.py")
    name = next((name for name in [*wanted, *written] if name in written), None)
    return None if name is None else f"models/{folder}/{name}"
