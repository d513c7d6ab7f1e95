"""Conventions of language models.

They were read in the modeling files of transformers 5.23, or in the model's own code if that
library has none.
"""

from __future__ import annotations

from ropewalk.rotary.config.conventions import (
    DEFAULT_THETA,
    FULL,
    SLIDING,
    ConventionsByModelType,
    IndexerConventions,
    RopeConventions,
)

TEXT = ConventionsByModelType()
NEEDS_LAYER_TYPES = ("layer_types",)
NEEDS_ROPE = ("rope_parameters",)
INDEX_128 = {"index_head_dim": 128}

PARTIAL = RopeConventions(partial_rotary=True)
PAIRWISE = RopeConventions(pairing="interleaved")

# Full heads, paired in halves, as in Llama; entries differ in the default theta.
TEXT.add(
    """
    Yi arcee aria_text chameleon deepseek deepseek_ocr2_encoder deepseek_ocr2_text dia_decoder
    dia_encoder diffllama doge dots1 esm_rotary esmc eurobert falcon_h1 gemma gemma2
    gradium_phonon_tts mistral granite granite4_vision_text granite_docling_text granitemoe
    granitemoeshared hrm_text
    hyperclovax idefics internlm2 jais2 kyutai_speech_to_text lasr_encoder
    llama mimi mimi_decoder mimi_encoder minicpm ministral moshi
    olmo olmo2 olmoe pocket_tts pocket_tts_audio_tokenizer_decoder
    pocket_tts_audio_tokenizer_encoder qwen2 qwen2_moe qwen3 qwen3_moe qwen3_omni_moe_code2wav
    qwen3_omni_moe_talker_code_predictor seed_oss starcoder2
    SaProtConfig t5_gemma_module timesfm2_5 unlimited_ocr_text vaultgemma voxtral_realtime_encoder
    """
)
TEXT.add("nomic_bert", theta=1e3)
TEXT.add("jina_embeddings_v3", theta=2e4)
TEXT.add("gpt_oss", theta=15e4, required_keys=NEEDS_ROPE)
TEXT.add("gte", theta=16e4)
TEXT.add("bitnet csm csm_depth_decoder_model evolla flex_olmo", theta=5e5)
TEXT.add("higgs_audio_v2", theta=None, required_keys=NEEDS_ROPE)
TEXT.add("mllama_text_model muse_glimmer_assistant", theta=5e5)
TEXT.add("emu3_text_model mixtral phimoe", theta=1e6)
TEXT.add("voxtral_realtime_text", theta=None, required_keys=("head_dim",))
TEXT.add("cwm", theta=1e6, required_keys=NEEDS_ROPE)
TEXT.add(
    "lfm2 lfm2_moe", theta=1e6, full_attention_index_key="full_attn_idxs", other_layer_type="conv"
)
TEXT.add("minimax", theta=1e6, required_keys=NEEDS_LAYER_TYPES)
TEXT.add("hunyuan hunyuan_v1_dense hunyuan_v1_moe", extra_fields=frozenset({"alpha"}))
TEXT.add("dbrx", rope_theta_section="attn_config")
TEXT.add("jetmoe", required_keys=("kv_channels",))
TEXT.add("molmo2_text", scaled_layers_key="rope_scaling_layers")
TEXT.add("granite_swa granitemoe_swa", required_keys=("layer_rope_theta",))
TEXT.add("muse_glimmer_text", required_keys=("layer_rope_theta",), one_theta=True)
TEXT.add("muse_spark_text", theta=5e5, required_keys=("layer_rope_theta",), one_theta=True)
TEXT.add("voxtral_text", theta=1e8)
TEXT.add("hy_v3", theta=11_158_840.0)
TEXT.add("apertus", theta=12e6, required_keys=NEEDS_ROPE)
TEXT.add(
    "ministral3",
    required_keys=NEEDS_ROPE,
    extra_fields=frozenset({"llama_4_scaling_beta", "max_position_embeddings"}),
)
TEXT.add("nanochat", reverse=True)

