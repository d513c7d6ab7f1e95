"""The entry of the catalogue for a stack of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ropewalk import tools
from ropewalk.rotary.config.sections import STACK_KEYS, text_key
from ropewalk.tools.catalogue import CatalogueEntry

ENTRIES = {entry.model_type: entry for entry in tools.catalogue()}


def entry_of_stack(config: Mapping[str, Any], model_type: str, stack: str) -> CatalogueEntry:
    """Return the entry of the model type, or of the section that it has for the stack."""
    own = ENTRIES.get(model_type)
    if own is not None and own.sections is None:
        return own
    section = None if own is None else own.sections[stack]
    if section is not None and section.model_type is not None:
        return ENTRIES[section.model_type]
    key = text_key(config) if stack == "text" else STACK_KEYS[stack]
    return ENTRIES[config[key]["model_type"]]
