"""The axes of a rope of images or video: what a patch is, and the sizes that the config states.

Read in diffusers 0.42.1. Sizes are latent pixels and latent frames, as the transformer gets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ropewalk.checks import check_int
from ropewalk.rotary.config.config_json import JsonObject, positive_int
from ropewalk.rotary.config.diffusers_types import MODELS, RopeOfBlocks
from ropewalk.rotary.spec import RotarySpec

Sizes = Mapping[str, int | None]
ALL = ("frames", "height", "width")
NAMES: Mapping[int, tuple[str, ...]] = {2: ALL[1:], 3: ALL, 4: (*ALL, "text")}
IN_PATCHES, RATIO = ("rope_max_seq_len", "axes_lens"), "temporal_compression_ratio"


@dataclass(frozen=True)
class AxisFacts:
    """One axis of a rope of images or video.

    pairs: their numbers. patch: its latent pixels or frames, by the key patch_from. scaled: how the
    model's code scales positions, None if they count patches. limit, trained: the most patches of
    its table and of training, and their keys, if stated. patches: those asked for, or 0.
    """

    name: str
    pairs: tuple[int, ...]
    patch: int = 1
    patch_from: str | None = None
    scaled: str | None = None
    limit: tuple[int, str] | None = None
    trained: tuple[int, str] | None = None
    patches: int = 0

    def patches_in(self, argument: str, size: int) -> int:
        """Return the patches of a size. Raises ValueError unless they are a whole number."""
        check_int(argument, size, 1)
        if size % self.patch:
            rule = f"must be a multiple of {self.patch_from}={self.patch}"
            raise ValueError(f"{argument} {rule}, got {size}")
        return size // self.patch


def axes_of(
    config: JsonObject, model: str | None, rope: RotarySpec | None, sizes: Sizes
) -> Iterator[AxisFacts]:
    """Yield the axes of a rope with the sizes asked; none unless it is of images or video."""
    row = next((of.rope for of in MODELS.get(model or "", {}).values() if of.rope), None)
    names = NAMES.get(rope.axis_count, ()) if rope and row else ()
    for name, size in sizes.items():
        if size is not None and name not in names:
            has = f"axes are {' and '.join(names)}" if names else "positions have one axis"
            raise ValueError(f"{name} must be left out for {model}, whose {has}, got {size}")
    if rope is None or row is None:
        return
    for number, name in enumerate(names):
        axis = AxisFacts(name, tuple(i for i, own in enumerate(rope.axis_of_pair) if own == number))
        if name in ALL:
            axis = _with_sizes(axis, config, row)
        size = sizes.get(name)
        yield axis if size is None else replace(axis, patches=axis.patches_in(name, size))


def _with_sizes(axis: AxisFacts, config: JsonObject, row: RopeOfBlocks) -> AxisFacts:
    """Return an axis with its patch and the sizes that the config states."""
    is_time = axis.name == "frames"
    own_keys = ("patch_size_t", "all_f_patch_size") if is_time else ("all_patch_size",)
    patch, key = _stated(config, axis, *own_keys, "patch_size", "latent_patch_size") or (1, None)
    if row.packed and not is_time:
        patch, key = 2 * patch, "packing"
    uncropped = is_time or config.get("patch_size_t")  # which CogVideoX 1.5 has
    counts = row.positions == "counted" or (row.positions == "crop" and uncropped)
    scaled = None if counts else f"its code scales positions (positions.{row.positions})"
    axis = replace(axis, patch=patch, patch_from=key, scaled=scaled)
    limit = _stated(config, axis, *IN_PATCHES, "max_size")
    trained = _stated(config, axis, f"sample_{axis.name}", "sample_size")
    return replace(axis, limit=limit, trained=trained)


def _stated(config: JsonObject, axis: AxisFacts, *keys: str) -> tuple[int, str] | None:
    """Return the patches that the first of these keys states for an axis, and the key."""
    for key in keys:
        value: Any = config.get(key)
        if isinstance(value, (list, tuple)):  # of the axes, or of the patches that Z-Image knows
            place = 0 if key.startswith("all_") else ALL.index(axis.name) - len(ALL)
            value = value[place] if len(value) >= max(1, -place) else None
        elif axis.name == "frames" and key in ("patch_size", "latent_patch_size", "sample_size"):
            continue  # it is that of height and width
        elif key == "sample_size" and "Video" in str(config["_class_name"]):
            continue  # SanaVideo's names a set of shapes
        if value is not None:
            size = positive_int({key: value}, key)
            if key == "sample_frames":  # before the VAE, where its ratio is stated
                size = (size - 1) // positive_int({RATIO: 1} | {**config}, RATIO) + 1
            return size if key in IN_PATCHES else -(-size // axis.patch), key
    return None