# Layers without rope, or models that may have none.
TEXT.add("smollm3", theta=2e6, reads_no_rope_layers=True)
TEXT.add(
    "afmoe exaone4 exaone_moe flint kolibri1",
    nope_layer_types=frozenset({FULL}),
    required_keys=NEEDS_LAYER_TYPES,
)
TEXT.add("olmo_hybrid", required_keys=NEEDS_LAYER_TYPES)
TEXT.add(
    "esm",
    rope_switches={"position_embedding_type": "rotary"},
    defaults={"position_embedding_type": "absolute"},
)
TEXT.add(
    "granitemoehybrid",
    rope_switches={"position_embedding_type": "rope"},
    defaults={"position_embedding_type": "nope"},
    required_keys=NEEDS_LAYER_TYPES,
)
TEXT.add("falcon", rope_switches={"alibi": False}, defaults={"alibi": False})
TEXT.add(
    "zamba2",
    rope_switches={"use_mem_rope": True},
    defaults={"use_mem_rope": False},
    required_keys=("attention_head_dim", "layer_types"),
)

# Types of layers with another theta or another rule.
TEXT.add("beam mellum ultrabert", theta=None, rope_parameters_by_layer_type=True)
TEXT.add("lfm3", theta=None, rope_parameters_by_layer_type=True)
TEXT.add(
    "olmo3", theta=5e5, unscaled_layer_types=frozenset({SLIDING}), required_keys=NEEDS_LAYER_TYPES
)
GEMMA = RopeConventions(
    defaults={"rope_local_base_freq": DEFAULT_THETA, "sliding_window_pattern": 6},
    keys_by_layer_type={SLIDING: {"rope_theta": "rope_local_base_freq"}},
    unscaled_layer_types=frozenset({SLIDING}),
    full_attention_interval_key="sliding_window_pattern",
)
TEXT.add(
    "gemma3n_text", GEMMA, 1e6, full_attention_interval_key=None, required_keys=NEEDS_LAYER_TYPES
)
TEXT.add("gemma3_text t5gemma2_decoder t5gemma2_text", GEMMA, 1e6)
TEXT.add(
    "gemma4_text gemma4_unified_text diffusion_gemma_text embedding_gemma2_text",
    theta=None,
    rope_parameters_by_layer_type=True,
    defaults={"global_head_dim": 512},
    keys_by_layer_type={FULL: {"head_dim": "global_head_dim"}},
)
MODERN = {
    "global_rope_theta": 16e4,
    "local_rope_theta": DEFAULT_THETA,
    "global_attn_every_n_layers": 3,
}
TEXT.add(
    "modernbert modernbert-decoder",
    theta=16e4,
    defaults=MODERN,
    keys_by_layer_type={
        FULL: {"rope_theta": "global_rope_theta"},
        SLIDING: {"rope_theta": "local_rope_theta"},
    },
    full_attention_interval_key="global_attn_every_n_layers",
    full_attention_at="first",
)

# The leading part of a head.
TEXT.add(
    """
    gpt_neox_japanese phi3 phi3_v phi4_multimodal
    """,
    PARTIAL,
)
TEXT.add("solar_open", PARTIAL, 1e6)
NEEDS_PARTIAL = ("partial_rotary_factor",)
TEXT.add("glm4_moe", PARTIAL, required_keys=NEEDS_PARTIAL)
TEXT.add("laguna mimo_v2_flash step3p5 zaya", PARTIAL, None, rope_parameters_by_layer_type=True)
QUARTER = PARTIAL._replace(rope_defaults={"partial_rotary_factor": 0.25})
TEXT.add("gpt_neox stablelm", QUARTER)
LINEAR_HYBRID = RopeConventions(
    partial_rotary=True,
    full_attention_interval_key="full_attention_interval",
    other_layer_type="linear_attention",
    defaults={"full_attention_interval": 4},
)
TEXT.add("qwen3_next", LINEAR_HYBRID, rope_defaults={"partial_rotary_factor": 0.25})
HALF_HEAD = PARTIAL._replace(rope_defaults={"partial_rotary_factor": 0.5})
TEXT.add("nemotron phi", HALF_HEAD)
TEXT.add(
    "bamba",
    HALF_HEAD,
    full_attention_index_key="attn_layer_indices",
    other_layer_type="linear_attention",
    required_keys=NEEDS_LAYER_TYPES,
)
TEXT.add(
    "recurrent_gemma",
    HALF_HEAD,
    layer_type_pattern_key="block_types",
    required_keys=NEEDS_LAYER_TYPES,
)
# Its own code has 25,000, and the default of transformers has changed.
TEXT.add("persimmon", HALF_HEAD, None)
NEEDS_ROTARY_DIM = ("rotary_dim",)
TEXT.add("minimax_m2", PARTIAL, 5e6, rotary_dim_key="rotary_dim")
TEXT.add(
    # transformers documents `rotary_dim` but ignores it, and rotates full heads.
    "minimax_m3_vl_text",
    PARTIAL,
    5e6,
    rotary_dim_key="rotary_dim",
    required_keys=NEEDS_ROTARY_DIM,
    indexer=IndexerConventions("half"),
    indexer_layer_types=frozenset({"minimax_m3_sparse"}),
    defaults=INDEX_128,
)
TEXT.add("phi-msft", rotary_dim_key="rotary_dim", required_keys=NEEDS_ROTARY_DIM)

