"""MLX and mlx-lm on the CPU: mlx_lm.models.rope_utils.initialize_rope, or the layer of a model.

The first gives mlx.nn.RoPE for the plain and linear rules, the second is in the model that mlx-lm
builds of a config.json. Tokens are a batch of one token each, with an offset for each, as in its
batched decoding; a rule that depends on the length gets all its tokens.
"""

from __future__ import annotations

import functools
import json
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.rope_utils import initialize_rope
from mlx_lm.utils import _get_classes

mx.set_default_device(mx.cpu)
DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}
RULES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")
# What the models ask of a config.json besides its rope; the vectors leave it out.
NUMBERS = """intermediate_size intermediate_size_mlp vocab_size rms_norm_eps layer_norm_eps norm_eps
dim_model_base scale_depth scale_emb num_local_experts num_experts num_experts_per_tok attn_scale
interleave_moe_layer_step attention_chunk_size floor_scale linear_num_value_heads sliding_window
linear_num_key_heads linear_key_head_dim linear_value_head_dim linear_conv_kernel_dim use_bias
decoder_sparse_step shared_expert_intermediate_size moe_intermediate_size norm_topk_prob
attention_bias use_qkv_bias tie_word_embeddings use_qk_norm attn_temperature_tuning"""
OTHER = dict.fromkeys(NUMBERS.split(), 2) | {"hidden_act": "relu2", "mlp_only_layers": []}
OTHER["num_experts_per_tok"] = 1


@functools.cache
def layer_of_model(config: str, layer: int) -> Any:
    """Return the layer of a model, None if mlx-lm has not the model. No weights are computed."""
    fields = json.loads(config, object_hook=lambda x: {**OTHER, **x} if "hidden_size" in x else x)
    try:
        model, arguments = _get_classes({**OTHER, "max_position_embeddings": None, **fields})
    except ValueError:
        return None
    fields = {**OTHER, "max_position_embeddings": None, **fields}
    modules = model(arguments.from_dict(fields)).layers[layer].modules()
    return next(x for x in modules if "RoPE" in type(x).__name__ or "Rotary" in type(x).__name__)


def layer_of(vector: dict[str, Any]) -> Any:
    """Return the layer, or None where mlx-lm does not offer the rope."""
    rope, scaling = vector["rope"], vector["rope"]["scaling"]
    if (
        rope["pairing"] != rope["write_pairing"]
        or rope["axes"]
        or rope["reverse"]
        or vector["cached"] is not None
    ):
        return None
    if vector["config"] is not None:
        return layer_of_model(json.dumps(vector["config"]), vector["layer"])
    rule, longest = scaling["rope_type"], scaling.get("original_max_position_embeddings", 4096)
    if rule not in RULES or {"alpha", "use_dynamic_ntk"} & set(scaling):
        return None
    longest = int(longest * scaling["factor"]) if rule == "longrope" else longest
    traditional = rope["pairing"] == "interleaved"
    return initialize_rope(rope["rotary_dim"], rope["theta"], traditional, scaling, longest)


def frequencies(vector: dict[str, Any]) -> Any:
    """Level 1, of the layers that keep their frequencies."""
    layer = layer_of(vector)
    if not hasattr(layer, "_freqs"):
        return None
    factor = getattr(layer, "mscale", getattr(layer, "_scale", 1.0))
    return np.array(1.0 / layer._freqs), factor


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3; of the last dimensions as mlx_lm.models.deepseek_v3, which gives these alone."""
    layer, at, start = layer_of(vector), vector["positions"], vector["rope"]["start"]
    if layer is None:
        return None
    made = []
    for name in ("q", "k"):
        if not vector[name]:
            continue
        x = mx.array(np.array(vector[name], np.float32)).astype(DTYPES[vector["dtype"]])
        if vector["length"] is None:
            y = layer(x[:, None, None, start:], offset=mx.array(at, mx.int32))[:, 0, 0]
        else:
            full = mx.zeros((1, 1, vector["length"], x.shape[-1]), x.dtype)
            full[0, 0, mx.array(at)] = x
            y = layer(full[..., start:])[0, 0, mx.array(at)]
        made.append(np.array(mx.concatenate([x[:, :start], y], -1).astype(mx.float32)))
    return made
