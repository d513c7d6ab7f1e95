"""Tiny models of each type that `ropewalk convert` supports, in the forms that configs allow."""

import os

import torch
from tiny_models import AXES, small_sizes

SMALL_GEMMA4 = {"vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8}
DBRX = {
    "d_model": 64,
    "n_heads": 4,
    "n_layers": 4,
    "max_seq_len": 128,
    "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4},
    "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 64},
}
#: Forms that the default config does not have, by type.
FORMS = {
    "biases": ("llama", {"attention_bias": True}),
    "biases and norms": ("qwen3", {"attention_bias": True}),
    "partial": ("phi3", {"partial_rotary_factor": 0.5}),
    "norms with biases": ("phi", {"qk_layernorm": True}),
    "a norm for each head": ("stablelm", {"qk_layernorm": True, "use_qkv_bias": True}),
    "norms of all heads": ("cohere", {"use_qk_norm": True}),
    "norms": ("glm4_moe", {"use_qk_norm": True}),
    "groups": ("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "bias": True}),
    "head by head": ("falcon", {"multi_query": False, "bias": True}),
    "one key head": ("llama", {"num_key_value_heads": 1}),
    "full heads": ("gpt_neox", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                                   "partial_rotary_factor": 1.0}}),
    "queries without a latent part": ("deepseek_v3", {"q_lora_rank": None}),
    "latent biases": ("deepseek_v3", {"attention_bias": True}),
    "v2 without a latent part": ("deepseek_v2", {"q_lora_rank": None}),
    "shared keys": ("gemma4_text", {**SMALL_GEMMA4, "num_kv_shared_layers": 2}),
    "shared keys too": ("gemma3n_text", {"num_kv_shared_layers": 2}),
    "tied": ("llama", {"tie_word_embeddings": True}),
}  # fmt: skip
VISION = {
    **dict.fromkeys(("hidden_size", "intermediate_size", "embed_dim"), 32),
    **dict.fromkeys(("num_hidden_layers", "depth"), 1),
    **dict.fromkeys(("num_attention_heads", "num_heads"), 2),
    **dict.fromkeys(("vision_output_dim", "projector_input_dim", "projector_output_dim"), 64),
    "deepstack_visual_indexes": [0],
    "fullatt_block_indexes": [0],
    "out_hidden_size": 64,
    "image_size": 28,
    "patch_size": 14,
    "head_dim": 16,
    "num_position_embeddings": 16,
}
NEEDED = {
    "glm4v_moe_text": {
        "rope_parameters": {**AXES, "mrope_section": [1, 1, 2], "partial_rotary_factor": 0.5}
    },
    "gemma4_text": SMALL_GEMMA4,
    "granitemoehybrid": {
        "position_embedding_type": "rope",
        "layer_types": ["mamba", "attention"] * 2,
    },
    "gemma3n_text": {**SMALL_GEMMA4, "num_kv_shared_layers": 0, "laurel_rank": 8},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2, "num_dense_layers": 1},
}


def convertible_model(model_type, text_type=None, **fields):
    """Return a tiny model of this type, in evaluation mode: a language model, or one of several
    stacks with a text model of `text_type`.
    """
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForImageTextToText

    if text_type is None:
        config = CONFIG_MAPPING[model_type](**_sizes(model_type, fields))
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval().float()
    text = {**_sizes(text_type, fields), "model_type": text_type}
    text = {key: value for key, value in text.items() if not key.endswith("_token_id")}
    if "_vl" in text_type:
        text["rope_parameters"] = AXES
    vision_config = CONFIG_MAPPING[model_type]().vision_config
    vision = {key: size for key, size in VISION.items() if hasattr(vision_config, key)}
    vision["model_type"] = vision_config.model_type
    config = CONFIG_MAPPING[model_type](text_config=text, vision_config=vision)
    torch.manual_seed(0)
    return AutoModelForImageTextToText.from_config(config).eval().float()


def _sizes(model_type, fields):
    if model_type == "dbrx":
        return {**fields, **DBRX, "vocab_size": 64}
    return small_sizes(model_type, **{**NEEDED.get(model_type, {}), **fields})


def contents(folder):
    """Return the bytes of every file of a folder by name."""
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}
