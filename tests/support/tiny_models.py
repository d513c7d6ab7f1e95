"""Tiny transformers models, one per family, with random weights."""

import torch
from torch import nn

#: Types of models that tests run in full: each takes tokens.
FAMILIES = """
    afmoe apertus arcee aria_text axk1 axk2 bailing_hybrid beam bitnet codegen cohere cohere2
    cohere2_moe cwm deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 diffllama doge ernie4_5
    ernie4_5_moe eurobert exaone4 exaone_moe falcon flex_olmo flint gemma gemma2 gemma3_text
    gemma4_text glm glm4 glm4_moe glm4_moe_lite glm_moe_dsa gpt_neox gpt_neox_japanese gpt_oss gptj
    granite granite_docling_text granite_swa granitemoe granitemoe_swa granitemoeshared gte helium
    higgs_audio_v2 hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3 hyperclovax jais2 jetmoe
    jina_embeddings_v3 kolibri1 laguna lfm2 lfm3 llama llama4_text longcat_flash mellum
    mimo_v2_flash minicpm3 minimax minimax_m2 ministral ministral3 mistral mistral4
    mistral_large4_text mixtral modernbert modernbert-decoder molmo2_text moshi muse_glimmer_text
    muse_spark_text nanochat nemotron neomme nomic_bert olmo olmo2 olmo3 olmo_hybrid olmoe
    openai_privacy_filter persimmon phi phi3 phimoe qwen2 qwen2_5_vl_text qwen2_moe qwen2_vl_text
    qwen3 qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_vl_moe_text qwen3_vl_text
    roformer seed_oss smollm3 solar_open stablelm starcoder2 ultrabert vaultgemma youtu
""".split()  # noqa: SIM905

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
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "vocab_size_per_layer_input": 64,
    "hidden_size_per_layer_input": 16,
    "ffn_dim": 64,
    "ffn_hidden_size": 64,
    "expert_ffn_hidden_size": 32,
    "zero_expert_num": 4,
    "moe_hidden_size": 32,
    "o_groups": 2,
    "o_lora_rank": 16,
    "index_n_heads": 4,
    "index_head_dim": 16,
    "linear_head_dim": 16,
    "linear_num_heads": 4,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_ssm": 128,
    "mamba_d_state": 16,
}
AXES = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
V4_TYPES = ["compressed_sparse_attention", "heavily_compressed_attention"]
OWN = {
    "bamba": {"attn_layer_indices": [1, 3]},
    "codegen": GPTJ,
    "deepseek_v4": {
        "num_key_value_heads": 1,
        "head_dim": 16,
        "layer_types": ["sliding_attention"] * 2 + V4_TYPES,
    },
    "falcon_h1": {},
    "gemma4_text": {"global_head_dim": 32},  # each layer's own attribute holds it: 512 otherwise
    "glm4v_text": {"rope_parameters": {**AXES, "partial_rotary_factor": 1.0}},
    "glm_ocr_text": {"rope_parameters": AXES},
    "gptj": GPTJ,
    "minimax_m3_vl_text": {"rotary_dim": 8},
    "mistral4": {"head_dim": 24, "num_key_value_heads": 4},
    "qwen3_5_moe_text": {"head_dim": 64},
    "qwen3_5_text": {"head_dim": 64},
    "qwen2_5_vl_text": {"rope_parameters": AXES},
    "qwen2_vl_text": {"rope_parameters": AXES},
    "zaya": {"num_experts_per_tok": 1},
}
DERIVED = {"bamba": ("layer_types",), "falcon": ("head_dim",), "falcon_h1": ("layer_types",)}


# Types with a layer that none of the first two is like; of the others, two layers are enough.
FOUR_LAYERS = """
    afmoe bailing_hybrid beam codegen deepseek_v4 diffllama exaone_moe flint gpt_neox_japanese gptj
    hrm_text lfm3 llama4_text longcat_flash mimo_v2_flash mistral_large4_text modernbert
    modernbert-decoder neomme smollm3
""".split()  # noqa: SIM905


def _has(config: object, name: str) -> bool:
    try:
        return hasattr(config, name)
    except RuntimeError:  # it differs from layer to layer
        return True


def small_sizes(model_type: str, **fields: object) -> dict[str, object]:
    """Small sizes of what the default configuration of a type has, and these fields."""
    from transformers import CONFIG_MAPPING

    default = CONFIG_MAPPING[model_type]()
    kwargs: dict[str, object] = {name: size for name, size in SIZES.items() if _has(default, name)}
    if isinstance(getattr(default, "layer_types", None), list):
        kwargs["layer_types"] = (list(dict.fromkeys(default.layer_types)) * 4)[:4]
    if "qk_rope_head_dim" in kwargs:
        kwargs |= {"num_key_value_heads": 4, **({"head_dim": 8} if "head_dim" in kwargs else {})}
    kwargs |= {**OWN.get(model_type, {}), **fields}
    for name in DERIVED.get(model_type, ()):
        kwargs.pop(name, None)
    return kwargs


def any_tiny_model(model_type: str, *, causal: bool = False) -> nn.Module:
    """A model of any type, of the default configuration with small sizes.

    causal: with a head that predicts the next token, if the type has one.
    """
    from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM

    sizes = small_sizes(model_type)
    if model_type not in FOUR_LAYERS:
        sizes["num_hidden_layers"] = 2
        if "layer_types" in sizes:
            sizes["layer_types"] = sizes["layer_types"][:2]
    config = CONFIG_MAPPING[model_type](**sizes)
    torch.manual_seed(0)
    if causal and type(config) in AutoModelForCausalLM._model_mapping:
        return AutoModelForCausalLM.from_config(config).eval()
    return AutoModel.from_config(config).eval()
