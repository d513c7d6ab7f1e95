"""Values that default configurations need to be built, and parts that are not reached."""

from __future__ import annotations

from typing import Any

# Values that a default configuration needs to be built, by its class: those of the released model,
# or the simplest that fit.
_DENSE = ["dense"] * 32
CONFIGS: dict[str, dict[str, Any]] = {
    "BambaConfig": {"attn_layer_indices": [9, 18, 27]},
    "ChameleonConfig": {"vocabulary_map": {"<image>": 4}},
    "CohereCompassTextConfig": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    },
    "DbrxConfig": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0}},
    "DeepseekOcr2TextConfig": {"mlp_layer_types": _DENSE},
    # by default no layer has the plain rope that is "main" in `rope_parameters`
    "DeepseekV4Config": {
        "layer_types": ["sliding_attention"] * 3
        + ["compressed_sparse_attention", "heavily_compressed_attention"] * 20
    },
    "DiffusionGemmaTextConfig": {
        "num_experts": 4,
        "top_k_experts": 2,
        "moe_intermediate_size": 64,
    },
    "Dots1Config": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "Emu3Config": {"vocabulary_map": {"<image>": 4}},
    "EsmConfig": {"vocab_size": 33, "position_embedding_type": "rotary", "pad_token_id": 1},
    "Gemma4Config": {"vision_config": {"model_type": "gemma4_vision"}},
    "Glm4vTextConfig": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [8, 12, 12],
        }
    },
    "Glm4vMoeTextConfig": {
        "head_dim": 128,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [8, 12, 12],
        },
    },
    "GlmImageTextConfig": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 0.5,
            "mrope_section": [8, 12, 12],
        }
    },
    "HunYuanDenseV1Config": {"head_dim": 128},
    "HunYuanMoEV1Config": {"head_dim": 128},
    "GraniteMoeHybridConfig": {
        "position_embedding_type": "rope",
        "layer_types": ["linear_attention", "full_attention"] * 16,
    },
    "HunYuanVLTextConfig": {
        "head_dim": 128,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "mrope_section": [16, 16, 16, 16],
        },
    },
    "Lfm2MoeConfig": {"layer_types": ["conv", "full_attention"] * 16},
    # zeros go through its experts too, and its layers are 28
    "LongcatFlashConfig": {"n_routed_experts": 4, "expert_ffn_hidden_size": 64, "moe_topk": 2},
    "MinistralConfig": {"head_dim": 128},
    "MoonshineStreamingConfig": {"num_key_value_heads": 8},
    "NemotronConfig": {"num_key_value_heads": 8},
    "Qwen3OmniMoeTextConfig": {"num_attention_heads": 32},
    "Qwen3OmniMoeTalkerTextConfig": {"shared_expert_intermediate_size": 64},
    "Qwen4ExpTextConfig": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 256,
        "indexer_budget": 64,
        "indexer_compress_ratio": 4,
    },
    "SeamlessM4TConfig": {"position_embeddings_type": "rotary"},
    "Step3p7TextConfig": {"sliding_window": 512},
    "Wav2Vec2BertConfig": {"position_embeddings_type": "rotary"},
    "Wav2Vec2ConformerConfig": {"position_embeddings_type": "rotary"},
    "Zamba2Config": {"use_mem_rope": True},
}

# Parts without ropes whose packages are not installed.
STUBS = ("EomtDinov3Loss", "PeAudioVideoEncoderEmbedder", "PeVideoEncoderEmbedder")


UNREACHABLE: dict[str, str] = {
    "lightglue.LightGlueAttention": "its frequencies are learned weights",
}
