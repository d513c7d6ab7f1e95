"""Tiny transformers models, one per family, with random weights."""

import torch
from torch import nn

FEW = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "head_dim": 8,
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
}
GPTJ = {"n_embd": 64, "n_head": 4, "n_layer": 4, "rotary_dim": 8, "n_positions": 512}
TYPES = ["sliding_attention", "full_attention"] * 2
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 4.0,
    "original_max_position_embeddings": 4096,
}
GEMMA = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}


def tiny_model(model_type: str, **fields: object) -> nn.Module:
    """A causal language model, or the model that the type has instead."""
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    kwargs = {**FEW, **fields}
    config = AutoConfig.for_model(model_type, **kwargs)
    torch.manual_seed(0)
    try:
        return AutoModelForCausalLM.from_config(config).eval()
    except ValueError:
        return AutoModel.from_config(config).eval()


# Sizes of every kind of model; each type takes those that its configuration has.
SIZES = {
    **FEW,
    **{k: v for k, v in LATENT.items() if k not in ("head_dim", "num_key_value_heads")},
    "global_head_dim": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "moe_topk": 2,
    "first_k_dense_replace": 1,
    "qk_head_dim": 24,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_ssm": 128,
    "mamba_d_state": 16,
}
AXES = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
OWN = {
    "bamba": {"attn_layer_indices": [1, 3]},
    "codegen": GPTJ,
    "deepseek_v4": {"num_key_value_heads": 1, "head_dim": 16},
    "falcon_h1": {},
    "glm4v_text": {"rope_parameters": {**AXES, "partial_rotary_factor": 1.0}},
    "glm_ocr_text": {"rope_parameters": AXES},
    "gptj": GPTJ,
    "minimax_m3_vl_text": {"rotary_dim": 8},
    "mistral4": {"head_dim": 24, "num_key_value_heads": 4},
    "qwen2_5_vl_text": {"rope_parameters": AXES},
    "qwen2_vl_text": {"rope_parameters": AXES},
    "zaya": {"num_experts_per_tok": 1},
}
DERIVED = {"bamba": ("layer_types",), "falcon": ("head_dim",), "falcon_h1": ("layer_types",)}


def _has(config: object, name: str) -> bool:
    try:
        return hasattr(config, name)
    except RuntimeError:  # it differs from layer to layer
        return True


def any_tiny_model(model_type: str) -> nn.Module:
    """A model of any type, of the default configuration with small sizes."""
    from transformers import CONFIG_MAPPING, AutoModel

    config_class = CONFIG_MAPPING[model_type]
    default = config_class()
    kwargs = {name: size for name, size in SIZES.items() if _has(default, name)}
    if isinstance(getattr(default, "layer_types", None), list):
        kwargs["layer_types"] = (list(dict.fromkeys(default.layer_types)) * 4)[:4]
    if "qk_rope_head_dim" in kwargs:
        kwargs |= {"num_key_value_heads": 4, **({"head_dim": 8} if "head_dim" in kwargs else {})}
    kwargs |= OWN.get(model_type, {})
    for name in DERIVED.get(model_type, ()):
        kwargs.pop(name, None)
    torch.manual_seed(0)
    return AutoModel.from_config(config_class(**kwargs)).eval()
