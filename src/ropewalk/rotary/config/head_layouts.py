"""Which dimensions of a head turn, and along which axes, for each layout that models have."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from ropewalk.rotary import axes
from ropewalk.rotary.config.conventions import Stack
from ropewalk.rotary.config.fields import INTERLEAVED, Fields, rule
from ropewalk.rotary.config.layer_types import number
from ropewalk.rotary.scaling import Proportional, Scaling
from ropewalk.rotary.spec import Axes, RotarySpec

Section = Mapping[str, Any]

HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
WIDTH = ("embed_dim", "hidden_size", "n_embd", "d_model", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")


def rope_of(section: Section, stack: Stack, found: Fields) -> RotarySpec:
    """The rope that these fields describe, by the layout of its family."""
    return LAYOUTS[stack.layout](section, stack, found)


def _head(section: Section, stack: Stack, found: Fields) -> RotarySpec:
    """A rope on a head's leading dimensions, or on all."""
    size = _head_dim(section)
    if "qk_rope_head_dim" in section:
        raise ValueError(
            f"qk_rope_head_dim must be absent, for this model turns its heads' leading dimensions, "
            f"got {section['qk_rope_head_dim']}"
        )
    scaling = _rule(section, stack, found)
    part = found.get("partial_rotary_factor", 1.0)
    if isinstance(part, bool) or not isinstance(part, (int, float)) or not 0 < part <= 1:
        raise ValueError(f"partial_rotary_factor must be above 0 and at most 1, got {part!r}")
    if isinstance(scaling, Proportional):
        part = 1.0
    elif part != 1.0 and not stack.partial:
        raise ValueError(
            f"partial_rotary_factor must be absent, for this model turns whole heads, got {part}"
        )
    turning = int(size * part)
    if stack.size is not None and stack.size in section:
        turning = number(section, (stack.size,))
        if turning > size:
            raise ValueError(f"{stack.size} must be at most head_dim={size}, got {turning}")
    elif section.get("rotary_dim", turning) != turning:
        raise ValueError(
            f"rotary_dim must be absent or {turning}, as partial_rotary_factor has it, "
            f"got {section['rotary_dim']!r}"
        )
    return _spec(stack, found, scaling, size, turning, axes=_several(stack, found, turning))


def _rule(section: Section, stack: Stack, found: Fields) -> Scaling | None:
    return rule(
        {**found, **(stack.fixed if found["rope_type"] == "yarn" else {})},
        section,
        stack.extra,
        axial=stack.layout == "axial",
    )


def _latent(section: Section, stack: Stack, found: Fields) -> RotarySpec:
    """Multi-head latent attention: a part of the head has no position, the rest turns."""
    still, turning = (number(section, (f"qk_{part}_head_dim",)) for part in ("nope", "rope"))
    one_axis(found)
    return _spec(stack, found, _rule(section, stack, found), still + turning, turning, still)


def _trailing(section: Section, stack: Stack, found: Fields) -> RotarySpec:
    """A rope on a head's last dimensions (DeepSeek-V4)."""
    size, turning = _head_dim(section), number(section, ("qk_rope_head_dim",))
    one_axis(found)
    if turning > size:
        raise ValueError(f"qk_rope_head_dim must be at most head_dim={size}, got {turning}")
    return _spec(stack, found, _rule(section, stack, found), size, turning, size - turning)


