"""Calls of stacks that no rule covers, by the class of the host."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, vision_utils

from .drivers import (
    GRID,
    SPREAD,
    TEXT,
    Call,
    Direct,
    by_grid,
    by_layer,
    by_pixels,
    by_sequence,
    width,
)

# Axes of positions if the rotary class does not define them by its `mrope_section`.
AXES = {"HunYuanVLRotaryEmbedding": 4, "NeoMMERotaryEmbedding": 2}


def grid_positions(first: int = 0) -> Tensor:
    """(rows, columns) of the patches of GRID, row by row."""
    rows, columns = torch.meshgrid(
        torch.arange(first, first + GRID[1]), torch.arange(first, first + GRID[2]), indexing="ij"
    )
    return torch.stack([rows.flatten(), columns.flatten()])


def centers(length: int) -> Tensor:
    """Centers of patches in −1…1, (rows, columns), after prefix tokens that do not rotate."""
    rows, columns = grid_positions()
    patches = torch.stack([(rows + 0.5) / GRID[1] * 2 - 1, (columns + 0.5) / GRID[2] * 2 - 1])
    return torch.cat((torch.zeros(2, length - patches.shape[-1]), patches), -1)


def _of_size(host: nn.Module, positions: Callable[[int], Tensor]) -> Call:
    """An image of the only size that the configuration allows."""
    side = host.config.image_size
    return Call(lambda: host(pixel_values=torch.zeros(1, 3, side, side)), positions)


def _square(length: int, first: int) -> Tensor:
    side = int(length**0.5)
    axis = torch.arange(first, first + side)
    return torch.stack([m.flatten() for m in torch.meshgrid(axis, axis, indexing="ij")])


def _eomt(host: nn.Module) -> Call:
    """The layers after the first few also see queries, and masks made by heads."""
    return replace(by_pixels(host, centers), layers=[host.layers[0]])


def _class_first(length: int) -> Tensor:
    return torch.cat((torch.zeros(2, 1, dtype=torch.long), _square(length, 0)), -1)


def _class_last(length: int) -> Tensor:
    return torch.cat((_square(length, 1), torch.zeros(2, 1, dtype=torch.long)), -1)


def _encoded(host: nn.Module, size: int | None = None) -> Call:
    """A decoder that attends to an encoder's states."""
    return by_sequence(host, 1, encoder_hidden_states=torch.zeros(1, 4, size or width(host)))


def _dia(host: nn.Module) -> Call:
    channels = host.config.num_channels
    return by_sequence(
        host,
        1,
        input_ids=torch.ones(1, len(TEXT), channels, dtype=torch.long),
        encoder_hidden_states=torch.zeros(1, 4, width(host)),
    )


def _clvp(host: nn.Module) -> Call:
    order = torch.arange(len(TEXT)).roll(5)  # the table has a row per token, which positions select
    states = torch.zeros(1, len(TEXT), width(host))
    return Call(lambda: host(inputs_embeds=states, position_ids=order[None]), lambda length: order)


def _atoms(host: nn.Module) -> Call:
    """EsmFold2: atoms' coordinates in space, and the number of the molecule's part."""
    places = torch.stack(SPREAD[:3], -1)[None] / 100.0
    part = SPREAD[3][None]
    layers = list(host.layers)
    states = torch.zeros(1, len(TEXT), layers[0].self_attn.q_proj.in_features)

    def run() -> None:
        table = host.rotary_emb(places, part, dtype=torch.float32)
        for layer in layers:
            layer(states, states, None, table)

    return Call(run, lambda length: torch.cat((places[0].T, part.float())), layers)


def _gemma_vision(host: nn.Module) -> Call:
    grid = grid_positions().flip(0)  # (x, y)
    states = torch.zeros(1, grid.shape[-1], width(host))
    return Call(
        lambda: host(inputs_embeds=states, attention_mask=None, pixel_position_ids=grid.T[None]),
        lambda length: grid,
    )


def _paddle(host: nn.Module) -> Call:
    states = torch.zeros(GRID[1] * GRID[2], width(host))
    layers = list(host.layers)

    def run() -> None:
        places = vision_utils.get_vision_position_ids(torch.tensor([GRID]), 1)
        table = host.rotary_pos_emb(states, places)
        ends = torch.tensor([0, len(states)])
        for layer in layers:
            layer(states, cu_seqlens=ends, position_embeddings=table)

    return Call(run, None, layers)


def _kimi(host: nn.Module) -> Call:
    patch = host.config.patch_size
    pixels = torch.zeros(GRID[1] * GRID[2], 3, patch, patch)
    return Call(lambda: host(pixels, grid_thw=torch.tensor([GRID])))


