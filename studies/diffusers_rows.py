"""How the code of each class of diffusers forms its rope's tables, and rotates by them.

`diffusers_walk` compares them with ropewalk's. Read in diffusers 0.42.1.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import torch
from diffusers.models import embeddings
from torch import Tensor

from ropewalk import positions


class Size(NamedTuple):
    """Frames, height and width in patches, and tokens of text."""

    frames: int
    height: int
    width: int
    text: int


Own: TypeAlias = Callable[[Any, Size, Tensor], Any]
"""What a model's code makes of a size, or of the row's positions (A, S)."""

IMAGES, VIDEOS = (Size(1, 4, 6, 5), Size(1, 17, 9, 33)), (Size(3, 4, 6, 5), Size(5, 7, 9, 33))


@dataclass(frozen=True)
class Row:
    """How classes rotate.

    positions: Python that gives their positions, for frames, height, width, text of a `Size`. own:
    what their code makes of a model and a size: tables, in a form of `as_tables`. rotation: their
    code that rotates x (1, S, H, D) by what `own` returns. stack: the blocks; the first if empty.
    rounded: whether it rounds what it rotates to bfloat16, whatever it gets.
    """

    classes: str
    positions: str
    own: Own
    form: str
    rotation: Callable[[Tensor, Any], Tensor]
    sizes: tuple[Size, Size] = IMAGES
    stack: str = ""
    rounded: bool = False
    options: dict[str, Any] = field(default_factory=dict)


def code(path: str) -> Any:
    """Return a function of diffusers.models: "module:name" or "module:Class.method:name inside".

    "~wan" is short for "transformers.transformer_wan".
    """
    module, name, *inside = path.replace("~", "transformers.transformer_").split(":")
    found: Any = importlib.import_module(f"diffusers.models.{module}")
    for part in name.split("."):
        found = getattr(found, part)
    for inner in inside:
        body = next(c for c in found.__code__.co_consts if getattr(c, "co_name", "") == inner)
        found = types.FunctionType(body, found.__globals__)
    return found


def _by(path: str, **options: Any) -> Callable[[Tensor, Any], Tensor]:
    """Return a rotation of x (1, S, H, D) by what the model's code makes of tables."""
    return lambda x, own: code(path)(x, own, **options)


def _by_heads(path: str, **options: Any) -> Callable[[Tensor, Any], Tensor]:
    """Return the same for code that has heads before the sequence."""
    return lambda x, own: code(path)(x.transpose(1, 2), own, **options).transpose(1, 2)


def _by_two(path: str, **options: Any) -> Callable[[Tensor, Any], Tensor]:
    """Return the same for code that takes cos and sin apart."""
    return lambda x, own: code(path)(x, *own, **options)


def _of_two(path: str) -> Callable[[Tensor, Any], Tensor]:
    """Return the same for code that rotates q and k together."""
    return lambda x, own: code(path)(x, x, own)[0]


