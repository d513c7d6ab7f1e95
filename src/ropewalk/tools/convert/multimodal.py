"""Models of several stacks, whose text stack is converted; the others are not touched.

Each combination is tested on the logits of text, as those in `layouts` are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropewalk.tools.convert.layouts import (
    HEAD_NORMS,
    LAYOUTS,
    SEPARATE,
    Layout,
    names,
)

TEXT = "text_config"
#: What precedes the number of a layer of the text, from different versions of transformers.
TEXT_LAYERS = (
    "model.language_model.layers.",
    "language_model.model.layers.",
    "language_model.layers.",
    "model.layers.",
)
#: What precedes the names of tensors of other stacks.
OTHER_STACKS = (
    "model.visual.",
    "visual.",
    "model.vision_tower.",
    "vision_tower.",
    "vision_model.",
    "model.multi_modal_projector.",
    "multi_modal_projector.",
)
#: Model type → types of its text model.
TEXT_TYPES: dict[str, frozenset[str]] = {
    "gemma3": names("gemma3_text"),
    "glm4v": names("glm4v_text"),
    "glm4v_moe": names("glm4v_moe_text"),
    "internvl": names("llama qwen2 qwen3"),
    "llama4": names("llama4_text"),
    "llava": names("llama mistral qwen2"),
    "llava_next": names("llama mistral qwen2"),
    "mistral3": names("mistral ministral3"),
    "paligemma": names("gemma gemma2"),
    "qwen2_5_vl": names("qwen2_5_vl_text"),
    "qwen2_vl": names("qwen2_vl_text"),
    "qwen3_5": names("qwen3_5_text"),
    "qwen3_vl": names("qwen3_vl_text"),
    "qwen3_vl_moe": names("qwen3_vl_moe_text"),
}
#: Layouts of text models that are only part of others.
ONLY_INSIDE: dict[str, Layout] = {
    **dict.fromkeys(names("qwen2_vl_text qwen2_5_vl_text glm4v_text glm4v_moe_text"), SEPARATE),
    **dict.fromkeys(names("qwen3_vl_text qwen3_vl_moe_text"), HEAD_NORMS),
}


def text_layout(config: Mapping[str, Any]) -> tuple[str, Layout] | None:
    """Return the path of the text's section and the layout of its tensors, or None if unknown."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return None
    if model_type in LAYOUTS:
        return "", LAYOUTS[model_type]
    known = TEXT_TYPES.get(model_type, frozenset())
    section = config.get(TEXT)
    if isinstance(section, Mapping):
        section_type = section.get("model_type", next(iter(known)) if len(known) == 1 else None)
    else:  # earlier files had the text's fields at the top
        section_type = next(iter(known)) if len(known) == 1 else None
    if not isinstance(section_type, str) or section_type not in known:
        return None
    layout = {**LAYOUTS, **ONLY_INSIDE}[section_type]
    path = TEXT if isinstance(section, Mapping) else ""
    return path, replace(layout, layers=TEXT_LAYERS, other_stacks=OTHER_STACKS)
