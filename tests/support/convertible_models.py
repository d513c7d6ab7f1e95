"""Tiny models of each type that `ropewalk convert` supports, in the forms that configs allow."""

import os

import torch
from tiny_models import DERIVED, GPTJ, OWN, SIZES, _has

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
    "tied": ("llama", {"tie_word_embeddings": True}),
}  # fmt: skip
NEEDED = {
    "dbrx": DBRX,
    "gemma4_text": SMALL_GEMMA4,
    "granitemoehybrid": {
        "position_embedding_type": "rope",
        "layer_types": ["mamba", "attention"] * 2,
    },
    "codegen": GPTJ,
    "gptj": GPTJ,
}


def convertible_model(model_type, **fields):
    """Return a tiny causal language model of this type, in evaluation mode."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    config_class = CONFIG_MAPPING[model_type]
    default = config_class()
    sizes = {name: size for name, size in SIZES.items() if _has(default, name)}
    if isinstance(getattr(default, "layer_types", None), list):
        sizes["layer_types"] = (list(dict.fromkeys(default.layer_types)) * 4)[:4]
    if "qk_rope_head_dim" in sizes:
        sizes |= {"num_key_value_heads": 4, **({"head_dim": 8} if "head_dim" in sizes else {})}
    sizes |= {**OWN.get(model_type, {}), **NEEDED.get(model_type, {}), **fields}
    if model_type == "dbrx":
        sizes = {**fields, **DBRX, "vocab_size": 64}
    for name in DERIVED.get(model_type, ()):
        sizes.pop(name, None)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config_class(**sizes)).eval().float()


def contents(folder):
    """Return the bytes of every file of a folder by name."""
    return {name: (folder / name).read_bytes() for name in sorted(os.listdir(folder))}
