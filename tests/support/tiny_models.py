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
