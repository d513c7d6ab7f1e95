"""The ropes of diffusers' models of images, video and sound, by the class that a config names.

Read in diffusers 0.42.1. A config.json of diffusers has the arguments of its class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from ropewalk.rotary.scaling import Linear, LongRoPE, NTKAware, PerAxis, Scaling
from ropewalk.rotary.spec import Pairing

Values = Mapping[str, Any]
Split = Callable[[int], tuple[int, ...]]
"""How many dimensions each axis has, of all that rotate."""


def sixths(size: int) -> tuple[int, ...]:
    """Return a third each for height and width, rounded down to even, and the rest for time."""
    side = 2 * (size // 6)
    return size - 2 * side, side, side


def eighths(size: int) -> tuple[int, ...]:
    """Return a quarter for time, three eighths each for height and width."""
    return size // 4, size // 8 * 3, size // 8 * 3


def parts(count: int) -> Split:
    """Return a split into equal parts."""
    return lambda size: (size // count,) * count


class Key(NamedTuple):
    """A key of the config, and the value that the class has if a config leaves it out.

    name: a dotted path, or several with "|" between them, of which the first that is there counts.
    """

    name: str
    default: Any = None


class RopeOfBlocks(NamedTuple):
    """The rope of a model's blocks.

    head_dim: the key of D, or those of the width and the heads. dims: how many dimensions each axis
    has. rotary: the part of the head that rotates, or the key of R. order: of the axes; "sections"
    is interleaved M-RoPE, whose dims are pairs; "geometric" is LTX's, whose rope spans all heads:
    head_dim is the keys of their number and size. blocks: whether pairs are made within each axis.
    theta: a key, or the number in the class's code. rule: the scaling rule. rule_keys: what it
    reads. only_if: a key and the value without which there is no rope. other_keys: those about
    ropes that change only positions. positions: patches counted, or what `positions` scales.
    packed: whether the pipeline joins 2 x 2 latent pixels, which patch_size does not tell.
    """

    head_dim: str | tuple[str, str] = "attention_head_dim"
    dims: Key | Split = Key("axes_dims_rope", (16, 56, 56))
    rotary: Key | float = 1.0
    order: Literal["axial", "width first", "alternating", "sections", "geometric"] = "axial"
    pairing: Pairing = "interleaved"
    blocks: bool = False
    theta: Key | float = 10_000.0
    rule: Callable[..., Scaling] | None = None
    rule_keys: tuple[Key, ...] = ()
    continuous: bool = False
    only_if: tuple[Key, Any] | None = None
    other_keys: tuple[str, ...] = ()
    positions: Literal["counted", "crop", "resized", "fractions"] = "counted"
    packed: bool = False


class Blocks(NamedTuple):
    """Blocks of a model: the key of their number or list, and their rope, or None without one.

    made: how many blocks a number makes.
    """

    number: str
    rope: RopeOfBlocks | None
    made: Callable[[int], int] = int


Kinds: TypeAlias = dict[str, str | Blocks]
"""Kinds of blocks by their names; where only the key of their number is given, a row's rope is."""


#: Class → name of the blocks in the model → these blocks.
MODELS: dict[str, dict[str, Blocks]] = {}


def _add(classes: str, rope: RopeOfBlocks, kinds: Kinds) -> None:
    for name in classes.split():
        assert name not in MODELS, name
        MODELS[name] = {
            kind: Blocks(of, rope) if isinstance(of, str) else of for kind, of in kinds.items()
        }


def ntk_per_axis(factors: tuple[float, ...]) -> Scaling:
    """Return the rule of Cosmos."""
    return PerAxis(tuple(map(NTKAware, factors)))


def linear_per_axis(*factors: Any) -> Scaling:
    """Return the rule of Allegro and Kandinsky: positions divided by a factor of each axis."""
    return PerAxis(tuple(map(Linear, factors[0] if len(factors) == 1 else factors)))


def _longrope(lists: Values, most: int, original: int) -> Scaling:
    return LongRoPE(lists["short_factor"], lists["long_factor"], original, most / original)


DOUBLE: Kinds = {"transformer_blocks": "num_layers"}
SINGLE: Kinds = {"single_transformer_blocks": "num_single_layers"}
BLOCKS: Kinds = {"blocks": "num_layers"}
LAYERS: Kinds = {"layers": "num_layers"}
CROSS: Kinds = {"cross_attention": Blocks("num_layers", None)}
HIDDEN, DIM = ("hidden_size", "num_attention_heads"), ("dim", "n_heads")