# Neighboring dimensions make a pair.
TEXT.add("blt_patcher roformer", PAIRWISE)
TEXT.add("helium", PAIRWISE, 1e5)
TEXT.add("openai_privacy_filter", PAIRWISE, 15e4, required_keys=NEEDS_ROPE)
TEXT.add("blt_global_transformer blt_local_decoder blt_local_encoder", PAIRWISE, 5e5)
TEXT.add("cohere ernie4_5 ernie4_5_moe", PAIRWISE, 5e5)
TEXT.add(
    "cohere2 cohere2_moe",
    PAIRWISE,
    nope_layer_types=frozenset({FULL}),
    full_attention_interval_key="sliding_window_pattern",
    defaults={"sliding_window_pattern": 4},
)
TEXT.add(
    "llama4_text",
    PAIRWISE,
    5e5,
    reads_no_rope_layers=True,
    defaults={"attn_temperature_tuning": True},
)
TEXT.add("codegen gptj", PAIRWISE, rotary_dim_key="rotary_dim", required_keys=NEEDS_ROTARY_DIM)
TEXT.add("chatglm", HALF_HEAD, pairing="interleaved", rope_ratio_key="rope_ratio")
TEXT.add("glm glm4", HALF_HEAD, pairing="interleaved")
TEXT.add("moonshine_streaming", PARTIAL, pairing="interleaved", required_keys=NEEDS_PARTIAL)
MOONSHINE = RopeConventions(
    pairing="interleaved", partial_rotary=True, rope_defaults={"partial_rotary_factor": 0.9}
)
for side in ("encoder", "decoder"):
    keys = ("num_hidden_layers", "num_attention_heads")
    TEXT.add(f"moonshine_{side}", MOONSHINE, aliases={f"{side}_{key}": key for key in keys})

# Time, height and width; height and width.
QWEN2_VL = RopeConventions(axis_order="sectioned", rope_defaults={"mrope_section": [16, 24, 24]})
TEXT.add("qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text", QWEN2_VL, 1e6)
TEXT.add("paddleocr_vl_text", QWEN2_VL, 5e5)
QWEN3_VL = RopeConventions(axis_order="interleaved", rope_defaults={"mrope_section": [24, 20, 20]})
TEXT.add("qwen3_vl_moe_text qwen3_vl_text", QWEN3_VL, 5e5)
TEXT.add("cohere_compass_text qwen3_omni_moe_talker_text", QWEN3_VL)
TEXT.add("qwen3_omni_moe_text", QWEN3_VL, 1e6)
TEXT.add("cosmos3_edge_text", QWEN3_VL, 1e8)
QWEN3_5 = LINEAR_HYBRID._replace(
    axis_order="interleaved", rope_defaults={"mrope_section": [11, 11, 10]}
)
TEXT.add("qwen3_5_moe_text qwen3_5_text", QWEN3_5, rope_defaults={"partial_rotary_factor": 0.25})
TEXT.add(
    "qwen4_exp_text",
    QWEN3_5,
    indexer=IndexerConventions("half", head_dim_key="indexer_head_dim"),
    indexer_layer_types=frozenset({FULL, "indexed_attention"}),
)
GLM_V = RopeConventions(
    axis_order="sectioned", partial_rotary=True, rope_defaults={"mrope_section": [8, 12, 12]}
)
TEXT.add("glm4v_moe_text glm_image_text", GLM_V, rope_defaults={"partial_rotary_factor": 0.5})
TEXT.add("glm4v_text", GLM_V, pairing="interleaved", rope_defaults={"partial_rotary_factor": 0.5})
TEXT.add("glm_ocr_text", GLM_V, pairing="interleaved")
TEXT.add(
    "ernie4_5_vl_moe_text",
    PAIRWISE,
    5e5,
    axis_order="ernie",
    rope_defaults={"mrope_section": [22, 22, 20]},
)
TEXT.add(
    "neomme",
    PARTIAL,
    None,
    axis_order="round robin",
    rope_parameters_by_layer_type=True,
    required_keys=NEEDS_PARTIAL,
)