def as_tables(own: Any, form: str) -> tuple[Tensor, Tensor]:
    """Return cos and sin (S, R/2) of a class's own tables; raise if repeated columns differ.

    form: "complex", "matrix" (2 x 2), "once", or "next" and "halves" for each column twice, in
    front of which "angles" and "both" say how cos and sin come; "heads" and "by axis" are LTX-2's
    and Allegro's.
    """
    if form == "both next":
        own, form = own.chunk(2, -1), "next"
    elif form == "heads":
        own, form = [table.transpose(1, 2).flatten(2) for table in own], "once"
    elif form == "by axis":
        tables, at = own
        both = [
            [table[at[axis][0]][:, : table.shape[-1] // 2] for table in cs]
            for axis, cs in enumerate(tables)
        ]
        own, form = [torch.cat(parts, -1) for parts in zip(*both, strict=True)], "once"
    if form.startswith("angles "):
        own, form = (own.cos(), own.sin()), form.removeprefix("angles ")
    if form == "complex":
        own = own.real, own.imag
    elif form == "matrix":
        assert torch.equal(own[..., 0, 0], own[..., 1, 1])
        assert torch.equal(own[..., 0, 1], -own[..., 1, 0])
        own = own[..., 0, 0], own[..., 1, 0]
    flat = [table.reshape(-1, table.shape[-1]) for table in own]
    if form in ("next", "halves"):
        dim = (-1, 2) if form == "next" else (2, -1)
        both = [table.unflatten(-1, dim).unbind(-1 if form == "next" else -2) for table in flat]
        assert all(torch.equal(first, second) for first, second in both)
        flat = [first for first, _ in both]
    return flat[0].double(), flat[1].double()


def _ids(module: str, *, batch: bool = False) -> Own:
    """Return the tables that a module of the model makes of positions (S, A) or (1, S, A)."""

    def own(model: Any, size: Size, at: Tensor) -> Any:
        return getattr(model, module)(at.T[None] if batch else at.T)

    return own


def _latents(module: str, *, flat: bool = False, **options: Any) -> Own:
    """Return the tables that a module makes of hidden states (1, C, T, H, W), or without T."""

    def own(model: Any, size: Size, at: Tensor) -> Any:
        patch = model.config["patch_size"]
        side = patch[-1] if isinstance(patch, (list, tuple)) else patch
        sizes = size[1:3] if flat else size[:3]
        sides = [step * side for step in sizes[-2:]]
        return getattr(model, module)(torch.empty(1, 1, *sizes[:-2], *sides), **options)

    return own


def evaluated(text: str, size: Size) -> Tensor:
    """Return the positions of a row."""
    made: Tensor = eval(text, {**size._asdict(), "positions": positions, "torch": torch})
    return made


FLUX_TEXT = "torch.cat((positions.text(text), positions.video(1, height, width)), -1)"
VIDEO = "positions.video(frames, height, width)"
LUMINA = (
    "torch.cat((positions.text(text, along=(0,)), "
    "positions.video(1, height, width, start=(text, 0, 0))), -1)"
)
QWEN = (
    "torch.cat((positions.text(text, along=(0, 1, 2), start=max(height, width) // 2), "
    "positions.video(frames, height, width, centered=True)), -1)"
)
APPLY = "embeddings:apply_rotary_emb"


def _own_qwen(model: Any, size: Size, at: Tensor) -> Any:
    fhw = [(size.frames, size.height, size.width)]
    image, text = model.pos_embed(fhw, max_txt_seq_len=size.text, device=torch.device("cpu"))
    return torch.cat((text, image))


def _own_qwen21(model: Any, size: Size, at: Tensor) -> Any:
    is_image = torch.tensor([False] * size.text + [True] * (size.height * size.width))
    return model.pos_embed([(1, size.height, size.width)], is_image, torch.device("cpu"))


def _own_lumina2(model: Any, size: Size, at: Tensor) -> Any:
    latent = torch.empty(1, 1, 2 * size.height, 2 * size.width)
    return model.rope_embedder(latent, torch.ones(1, size.text, dtype=torch.bool))[3]


def _own_pipeline_3d(model: Any, size: Size, at: Tensor) -> Any:
    """What CogVideoX's pipeline does."""
    from diffusers.pipelines.cogvideo import pipeline_cogvideox as pipeline

    base = model.config["sample_width"] // 2, model.config["sample_height"] // 2
    region = pipeline.get_resize_crop_region_for_grid((size.height, size.width), *base)
    return embeddings.get_3d_rotary_pos_embed(
        model.config["attention_head_dim"], region, (size.height, size.width), size.frames
    )


def _own_hunyuan_dit(model: Any, size: Size, at: Tensor) -> Any:
    from diffusers.pipelines.hunyuandit import pipeline_hunyuandit as pipeline

    grid = size.height, size.width
    region = pipeline.get_resize_crop_region_for_grid(grid, 32)
    return embeddings.get_2d_rotary_pos_embed(model.config["attention_head_dim"], region, grid)


def _own_allegro(model: Any, size: Size, at: Tensor) -> Any:
    config, grid = model.config, (size.height, size.width)
    scales = tuple(config[f"interpolation_scale_{axis}"] for axis in "thw")
    found = embeddings.get_3d_rotary_pos_embed_allegro(
        config["attention_head_dim"], ((0, 0), grid), grid, size.frames, scales
    )
    return found[:-3], [at[axis].long()[None] for axis in range(3)]


def _own_joy(model: Any, size: Size, at: Tensor) -> Any:
    return model.get_rotary_pos_embed([size.frames, size.height, size.width])[0]


def _own_joy_plus(model: Any, size: Size, at: Tensor) -> Any:
    return model._get_rotary_pos_embed_for_range((0, 0, 0), tuple(size[:3]))


def _own_framepack(model: Any, size: Size, at: Tensor) -> Any:
    side = model.config["patch_size"]
    return model.rope(
        torch.arange(size.frames), size.height * side, size.width * side, torch.device("cpu")
    )


def _own_helios(model: Any, size: Size, at: Tensor) -> Any:
    own = model.rope(torch.arange(size.frames)[None], size.height, size.width, torch.device("cpu"))
    return own.flatten(2).transpose(1, 2)


def _own_anyflow(model: Any, size: Size, at: Tensor) -> Any:
    layout = {"total_frames": size.frames, "full_frame_shape": (size.height, size.width)}
    return model.rope(layout, torch.device("cpu"))["query"]


def _own_far(model: Any, size: Size, at: Tensor) -> Any:
    """The first frame is compressed: patches of 2 x 2, at the middle of their positions."""
    layout = {
        "total_frames": size.frames,
        "full_frame_shape": (2 * size.height, 2 * size.width),
        "compressed_frame_shape": (size.height, size.width),
        "num_compressed_frames": 1,
    }
    return model.rope(layout, torch.device("cpu"))["query"]


FAR = (
    "torch.cat((positions.video(1, height, width) * torch.tensor([[1.0], [2.0], [2.0]]) "
    "+ torch.tensor([[0.0], [0.5], [0.5]]), "
    "positions.video(frames - 1, 2 * height, 2 * width, start=(1, 0, 0))), -1)"
)


def _own_sana_wm(model: Any, size: Size, at: Tensor) -> Any:
    return model.rope(tuple(size[:3]))


def _own_wan2(model: Any, size: Size, at: Tensor) -> Any:
    freqs = model._rope_freqs((0, 0, 0), torch.device("cpu"))
    return torch.tensor([size[:3]]), freqs


def _steps(size: Size) -> list[Tensor]:
    return [torch.arange(count) for count in size[:3]]


def _own_kandinsky5(model: Any, size: Size, at: Tensor) -> Any:
    return model.visual_rope_embeddings((1, *size[:3]), _steps(size))


def _own_kandinsky6(model: Any, size: Size, at: Tensor) -> Any:
    return model.visual_rope_embeddings(_steps(size), model.config["scale_factor"])


def _own_kandinsky_text(model: Any, size: Size, at: Tensor) -> Any:
    name = next(name for name in dir(model) if name.endswith("text_rope_embeddings"))
    return getattr(model, name)(torch.arange(size.text))


def _own_cosmos3(model: Any, size: Size, at: Tensor) -> Any:
    return model.rotary_emb(at[:, None], torch.device("cpu"), torch.float32)


def _own_ltx(model: Any, size: Size, at: Tensor) -> Any:
    scale = (8 / 24, 32, 32)
    return model.rope(torch.empty(1), *size[:3], rope_interpolation_scale=scale)


LTX = (
    "positions.fractions(positions.video(frames, height, width) "
    "* torch.tensor([[8 / 24], [32.0], [32.0]], dtype=torch.float64), (20, 2048, 2048))"
)


def _own_ltx2(model: Any, size: Size, at: Tensor) -> Any:
    coordinates = model.rope.prepare_video_coords(1, *size[:3], torch.device("cpu"), fps=24.0)
    return model.rope(coordinates)


#: The middle of each patch, in pixels and, for time, in seconds; the first frame is a single one.
LTX2 = (
    "positions.fractions(torch.stack((((8 * at[0] - 7).clamp(min=0) + 8 * at[0] + 1) / 48, "
    "32 * at[1] + 16, 32 * at[2] + 16)), (20, 2048, 2048))"
).replace("at[", "positions.video(frames, height, width)[")


def _own_ltx2_audio(model: Any, size: Size, at: Tensor) -> Any:
    return model.audio_rope(
        model.audio_rope.prepare_audio_coords(1, size.text, torch.device("cpu"))
    )


#: 16,000 samples per second, 160 per hop, 4 hops per latent, in seconds.
LTX2_AUDIO = (
    "positions.fractions(((4 * positions.text(text, 1, along=(0,)) - 3).clamp(min=0) "
    "+ 4 * positions.text(text, 1, along=(0,)) + 1) / 200, (20,))"
)


def _own_connector(model: Any, size: Size, at: Tensor) -> Any:
    return model.video_connector.rope(1, size.text, "cpu")


def _own_minimax_vae(model: Any, size: Size, at: Tensor) -> Any:
    grid = torch.stack(
        torch.meshgrid(*(-1 + 2 * torch.arange(n) / n for n in size[:3]), indexing="ij"), -1
    )
    rope = _named_module(model, "MiniMaxH3VideoRotaryPosEmbed")
    return rope(grid.reshape(1, -1, 3))


MINIMAX_VAE = (
    "2 * torch.pi * (2 * positions.video(frames, height, width).double() "
    "/ torch.tensor([[frames], [height], [width]]) - 1)"
)


def _own_ltx2_vae(model: Any, size: Size, at: Tensor) -> Any:
    return _named_module(model, "LTX2VideoVaeRotaryPosEmbed3D"), size


def _ltx2_vae_rotation(x: Tensor, own: Any) -> Tensor:
    rope, size = own
    rotated: Tensor = rope(x.reshape(1, *size[:3], *x.shape[2:]))
    return rotated.reshape(x.shape)


def _named_module(model: Any, name: str) -> Any:
    return next(module for module in model.modules() if type(module).__name__ == name)


def _text_1d(make: Callable[[Any, int], Any]) -> Own:
    return lambda model, size, at: make(model, size.text)


def _inline(x: Tensor, own: Any) -> Tensor:
    """Rotate as processors do that have no function for it: the first dimensions, in halves."""
    cos, sin = (table.reshape(1, -1, 1, table.shape[-1]) for table in own)
    rotating, rest = x.split((cos.shape[-1], x.shape[-1] - cos.shape[-1]), -1)
    halved = code("~ideogram4:_rotate_half")(rotating)
    return torch.cat((rotating * cos + halved * sin, rest), -1)


TEXT = "positions.text(text, 1, along=(0,))[0]"
WAN_CLOSURE = "~{0}:{1}.__call__:apply_rotary_emb"
ROWS = (
    Row("FluxTransformer2DModel FluxControlNetModel ChromaTransformer2DModel "
        "LongCatImageTransformer2DModel OvisImageTransformer2DModel BriaTransformer2DModel "
        "BriaFiboTransformer2DModel", FLUX_TEXT, _ids("pos_embed"), "next",
        _by(APPLY, sequence_dim=1)),
    Row("Flux2Transformer2DModel Flux3Transformer2DModel",
        "torch.cat((positions.text(text, 4, along=(3,)), torch.cat(("
        "positions.video(1, height, width), positions.text(height * width, 1)))), -1)",
        _ids("pos_embed"), "next", _by(APPLY, sequence_dim=1)),
    Row("Krea2Transformer2DModel", FLUX_TEXT, _ids("rotary_emb"), "next",
        _by(APPLY, sequence_dim=1)),
    Row("HiDreamImageTransformer2DModel",
        "torch.cat((positions.video(1, height, width), positions.text(text)), -1)",
        _ids("pe_embedder", batch=True), "matrix", _of_two("~hidream_image:apply_rope"),
        options={"axes_dims_rope": (64, 32, 32), "patch_size": 2, "in_channels": 4,
                 "caption_channels": [64, 64], "llama_layers": [0]}),
    Row("QwenImageTransformer2DModel QwenImageControlNetModel", QWEN, _own_qwen, "complex",
        _by("~qwenimage:apply_rotary_emb_qwen", use_real=False)),
    Row("NucleusMoEImageTransformer2DModel", QWEN, _own_qwen, "complex",
        _by("~nucleusmoe_image:_apply_rotary_emb_nucleus", use_real=False)),
    Row("QwenImage21Transformer2DModel",
        "torch.cat((positions.text(text, along=(0, 1, 2)), "
        "positions.video(1, height, width, start=(text, 0, 0), centered=True)), -1)",
        _own_qwen21, "complex",
        _by("~qwenimage21:apply_rotary_emb_qwen", use_real=False)),
    Row("HunyuanVideoTransformer3DModel HunyuanVideo15Transformer3DModel "
        "MotifVideoTransformer3DModel", VIDEO, _latents("rope"), "next",
        _by(APPLY, sequence_dim=1), VIDEOS),
    Row("HunyuanVideoFramepackTransformer3DModel", VIDEO, _own_framepack, "next",
        _by(APPLY, sequence_dim=1), VIDEOS),
    Row("HunyuanImageTransformer2DModel", "positions.grid(height, width)",
        _latents("rope", flat=True), "next", _by(APPLY, sequence_dim=1)),
    Row("JoyImageEditTransformer3DModel", VIDEO, _own_joy, "next",
        _of_two("~joyimage:_apply_rotary_emb"), VIDEOS),
    Row("JoyImageEditPlusTransformer3DModel", VIDEO, _own_joy_plus, "next",
        lambda x, own: code("~joyimage_edit_plus:_apply_rotary_emb_batched")(
            x, x, (own[0][None], own[1][None]))[0], VIDEOS),
    Row("PRXTransformer2DModel", "positions.grid(height, width)", _ids("pe_embedder", batch=True),
        "matrix", _by_heads("~prx:apply_rope")),
    Row("Lumina2Transformer2DModel", LUMINA, _own_lumina2, "complex", _by(APPLY, use_real=False)),
    Row("ZImageTransformer2DModel", LUMINA, _ids("rope_embedder"), "complex",
        lambda x, own: code("~z_image:ZSingleStreamAttnProcessor.__call__:"
                            "apply_rotary_emb")(x, own[None])),
    Row("BriaFibo2Transformer2DModel", LUMINA, _ids("rope_embedder"), "complex",
        lambda x, own: code("~bria_fibo2:BriaFibo2AttnProcessor.__call__:"
                            "apply_rotary_emb")(x, own[None])),
    Row("LuminaNextDiT2DModel", "positions.grid(height, width)",
        lambda model, size, at: embeddings.get_2d_rotary_pos_embed_lumina(72, *size[1:3])
        .flatten(0, 1), "complex", lambda x, own: code(APPLY)(x, own[None], use_real=False),
        options={"num_kv_heads": 8}),
    Row("CogView4Transformer2DModel", "positions.resized(height, width, base=(256, 256))",
        _latents("rope", flat=True), "halves", _by_heads(APPLY, use_real_unbind_dim=-2)),
    Row("GlmImageTransformer2DModel", "positions.grid(height, width)", _latents("rope", flat=True),
        "halves", _by(APPLY, use_real_unbind_dim=-2, sequence_dim=1)),
    Row("HunyuanDiT2DModel HunyuanDiT2DControlNetModel",
        "positions.crop(height, width, base=(32, 32))", _own_hunyuan_dit, "next", _by_heads(APPLY),
        options={"in_channels": 4, "patch_size": 2}),
    Row("Ideogram4Transformer2DModel",
        "torch.cat((positions.text(text, along=(0, 1, 2)), "
        "positions.video(1, height, width, start=(65536,) * 3)), -1)",
        _ids("rotary_emb", batch=True), "halves", _inline),
    Row("OmniGenTransformer2DModel", TEXT,
        _text_1d(lambda model, n: model.rope(torch.empty(1), torch.arange(n)[None])), "halves",
        _by_heads(APPLY, use_real_unbind_dim=-2),
        options={"vocab_size": 64, "pad_token_id": 0,
                 "rope_scaling": {"short_factor": [1.0 + i / 48 for i in range(48)],
                                  "long_factor": [1.0 + i for i in range(48)]}}),
    Row("WanTransformer3DModel WanVACETransformer3DModel", VIDEO, _latents("rope"), "next",
        _by_two(WAN_CLOSURE.format("wan", "WanAttnProcessor")), VIDEOS),
    Row("WanAnimateTransformer3DModel", VIDEO, _latents("rope"), "next",
        _by_two(WAN_CLOSURE.format("wan_animate", "WanAttnProcessor")), VIDEOS),
    Row("ChronoEditTransformer3DModel", VIDEO, _latents("rope"), "next",
        _by_two(WAN_CLOSURE.format("chronoedit", "WanAttnProcessor")), VIDEOS),
    Row("SkyReelsV2Transformer3DModel", VIDEO, _latents("rope"), "next",
        _by_two(WAN_CLOSURE.format("skyreels_v2", "SkyReelsV2AttnProcessor")), VIDEOS),
    Row("SanaVideoTransformer3DModel", VIDEO, _latents("rope"), "next",
        _by_two(WAN_CLOSURE.format("sana_video", "SanaLinearAttnProcessor3_0")), VIDEOS),
    Row("WanAnimate2Transformer3DModel", VIDEO, _own_wan2, "rotates",
        lambda x, own: code("~wan_animate_2:rope_apply")(x, *own), VIDEOS),
    Row("SanaWMTransformer3DModel", VIDEO, _own_sana_wm, "complex",
        lambda x, own: code("~sana_wm:_apply_rotary_emb")(
            x.permute(0, 2, 3, 1), own).permute(0, 3, 1, 2), VIDEOS),
    Row("AnyFlowTransformer3DModel", VIDEO, _own_anyflow, "complex",
        _by_heads("~anyflow:apply_rotary_emb"), VIDEOS),
    Row("AnyFlowFARTransformer3DModel", FAR, _own_far, "complex",
        _by_heads("~anyflow_far:apply_rotary_emb"), VIDEOS),
    Row("HeliosTransformer3DModel", VIDEO, _own_helios, "both next",
        _by("~helios:apply_rotary_emb_transposed"), VIDEOS),
    Row("CosmosTransformer3DModel CosmosControlNetModel",
        "positions.video(frames, height, width, fps=16.0)", _latents("rope", fps=16), "halves",
        _by_heads(APPLY, use_real_unbind_dim=-2), VIDEOS),
    Row("Cosmos3OmniTransformer", VIDEO, _own_cosmos3, "halves",
        _inline, VIDEOS),
    Row("CogVideoXTransformer3DModel ConsisIDTransformer3DModel",
        "positions.crop(height, width, base=(30, 45), frames=frames)", _own_pipeline_3d, "next",
        _by_heads(APPLY), VIDEOS, options={"use_rotary_positional_embeddings": True}),
    Row("EasyAnimateTransformer3DModel",
        "positions.crop(height, width, base=(30, 45), frames=frames)", _latents("rope_embedding"),
        "next", _by_heads(APPLY), VIDEOS,
        options={"patch_size": 2, "in_channels": 4, "out_channels": 4}),
    Row("AllegroTransformer3DModel", VIDEO, _own_allegro, "by axis",
        lambda x, own: code("embeddings:apply_rotary_emb_allegro")(
            x.transpose(1, 2), *own).transpose(1, 2), VIDEOS),
    Row("Kandinsky5Transformer3DModel", VIDEO, _own_kandinsky5, "matrix",
        lambda x, own: code("~kandinsky:Kandinsky5AttnProcessor.__call__:"
                            "apply_rotary")(x, own.flatten(1, 3)), VIDEOS, rounded=True),
    Row("Kandinsky6Transformer3DModel", VIDEO, _own_kandinsky6, "matrix",
        lambda x, own: code("~kandinsky6:apply_rotary")(
            x, own.flatten(0, 2)), VIDEOS),
    Row("Kandinsky6SRTransformer3DModel", VIDEO, _own_kandinsky6, "matrix",
        lambda x, own: code("~kandinsky6_sr:apply_rotary")(
            x, own.flatten(0, 2)), VIDEOS),
    Row("Kandinsky5Transformer3DModel", TEXT, _own_kandinsky_text, "matrix",
        lambda x, own: code("~kandinsky:Kandinsky5AttnProcessor.__call__:"
                            "apply_rotary")(x, own), stack="text_transformer_blocks", rounded=True),
    Row("Kandinsky6Transformer3DModel", TEXT, _own_kandinsky_text, "matrix",
        _by("~kandinsky6:apply_rotary"), stack="video_text"),
    Row("Kandinsky6Transformer3DModel", TEXT,
        _text_1d(lambda model, n: model.audio_rope_embeddings(torch.arange(n))), "matrix",
        _by("~kandinsky6:apply_rotary"), stack="audio",
        options={"audio_freqs_scaling": 0.5}),
    Row("MiniMaxH3Transformer3DModel",
        "torch.cat((positions.text(text, along=(0,)), "
        "positions.video(1, height, width, start=(text, 0, 0))), -1)", _ids("rope"), "halves",
        _by_two("~minimax_h3:_apply_rotary_emb")),
    Row("AutoencoderKLMiniMaxH3", MINIMAX_VAE, _own_minimax_vae, "halves",
        _inline, VIDEOS),
    Row("LTX2VideoDiffusionDecoderModel", VIDEO, _own_ltx2_vae, "rotates", _ltx2_vae_rotation,
        VIDEOS),
    Row("LTXVideoTransformer3DModel", LTX, _own_ltx, "next",
        lambda x, own: code("~ltx:apply_rotary_emb")(x[:, :, 0], own)
        [:, :, None], VIDEOS),
    Row("LTX2VideoTransformer3DModel SanaWMLTX2RefinerTransformer3DModel", LTX2, _own_ltx2, "next",
        lambda x, own: code("~ltx2:apply_interleaved_rotary_emb")(
            x[:, :, 0], own)[:, :, None], VIDEOS),
    Row("LTX2VideoTransformer3DModel", LTX2, _own_ltx2, "heads",
        lambda x, own: code("~ltx2:apply_split_rotary_emb")(x[:, :, 0], own)
        [:, :, None], VIDEOS, options={"rope_type": "split"}),
    Row("LTX2VideoTransformer3DModel", LTX2_AUDIO, _own_ltx2_audio, "next",
        lambda x, own: code("~ltx2:apply_interleaved_rotary_emb")(
            x[:, :, 0], own)[:, :, None], stack="audio"),
    Row("LTX2TextConnectors",
        "positions.fractions(positions.text(text, 1, along=(0,)), (4096,))", _own_connector, "next",
        lambda x, own: code("~ltx2:apply_interleaved_rotary_emb")(
            x[:, :, 0], own)[:, :, None]),
    Row("StableAudioDiTModel", TEXT,
        _text_1d(lambda model, n: embeddings.get_1d_rotary_pos_embed(
            32, n, use_real=True, repeat_interleave_real=False)), "halves",
        lambda x, own: code(
            "attention_processor:StableAudioAttnProcessor2_0.apply_partial_rotary_emb")(
            None, x.transpose(1, 2), own).transpose(1, 2)),
    Row("StableAudio3DiTModel", TEXT,
        _text_1d(lambda model, n: model.rotary_pos_emb(n, torch.device("cpu"))), "angles halves",
        _by("~stable_audio3:_apply_rotary_partial")),
    Row("AutoencoderSAME", TEXT,
        _text_1d(lambda model, n: _named_module(model, "RotaryEmbedding")(n, torch.device("cpu"))),
        "angles halves",
        _by("autoencoders.autoencoder_same:_apply_rotary_partial")),
    Row("AceStepTransformer1DModel", TEXT,
        _text_1d(lambda model, n: code("transformers.ace_step_transformer:_ace_step_rotary_freqs")(
            n, model.head_dim, model.rope_theta, torch.device("cpu"), torch.float32)), "halves",
        _by(APPLY, use_real_unbind_dim=-2, sequence_dim=1)),
    Row("LongCatAudioDiTTransformer", TEXT,
        _text_1d(lambda model, n: model.rotary_embed(torch.empty(1, n))), "halves",
        _by("~longcat_audio_dit:_apply_rotary_emb")),
    Row("MiniMaxMusic3Transformer1DModel", TEXT,
        _text_1d(lambda model, n: model.rotary_emb(n, torch.device("cpu"))), "halves",
        _by("~minimax_music3:_apply_partial_rotary_emb")),
    Row("AnimaTextConditioner", TEXT,
        _text_1d(lambda model, n: model.rotary_emb(torch.empty(1), torch.arange(n)[None])),
        "halves",
        _by_two("condition_embedders.condition_embedder_anima:_apply_rotary_pos_emb",
               unsqueeze_dim=2)),
)  # fmt: skip