# fmt: off
# Blocks of text and image together (Flux and after it).
FLUX = RopeOfBlocks()
PACKED = FLUX._replace(packed=True)
THETA = FLUX._replace(theta=Key("rope_theta", 10_000.0))
FOUR = Key("axes_dims_rope", (32, 32, 32, 32))
_add("FluxTransformer2DModel FluxControlNetModel ChromaTransformer2DModel "
     "LongCatImageTransformer2DModel OvisImageTransformer2DModel", PACKED, DOUBLE | SINGLE)
_add("BriaTransformer2DModel", THETA._replace(packed=True), DOUBLE | SINGLE)
_add("BriaFiboTransformer2DModel", THETA, DOUBLE | SINGLE)
_add("Flux2Transformer2DModel", PACKED._replace(dims=FOUR, theta=Key("rope_theta", 2_000)),
     DOUBLE | SINGLE)
_add("Flux3Transformer2DModel", THETA._replace(dims=FOUR),
     {"txt_mode_blocks": "num_layers", "image_mode_blocks": "num_layers", **SINGLE})
_add("HiDreamImageTransformer2DModel", FLUX._replace(dims=Key("axes_dims_rope")),
     {"double_stream_blocks": "num_layers", "single_stream_blocks": "num_single_layers"})
_add("QwenImageTransformer2DModel QwenImageControlNetModel QwenImage21Transformer2DModel "
     "NucleusMoEImageTransformer2DModel", FLUX, DOUBLE)
_add("Krea2Transformer2DModel", PACKED._replace(dims=Key("axes_dims_rope", (32, 48, 48)),
                                                theta=Key("rope_theta", 1_000.0)),
     DOUBLE | {"text_fusion.layerwise_blocks": Blocks("num_layerwise_text_blocks", None),
               "text_fusion.refiner_blocks": Blocks("num_refiner_text_blocks", None)})
HUNYUAN = FLUX._replace(dims=Key("rope_axes_dim", (16, 56, 56)), theta=Key("rope_theta", 256.0))
REFINER: Kinds = {"context_embedder.token_refiner": Blocks("num_refiner_layers", None)}
_add("HunyuanVideoTransformer3DModel HunyuanVideoFramepackTransformer3DModel", HUNYUAN,
     DOUBLE | SINGLE | REFINER)
_add("HunyuanVideo15Transformer3DModel", HUNYUAN, DOUBLE | REFINER)
_add("HunyuanImageTransformer2DModel", HUNYUAN._replace(dims=Key("rope_axes_dim", (64, 64))),
     DOUBLE | SINGLE | REFINER)
_add("MotifVideoTransformer3DModel", HUNYUAN, DOUBLE | SINGLE)
_add("JoyImageEditTransformer3DModel JoyImageEditPlusTransformer3DModel",
     RopeOfBlocks(HIDDEN, Key("rope_dim_list", (16, 56, 56)), theta=Key("theta", 256),
                  other_keys=("rope_type",)), {"double_blocks": "num_layers"})
_add("PRXTransformer2DModel",
     RopeOfBlocks(("hidden_size", "num_heads"), Key("axes_dim", (32, 32)), theta=Key("theta", 1e4)),
     {"blocks": "depth"})
_add("Lumina2Transformer2DModel", RopeOfBlocks(HIDDEN, Key("axes_dim_rope", (32, 32, 32))),
     LAYERS | {"noise_refiner": "num_refiner_layers", "context_refiner": "num_refiner_layers"})
