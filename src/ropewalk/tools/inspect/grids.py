"""The axes of a rope of images or video: what a patch is, and the sizes that are stated and asked.

Read in diffusers 0.42.1. Sizes are latent pixels and latent frames, as the transformer gets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ropewalk.rotary.config.config_json import JsonObject, positive_int
from ropewalk.rotary.config.diffusers_types import MODELS
from ropewalk.tools.inspect.rope_facts import AxisFacts, Caution, RopeFacts

Sizes = Mapping[str, int | None]
SIDES, ALL = ("height", "width"), ("frames", "height", "width")
NAMES: Mapping[int, tuple[str, ...]] = {2: SIDES, 3: ALL, 4: (*ALL, "text")}
#: Keys of an axis's patch; Z-Image has lists of those that it knows. Without one, a patch is 1.
PATCHES = {
    "frames": ("patch_size_t", "all_f_patch_size", "patch_size"),
    **dict.fromkeys(SIDES, ("patch_size", "all_patch_size", "latent_patch_size")),
}
#: Classes whose pipelines join 2 x 2 latent pixels before the transformer, which has patch_size 1.
PACKED = (  # noqa: SIM905
    "FluxTransformer2DModel FluxControlNetModel Flux2Transformer2DModel ChromaTransformer2DModel "
    "BriaTransformer2DModel LongCatImageTransformer2DModel OvisImageTransformer2DModel "
    "Krea2Transformer2DModel"
).split()
CROPPED = "its code scales positions to the grid of training (positions.crop)"
RESIZED = "its code scales positions to rope_axes_dim (positions.resized)"
FRACTIONS = "its code divides positions by a base size (positions.fractions)"
#: Classes whose positions do not count patches; on which axes, and what they are.
SCALED = {
    "CogVideoXTransformer3DModel": (SIDES, CROPPED),
    "ConsisIDTransformer3DModel": (SIDES, CROPPED),
    "EasyAnimateTransformer3DModel": (SIDES, CROPPED),
    "HunyuanDiT2DModel": (SIDES, CROPPED),
    "HunyuanDiT2DControlNetModel": (SIDES, CROPPED),
    "CogView4Transformer2DModel": (SIDES, RESIZED),
    "LTXVideoTransformer3DModel": (ALL, FRACTIONS),
    "LTX2VideoTransformer3DModel": (ALL, FRACTIONS),
    "SanaWMLTX2RefinerTransformer3DModel": (ALL, FRACTIONS),
}
#: Keys of sizes: of which axes, whether in patches, and whether a limit rather than training's.
STATED = (
    ("rope_max_seq_len", ALL, True, True),
    ("axes_lens", ALL, True, True),
    ("max_size", ALL, False, True),
    ("pos_embed_max_size", SIDES, True, True),
    *((f"sample_{name}", (name,), False, False) for name in ALL),
    ("sample_size", SIDES, False, False),
)


def axes_of(
    config: JsonObject, model: str | None, rope: RopeFacts | None, sizes: Sizes
) -> tuple[AxisFacts, ...]:
    """Return the axes of a rope of images or video with the sizes asked; none if it has one axis.

    Raises ValueError that names the argument for a size that is no whole number of patches.
    """
    if rope is None or model not in MODELS:
        return ()
    owners = rope.spec.axis_of_pair
    return tuple(
        _axis(config, model, name, tuple(i for i, own in enumerate(owners) if own == axis), sizes)
        for axis, name in enumerate(NAMES.get(rope.spec.axis_count, ()))
    )


def _axis(
    config: JsonObject, model: str, name: str, pairs: tuple[int, ...], sizes: Sizes
) -> AxisFacts:
    found = {key: _stated(config, key, name) for key in PATCHES.get(name, ())}
    if type(config.get("patch_size")) is int and name == "frames":
        del found["patch_size"]  # it is that of height and width
    patch, key = next(((size, key) for key, size in found.items() if size), (1, None))
    if model in PACKED and name in SIDES:
        patch, key = 2 * patch, "packing"
    most: dict[bool, tuple[int, str]] = {}
    for stated, axes, in_patches, is_limit in STATED:
        bins = stated == "sample_size" and model.startswith("Sana")  # it names a set of shapes
        size = _stated(config, stated, name) if name in axes and not bins else None
        if size and stated == "sample_frames" and config.get("temporal_compression_ratio"):
            size = (size - 1) // positive_int(config, "temporal_compression_ratio") + 1
        if size:
            most.setdefault(is_limit, (size if in_patches else -(-size // patch), stated))
    axes, scaled = SCALED.get(model, ((), None))
    if name not in axes or (scaled == CROPPED and config.get("patch_size_t")):  # CogVideoX 1.5
        scaled = None
    pixels = _stated(config, "vae_scale_factors", name)
    axis = AxisFacts(name, pairs, patch, key, pixels, scaled, most.get(True), most.get(False))
    return axis if sizes.get(name) is None else axis.sized(name, sizes[name])


def _stated(config: JsonObject, key: str, name: str) -> int | None:
    """Return a number of the config, or the axis's one in a list of them; None if not stated."""
    value: Any = config.get(key)
    if isinstance(value, (list, tuple)):
        of_axes = len(value) > 1 and not key.startswith("all_")
        last = len(ALL) - ALL.index(name) if of_axes else len(value)
        value = value[-last] if 0 < last <= len(value) else None
    return None if value is None else positive_int({key: value}, key)


def size_cautions(axes: tuple[AxisFacts, ...]) -> Iterator[Caution]:
    """Yield a warning for each size that passes one that the config states."""
    kinds = (
        ("size-beyond-limit", "its config allows no more", ""),
        ("size-beyond-training", "training had no such positions", "; else see ropewalk extend"),
    )
    for axis in axes:
        for stated, (name, effect, more) in zip((axis.limit, axis.trained), kinds, strict=True):
            if stated is not None and (axis.patches or 0) > stated[0]:
                yield Caution(
                    name,
                    axis.name,
                    f"{axis.size:,} makes {axis.patches:,} patches, and {stated[1]} states "
                    f"{stated[0]:,}: {axis.scaled or effect}",
                    f"use at most {stated[0] * axis.patch:,}{'' if axis.scaled else more}",
                )
