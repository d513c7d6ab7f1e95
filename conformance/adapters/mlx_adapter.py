"""MLX and mlx-lm on the CPU: mlx_lm.models.rope_utils.initialize_rope, or the layer of a model.

The first gives mlx.nn.RoPE for the plain and linear rules, the second is in the model that mlx-lm
builds of a config.json. Tokens are a batch of one token each, with an offset for each, as in its
batched decoding; a rule that depends on the length gets all its tokens.
"""

import functools
import json
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.rope_utils import initialize_rope
from mlx_lm.utils import _get_classes
from offered import EVERY, ORIGINAL, Offer, Result, Vector, arrays, asked, joined

mx.set_default_device(mx.cpu)
RULES = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")
OFFERED, OF_A_MODEL = Offer(parts=EVERY, rules=RULES), Offer(parts=EVERY, rules=None)
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
    fields = {**OTHER, "max_position_embeddings": None, **fields}
    try:
        model, arguments = _get_classes(fields)
    except ValueError:
        return None
    modules = model(arguments.from_dict(fields)).layers[layer].modules()
    return next(x for x in modules if "RoPE" in type(x).__name__ or "Rotary" in type(x).__name__)


@asked(OF_A_MODEL)
def layer_of(vector: Vector) -> Any:
    """Return the layer, or None where mlx-lm does not offer the rope."""
    rope, scaling = vector["rope"], vector["rope"]["scaling"]
    if vector["config"] is not None:
        return layer_of_model(json.dumps(vector["config"]), vector["layer"])
    if vector not in OFFERED:
        return None
    longest = scaling.get(ORIGINAL, 4096)
    if scaling["rope_type"] == "longrope":
        longest = int(longest * scaling["factor"])
    traditional = rope["pairing"] == "interleaved"
    return initialize_rope(rope["rotary_dim"], rope["theta"], traditional, scaling, longest)


def frequencies(vector: Vector) -> Result:
    """Level 1, of the layers that keep their frequencies."""
    layer = layer_of(vector)
    if not hasattr(layer, "_freqs"):
        return None
    factor = getattr(layer, "mscale", getattr(layer, "_scale", 1.0))
    return np.array(1.0 / layer._freqs), factor


def rotate(vector: Vector) -> Result:
    """Level 3; of the last dimensions as mlx_lm.models.deepseek_v3, which gives these alone."""
    layer, at, start = layer_of(vector), mx.array(vector["positions"]), vector["rope"]["start"]
    if layer is None:
        return None
    made = []
    for head in arrays(vector):
        x = mx.array(head.astype(np.float32)).astype(getattr(mx, vector["dtype"]))
        if vector["length"] is None:
            y = layer(x[:, None, None, start:], offset=at)[:, 0, 0]
        else:
            full = mx.zeros((1, 1, vector["length"], x.shape[-1]), x.dtype)
            full[0, 0, at] = x
            y = layer(full[..., start:])[0, 0, at]
        made.append(np.array(mx.concatenate([x[:, :start], y], -1).astype(mx.float32)))
    return joined(vector, made)