def _axial(section: Section, stack: Stack, found: Fields) -> RotarySpec:
    """Image patches: all frequencies of half a head for height, and again for width."""
    size = _head_dim(section)
    if size % 4 and stack.order != "time too":
        raise ValueError(f"head_dim must be a multiple of 4, for two axes, got {size}")
    if size < 6:
        raise ValueError(f"head_dim must be at least 6, a pair for each axis, got {size}")
    by_axis = {
        "axial": lambda: axes.axial((size // 4, size // 4)),
        "width first": lambda: axes.axial((size // 4, size // 4), order=(1, 0)),
        "pixtral": lambda: axes.pixtral(size),
        "alternating": lambda: axes.alternating(size // 4),
        "width first, alternating": lambda: axes.alternating(size // 4, order=(1, 0)),
        "blocks": lambda: axes.axial((size // 4, size // 4)),
        "time too": lambda: axes.axial((size // 6,) * 3),
    }[stack.order or "axial"]()
    blocks = (size // 2, size // 2) if stack.order == "blocks" else None
    scaling = _rule(section, stack, found)
    return _spec(stack, found, scaling, size, 2 * len(by_axis), axes=by_axis, blocks=blocks)


LAYOUTS = {"head": _head, "latent": _latent, "trailing": _trailing, "axial": _axial}


def _spec(
    stack: Stack,
    found: Fields,
    scaling: Scaling | None,
    size: int,
    turning: int,
    start: int = 0,
    axes: Axes | None = None,
    blocks: tuple[int, ...] | None = None,
) -> RotarySpec:
    if "rope_theta" not in found:
        raise ValueError("rope_theta must be given, got none")
    if turning < 2:
        raise ValueError(
            f"partial_rotary_factor must leave at least 2 of head_dim={size} dimensions to turn, "
            f"got {found.get('partial_rotary_factor')}"
        )
    if turning % 2 and axes is not None:
        raise ValueError(
            f"partial_rotary_factor must leave an even number of head_dim={size} dimensions to "
            f"turn, got {turning}"
        )
    if turning % 2:  # GLM-4.5 shrunk: 21 of 42 dimensions make 11 pairs
        if turning == size:
            raise ValueError(f"head_dim must be even where all of it turns, got {size}")
        axes = tuple((0, Fraction(2 * i, turning)) for i in range((turning + 1) // 2))
        turning += 1
    return RotarySpec(
        size,
        rotary_dim=turning,
        theta=found["rope_theta"],
        pairing=stack.pairing,
        write_pairing=stack.write_pairing,
        start=start,
        scaling=scaling,
        reverse=stack.reverse,
        axes=axes,
        blocks=blocks,
        continuous=stack.continuous,
    )


def one_axis(found: Fields) -> None:
    """Raise where fields speak of several axes, and the model has one."""
    for key in ("mrope_section", *INTERLEAVED):
        if found.get(key):
            raise ValueError(
                f"{key} must be absent, for this model's positions have one axis, got {found[key]}"
            )
    if found["rope_type"] == "mrope":
        raise ValueError(
            "rope_type must not be 'mrope' here, for this model's positions have one axis"
        )


def _several(stack: Stack, found: Fields, turning: int) -> Axes | None:
    """M-RoPE's axes, in this family's order."""
    if stack.order is None:
        one_axis(found)
        return None
    interleaved = stack.order == "interleaved"
    for key in INTERLEAVED:
        if found.get(key, interleaved) is not interleaved:
            raise ValueError(
                f"{key} must be {str(interleaved).lower()} or absent for this model, "
                f"got {found[key]!r}"
            )
    if stack.order == "round robin":
        return axes.round_robin(turning // 2)
    sections = found.get("mrope_section")
    if not isinstance(sections, (list, tuple)) or len(sections) != 3:
        raise ValueError(
            f"mrope_section must hold three numbers of pairs, for time, height and width, "
            f"got {sections!r}"
        )
    for size in sections:
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"mrope_section must hold integers above 0, got {sections!r}")
    # Small versions of models have the sections of the large one, which their code cuts short.
    if sum(sections) != turning // 2 and sections != stack.defaults.get("mrope_section"):
        raise ValueError(
            f"mrope_section must sum to the {turning // 2} pairs of {turning} dimensions, "
            f"got {list(sections)}, which sum to {sum(sections)}"
        )
    if stack.order == "ernie" and sections[0] != sections[1]:
        raise ValueError(
            f"mrope_section must hold height, width and time, the first two equal, "
            f"got {list(sections)}"
        )
    if interleaved:
        return axes.interleaved(sections, turning // 2)
    return {"sectioned": axes.sectioned, "ernie": axes.ernie}[stack.order](sections)


def _head_dim(section: Section) -> int:
    """D: said outright, or the width over the number of heads."""
    said = {key: number(section, (key,)) for key in HEAD_DIM if key in section}
    if len({said[key] for key in HEAD_DIM[:2] if key in said}) > 1:
        raise ValueError(f"head_dim and attention_head_dim must be the same, got {said}")
    for size in said.values():
        return size
    width, heads = number(section, WIDTH), number(section, HEADS)
    return width // heads  # rounded down, as models' own code has it