Z_IMAGE = RopeOfBlocks(DIM, Key("axes_dims", (32, 48, 48)), theta=Key("rope_theta", 256.0))
Z_LAYERS: Kinds = {"layers": "n_layers", "noise_refiner": "n_refiner_layers"}
_add("ZImageTransformer2DModel", Z_IMAGE, Z_LAYERS | {"context_refiner": "n_refiner_layers"})
_add("BriaFibo2Transformer2DModel", Z_IMAGE, Z_LAYERS)
_add("LuminaNextDiT2DModel", RopeOfBlocks(HIDDEN, parts(2), order="alternating"), LAYERS)
GLM = RopeOfBlocks(dims=parts(2), pairing="half", other_keys=("rope_axes_dim",))
_add("GlmImageTransformer2DModel", GLM, DOUBLE)
_add("CogView4Transformer2DModel", GLM._replace(positions="resized"), DOUBLE)
DIT = RopeOfBlocks(dims=parts(2), order="width first", continuous=True, positions="crop")
_add("HunyuanDiT2DModel", DIT, BLOCKS | CROSS)
_add("HunyuanDiT2DControlNetModel", DIT,
     {"blocks": Blocks("transformer_num_layers", DIT, lambda layers: layers // 2 - 1)})
SECTIONS = RopeOfBlocks(dims=Key("mrope_section", (24, 20, 20)), order="sections", pairing="half",
                        theta=Key("rope_theta", 5_000_000))
_add("Ideogram4Transformer2DModel", SECTIONS, LAYERS)
_add("OmniGenTransformer2DModel",
     RopeOfBlocks(HIDDEN, parts(1), pairing="half", theta=Key("rope_base", 10_000), rule=_longrope,
                  rule_keys=(Key("rope_scaling"), Key("max_position_embeddings", 131_072),
                             Key("original_max_position_embeddings", 4_096))), LAYERS)

# Video.
WAN = RopeOfBlocks(dims=sixths)
_add("WanTransformer3DModel WanAnimateTransformer3DModel ChronoEditTransformer3DModel "
     "AnyFlowTransformer3DModel SkyReelsV2Transformer3DModel", WAN, BLOCKS | CROSS)
_add("WanVACETransformer3DModel", WAN, BLOCKS | {"vace_blocks": "vace_layers"} | CROSS)
_add("AnyFlowFARTransformer3DModel", WAN._replace(continuous=True), BLOCKS | CROSS)
_add("WanAnimate2Transformer3DModel", WAN._replace(head_dim=("dim", "num_heads")), BLOCKS | CROSS)
_add("SanaVideoTransformer3DModel", WAN, DOUBLE | CROSS)
_add("SanaWMTransformer3DModel", WAN._replace(head_dim="linear_head_dim"), BLOCKS | CROSS)
_add("HeliosTransformer3DModel", THETA._replace(dims=Key("rope_dim", (44, 42, 42))), BLOCKS | CROSS)
COSMOS = WAN._replace(pairing="half", rule=ntk_per_axis, continuous=True,
                      rule_keys=(Key("rope_scale", (2.0, 1.0, 1.0)),))
_add("CosmosTransformer3DModel", COSMOS, DOUBLE | CROSS)
_add("CosmosControlNetModel", COSMOS, {"control_blocks": "n_controlnet_blocks"})
_add("Cosmos3OmniTransformer",
     SECTIONS._replace(head_dim="head_dim", continuous=True,
                       dims=Key("rope_axes_dim|rope_scaling.mrope_section", (24, 20, 20))),
     {"layers": "num_hidden_layers"})
COGVIDEO = RopeOfBlocks(dims=eighths, continuous=True, positions="crop")
_add("CogVideoXTransformer3DModel ConsisIDTransformer3DModel",
     COGVIDEO._replace(only_if=(Key("use_rotary_positional_embeddings", False), True)), DOUBLE)
_add("EasyAnimateTransformer3DModel",
     COGVIDEO._replace(only_if=(Key("time_position_encoding_type", "3d_rope"), "3d_rope")), DOUBLE)
_add("AllegroTransformer3DModel",
     RopeOfBlocks(dims=parts(3), pairing="half", blocks=True, continuous=True, rule=linear_per_axis,
                  rule_keys=(Key("interpolation_scale_t", 2.2), Key("interpolation_scale_h", 2.0),
                             Key("interpolation_scale_w", 2.0))), DOUBLE | CROSS)
KANDINSKY = RopeOfBlocks("axes_dims", Key("axes_dims"))
SCALED = KANDINSKY._replace(rule=linear_per_axis,
                            rule_keys=(Key("scale_factor", (1.0, 2.0, 2.0)),))
ONE_AXIS = KANDINSKY._replace(dims=parts(1))
OF_AUDIO = ONE_AXIS._replace(head_dim="axes_dims_a|axes_dims")
VISUAL: Kinds = {"visual_transformer_blocks": "num_visual_blocks",
          "cross_attention": Blocks("num_visual_blocks", None)}
_add("Kandinsky5Transformer3DModel", KANDINSKY,
     VISUAL | {"text_transformer_blocks": Blocks("num_text_blocks", ONE_AXIS)})
_add("Kandinsky6Transformer3DModel", SCALED,
     VISUAL | {"video_text": Blocks("num_text_blocks", ONE_AXIS),
               "audio_text": Blocks("num_text_blocks", OF_AUDIO),
               "audio": Blocks("num_visual_blocks", OF_AUDIO._replace(
                   rule=lambda speed: Linear(1 / speed),
                   rule_keys=(Key("audio_freqs_scaling", 1.0),)))})
_add("Kandinsky6SRTransformer3DModel", SCALED, {"visual_transformer_blocks": "num_visual_blocks"})
_add("MiniMaxH3Transformer3DModel",
     RopeOfBlocks(dims=Key("rope_freq_dim", 16), pairing="half", theta=Key("rope_theta", 1e4)),
     DOUBLE)
_add("AutoencoderKLMiniMaxH3",
     RopeOfBlocks("decoder_attention_head_dim", parts(3), Key("decoder_rope_dim_ratio", 0.75),
                  pairing="half", theta=Key("decoder_rope_theta", 100.0), continuous=True),
     {"decoder": "decoder_num_layers"})
_add("LTX2VideoDiffusionDecoderModel", RopeOfBlocks("decoder_head_dim", eighths),
     {"stages": "decoder_stage_depths"})
LTX = RopeOfBlocks(("num_attention_heads", "attention_head_dim"), parts(3), order="geometric",
                   continuous=True, positions="fractions")
_add("LTXVideoTransformer3DModel", LTX, DOUBLE | CROSS)
LTX2 = LTX._replace(theta=Key("rope_theta", 10_000.0), other_keys=("rope_type",))
AUDIO = LTX2._replace(head_dim=("audio_num_attention_heads", "audio_attention_head_dim"),
                      dims=parts(1))
_add("LTX2VideoTransformer3DModel SanaWMLTX2RefinerTransformer3DModel", LTX2,
     DOUBLE | CROSS | {"audio": Blocks("num_layers", AUDIO),
                       "audio_to_video": Blocks("num_layers", AUDIO)})
_add("LTX2TextConnectors", LTX2, {
    f"{kind}_connector": Blocks(f"{kind}_connector_num_layers", LTX2._replace(
        head_dim=(f"{kind}_connector_num_attention_heads", f"{kind}_connector_attention_head_dim"),
        dims=parts(1))) for kind in ("video", "audio")})

# Sound, and text for images: one axis.
SOUND = RopeOfBlocks(dims=parts(1), pairing="half")
_add("StableAudioDiTModel", SOUND._replace(rotary=0.5), DOUBLE | CROSS)
_add("StableAudio3DiTModel", SOUND._replace(head_dim=("embed_dim", "num_heads"), rotary=0.5),
     {"transformer_blocks": "depth", "cross_attention": Blocks("depth", None)})
_add("AutoencoderSAME", SOUND._replace(head_dim="dim_heads", rotary=0.5),
     {"stages": "encoder_transformer_depths"})
_add("AceStepTransformer1DModel",
     SOUND._replace(head_dim="head_dim", theta=Key("rope_theta", 1_000_000.0)),
     {"layers": "num_hidden_layers", "cross_attention": Blocks("num_hidden_layers", None)})
_add("LongCatAudioDiTTransformer", SOUND._replace(head_dim=("dit_dim", "dit_heads"), theta=1e5),
     {"blocks": "dit_depth", "cross_attention": "dit_depth"})
_add("MiniMaxMusic3Transformer1DModel", SOUND._replace(rotary=Key("rotary_dim", 32)), DOUBLE)
_add("AnimaTextConditioner", SOUND._replace(head_dim=("model_dim", "num_attention_heads")),
     {**BLOCKS, "cross_attention": "num_layers"})
# fmt: on

#: Classes with a rope that no spec states, and what to use instead.
UNSTATED = {
    "MochiTransformer3DModel": "its frequencies are learned, per head and as sums over axes; "
    "LearnedRotaryEmbedding(spec, heads) has such frequencies, in Mochi's weight pos_frequencies",
    "ErnieImageTransformer2DModel": "its code rotates dimensions i and i + D/2 by the angles of "
    "two different pairs, so that norms change: it is not a rotation",
    "ZImageControlNetModel": "it has the rope of the transformer that it controls; pass the config "
    "of that",
}
#: Keys about ropes that change positions, the length of a table or its rounding, but no frequency.
NOT_OF_THE_ROPE = frozenset(
    """
    rope_max_seq_len rope_temporal_skip_len rope_double_precision use_layer3d_rope ca_rope
    unified_3d_mrope_reset_spatial_ids unified_3d_mrope_temporal_modality_margin
    connector_rope_base_seq_len
    """.split()  # noqa: SIM905
)