def _inkling(host: nn.Module) -> Call:
    merge = host.config.spatial_merge_size
    grid = [GRID[0], GRID[1] // merge, GRID[2] // merge]
    side = host.config.patch_size * merge
    pixels = torch.zeros(grid[1] * grid[2], side, side, 3)
    return Call(lambda: host(pixels, image_grid_thw=torch.tensor([grid])))


def _sam3(host: nn.Module) -> Call:
    """Layer by layer: some see windows, some the full image."""
    layers = list(host.layers)

    def run() -> None:
        for layer in layers:
            side = layer.window_size or host.config.image_size // host.config.patch_size
            layer(torch.zeros(1, side, side, host.config.hidden_size))

    return Call(run, None, layers)


def _memory(host: nn.Module) -> Call:
    """The memory attention of video models: its self-attention."""
    N = len(host.position_ids)
    features = torch.zeros(N, 1, host.layer_norm.normalized_shape[0])
    memory = torch.zeros(N, 1, host.layers[0].cross_attn_image.kv_in_dim)
    return Call(lambda: host(features, memory, features, memory), lambda n: host.position_ids.T)


def _vjepa(host: nn.Module) -> Call:
    layers = list(host.layer)
    states = torch.zeros(1, len(TEXT), layers[0].attention.hidden_size)

    def run() -> None:
        for layer in layers:
            layer(states, TEXT[None])

    def places(length: int) -> Tensor:
        ids = layers[0].attention.get_position_ids(states, TEXT[None])
        return torch.stack([x[0, 0] for x in ids])

    return Call(run, places, layers)


def _canvas(host: nn.Module) -> Call:
    """A decoder whose keys come after an encoder's keys, called without the encoder's."""
    for layer in host.layers:
        layer.self_attn.append_to_cache = lambda past, k, v: (k, v)
    kwargs = {
        "decoder_input_ids": torch.full((1, len(TEXT)), 5),
        "decoder_position_ids": TEXT[None],
        "decoder_attention_mask": dict.fromkeys(host.unique_layer_types),
        "past_key_values": DynamicCache(),
    }
    return Call(lambda: host(**kwargs), lambda length: TEXT)


def _dit(host: nn.Module) -> Call:
    attention = [block.attn for block in host.transformer_blocks]
    return by_layer(host, attention, host.rotary_embed)


def _flash_draft(host: nn.Module) -> Call:
    """No context: the keys are those of the block itself."""
    states = torch.zeros(1, len(TEXT), width(host))
    context = torch.zeros(1, 0, width(host) * len(host.config.target_layer_ids))
    return Call(
        lambda: host(states, context, position_ids=TEXT[None], use_cache=False),
        lambda length: TEXT,
    )


def _half_as_far(host: nn.Module) -> Call:
    """Positions up to 2,047: the table has no more rows."""
    places = TEXT // 2
    states = torch.zeros(1, len(TEXT), width(host))
    return Call(
        lambda: host(inputs_embeds=states, position_ids=places[None], use_cache=False),
        lambda length: places,
    )


def _source(module: nn.Module) -> Any:
    return sys.modules[type(module).__module__]


def _conformer(host: nn.Module) -> Direct:
    """The input of the projections rotates, in heads; the table begins at 0."""
    attention = host.layers[0].self_attn
    H, D, S = attention.num_heads, attention.head_size, len(TEXT)
    table = host.embed_positions(torch.zeros(1, S, H * D))

    def rotated(x: Tensor) -> Tensor:
        flat = x.transpose(1, 2).flatten(2)
        flat = attention._apply_rotary_embedding(flat, table)
        return flat.unflatten(-1, (H, D)).transpose(1, 2)

    return Direct(
        H, H, D, torch.arange(S), lambda q, k: (rotated(q), rotated(k)), "before the projection"
    )


def _by_head(host: nn.Module) -> Direct:
    """The position is the head's number: heads and tokens are swapped here."""
    H, D, S = host.num_attention_heads, host.layers[0].self_attn.head_dim, len(TEXT)
    places = torch.arange(H)
    table = host.rotary_emb(torch.zeros(1, S, D), places[None])
    apply = _source(host).apply_rotary_pos_emb

    def rotate(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        q, k = apply(q.transpose(1, 2), k.transpose(1, 2), *table, unsqueeze_dim=2)
        return q.transpose(1, 2), k.transpose(1, 2)

    return Direct(S, S, D, places, rotate, "by head number: here heads are tokens, tokens heads")


def _across_heads(host: nn.Module) -> Direct:
    """All heads rotate as one."""
    D, stride = host.config.hidden_size, host.config.q_aggregation_stride
    features = torch.zeros(1, D, GRID[1] * stride, GRID[2] * stride)
    cos, sin = (t.reshape(1, -1, D) for t in host.rotary_emb(features))
    apply = _source(host).apply_rotary_pos_emb

    def rotate(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return apply(q, k, cos, sin)

    return Direct(1, 1, D, grid_positions(1), rotate, "all heads as one; counted from 1")


def _music(host: nn.Module) -> Direct:
    """Audio states instead of queries and keys; the angle is a product of window, frame, time."""
    D, S = host.config.head_dim, len(TEXT)
    seconds = torch.arange(S)[None] * 0.04 + 30.0
    cos, sin = host.pos_emb(seconds, seq_len=S)
    apply = _source(host).apply_rotary_time_emb

    def rotate(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return apply(q, cos[:, None], sin[:, None]), apply(k, cos[:, None], sin[:, None])

    return Direct(1, 1, D, seconds[0], rotate, "audio states, not q and k; seconds")


def _layers(table: str | None) -> Callable[[nn.Module], Call]:
    def call(host: nn.Module) -> Call:
        return by_layer(host, host.layers, table and getattr(host, table))

    return call


# Calls by class of host.
CALLS: dict[str, Callable[[nn.Module], Call | Direct]] = {
    "BltLocalDecoder": _layers("rotary_emb"),
    "BltLocalEncoder": _layers("rotary_emb"),
    "ClvpEncoder": _clvp,
    "CodeGenModel": _half_as_far,
    "DINOv3ViTModel": lambda host: by_pixels(host, centers),
    "DeepseekOcr2VisionEncoder": lambda host: by_sequence(host, 1, num_patches=9),
    "DiaDecoder": _dia,
    "DiffusionGemmaDecoderModel": _canvas,
    "Dots3NoteAudioModel": _layers("rotary_embedding"),
    "EdgeTamVideoMemoryAttention": _memory,
    "EfficientLoFTRModel": _across_heads,
    "EomtDinov3ForUniversalSegmentation": _eomt,
    "EsmFold2AtomEncoder": _atoms,
    "GPTJModel": _half_as_far,
    "Gemma4TextModel": lambda host: by_sequence(host, 1, input_ids=torch.full((1, len(TEXT)), 5)),
    "Gemma4VisionEncoder": _gemma_vision,
    "GlmAsrEncoder": _layers("rotary_emb"),
    "IdeficsModel": _layers(None),
    "Inkling2VisionModel": _inkling,
    "Kimi_K25VisionModel": _kimi,
    "LasrEncoder": _layers("rotary_emb"),
    "Llama4VisionModel": lambda host: _of_size(host, _class_last),
    "MLCDVisionModel": lambda host: _of_size(host, _class_first),
    "MiniMaxM3VLVisionModel": lambda host: by_grid(host, 1, (2, 6, 4)),
    "MoonshineEncoder": _layers("rotary_emb"),
    "MoonshineStreamingDecoder": _encoded,
    "MuseGlimmerAssistantModel": _flash_draft,
    "MusicFlamingoModel": _music,
    "NeuCodecDecoder": _by_head,
    "PaddleOCRVisionEncoder": _paddle,
    "PeAudioEncoder": _layers("rotary_emb"),
    "PeAudioVideoEncoder": _layers("rotary_emb"),
    "PeVideoEncoder": _layers("rotary_emb"),
    "PixtralVisionModel": by_pixels,
    "Qwen2_5OmniToken2WavDiTModel": _dit,
    "RecurrentGemmaModel": _layers(None),
    "Sam2VideoMemoryAttention": _memory,
    "Sam3TrackerVideoMemoryAttention": _memory,
    "Sam3ViTModel": _sam3,
    "Sapiens2Model": lambda host: by_pixels(host, centers),
    "SeamlessM4TConformerEncoder": _conformer,
    "Step3p7VisionModel": by_pixels,
    "T5Gemma2Decoder": _encoded,
    "T5GemmaDecoder": _encoded,
    "TimesFm2_5Model": _layers("rotary_emb"),
    "VJEPA2Encoder": _vjepa,
    "VideoLlama3VisionModel": lambda host: by_grid(host, 1, merge_sizes=torch.tensor([1])),
    "Wav2Vec2BertEncoder": _conformer,
    "Wav2Vec2ConformerEncoder": _conformer,
    "Xcodec2Decoder": _by_head,
}

NOTES: dict[str, str] = {
    "ClvpEncoder": "v rotates too",
    "Gemma4VisionEncoder": "positions are (x, y)",
    "Llama4VisionModel": "counted from 1; the class token, last, does not rotate",
    "MLCDVisionModel": "the class token, first, rotates by learned angles, here 0",
    "Qwen2_5OmniToken2WavDiTModel": "head 0 alone rotates",
}