# A rope on a part of each head: latent attention, DeepSeek-V4.
LATENT_TEXT = ConventionsByModelType()
LATENT = RopeConventions(head_layout="latent", pairing="interleaved", write_pairing="half")
INDEX_HEADS_OF_128 = {"index_head_dim": 128}

INTERLEAVE = LATENT._replace(pairing_key="rope_interleave")  # only these types' code reads it
LATENT_TEXT.add("axk1 deepseek_v3 glm4_moe_lite youtu", INTERLEAVE)
LATENT_TEXT.add("kimi_k2", LATENT)
# DeepSeek-V3.2's indexer pairs halves although the model pairs neighbors; GLM's does not.
LATENT_TEXT.add(
    "axk2 deepseek_v32", LATENT, indexer=IndexerConventions("half"), defaults=INDEX_HEADS_OF_128
)
GLM_INDEXER = IndexerConventions("interleaved", "half")
LATENT_TEXT.add(
    "glm_moe_dsa", LATENT, indexer=GLM_INDEXER, shares_indexers=True, defaults=INDEX_HEADS_OF_128
)
LATENT_TEXT.add("bailing_hybrid", LATENT, 6e6, required_keys=("layer_types",))
LATENT_TEXT.add(
    "dots3_note_text",
    LATENT,
    None,
    rope_parameters_by_layer_type=True,
    required_keys=("per_layer_config",),
    indexer=GLM_INDEXER,
    indexer_layer_types=frozenset({"indexed_attention"}),
    defaults=INDEX_HEADS_OF_128,
)
LATENT_TEXT.add("longcat_flash", LATENT, 1e7)
LATENT_TEXT.add(
    "mistral4",
    INTERLEAVE,
    required_keys=("rope_parameters",),
    extra_fields=frozenset({"llama_4_scaling_beta", "max_position_embeddings"}),
)
LATENT_TEXT.add(
    "mistral_large4_text",
    LATENT,
    reads_no_rope_layers=True,
    required_keys=("rope_parameters",),
    indexer=GLM_INDEXER,
    shares_indexers=True,
    defaults=INDEX_HEADS_OF_128,
)
LATENT_TEXT.add("deepseek_v2", LATENT, write_pairing=None)
LATENT_TEXT.add("minicpm3", LATENT, pairing="half", write_pairing=None)
LATENT_TEXT.add(
    "hy_v4",
    LATENT,
    pairing="half",
    write_pairing=None,
    indexer=IndexerConventions("half", trailing=True),
    shares_indexers=True,
    defaults={**INDEX_HEADS_OF_128, "index_topk_freq": 4},
)
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
LATENT_TEXT.add(
    "deepseek_v4",
    RopeConventions(head_layout="trailing", pairing="interleaved"),
    defaults={"compress_rope_theta": 16e4},
    keys_by_layer_type={
        layer_type: {"rope_theta": "compress_rope_theta"} for layer_type in COMPRESSED
    },
    unscaled_layer_types=frozenset({SLIDING}),
    rope_parameters_names={SLIDING: "main", **dict.fromkeys(COMPRESSED, "compress")},
    yarn_fields={"attention_factor": 1.0},
    layer_types_by_ratio={0: SLIDING, 4: COMPRESSED[0], 128: COMPRESSED[1]},
    indexer=IndexerConventions("interleaved", trailing=True),
    indexer_layer_types=frozenset(COMPRESSED[:1]),
)
