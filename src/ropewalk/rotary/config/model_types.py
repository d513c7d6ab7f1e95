"""The conventions of every known model type.

They were read in the modeling files of transformers 5.23, or in the model's own code if that
library has none; an entry's `code` says where.
"""

from __future__ import annotations

from typing import Any

from ropewalk.rotary.config.conventions import (
    DEFAULT_THETA,
    DOUBLING_KEY,
    FULL,
    SLIDING,
    IndexerConventions,
    LogTemperature,
    RopeConventions,
    RuleChoice,
)

#: The conventions of every known `model_type` of a config.json or of one of its sections.
CONVENTIONS: dict[str, RopeConventions] = {}


def _add(
    model_types: str,
    base: RopeConventions | None = None,
    theta: float | None = DEFAULT_THETA,
    **conventions: Any,
) -> None:
    """Add these model types, with the conventions of `base` except for the arguments.

    theta: the default theta; None: the config must have one. `defaults` and `rope_defaults` are
    added to those of `base`. The `code` of `base` is not that of these types.
    """
    base = RopeConventions() if base is None else base
    defaults = {**base.defaults, **conventions.pop("defaults", {})}
    own = conventions.pop("rope_defaults", {})
    rope_defaults = {**base.rope_defaults, "rope_theta": theta, **own}
    if theta is None:
        del rope_defaults["rope_theta"]
    facts = {"code": None, **conventions, "defaults": defaults, "rope_defaults": rope_defaults}
    entry = base._replace(**facts)
    for model_type in model_types.split():
        assert model_type not in CONVENTIONS, model_type
        CONVENTIONS[model_type] = entry


# Language models.

NEEDS_LAYER_TYPES = ("layer_types",)
NEEDS_ROPE = ("rope_parameters",)
NEEDS_PARTIAL = ("partial_rotary_factor",)
NEEDS_ROTARY_DIM = ("rotary_dim",)
INDEX_128 = {"index_head_dim": 128}

PARTIAL = RopeConventions(partial_rotary=True)
PAIRWISE = RopeConventions(pairing="interleaved")

# Full heads, paired in halves, as in Llama; entries differ in the default theta.
_add(
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
_add("jina_embeddings_v3", theta=2e4)
_add("gpt_oss", theta=15e4, required_keys=NEEDS_ROPE)
_add("gte", theta=16e4)
_add(
    "new",  # GTE's models before transformers had them
    code="Alibaba-NLP/new-impl: modeling.py",
    rope_switches={"position_embedding_type": "rope"},
    defaults={"position_embedding_type": "rope"},
)
_add(
    "bitnet csm csm_depth_decoder_model evolla flex_olmo mllama_text_model muse_glimmer_assistant",
    theta=5e5,
)
_add("higgs_audio_v2", theta=None, required_keys=NEEDS_ROPE)
_add("emu3_text_model mixtral phimoe", theta=1e6)
_add("voxtral_realtime_text", theta=None, required_keys=("head_dim",))
_add("cwm", theta=1e6, required_keys=NEEDS_ROPE)
_add("lfm2 lfm2_moe", theta=1e6, full_attention_index_key="full_attn_idxs", other_layer_type="conv")
_add("minimax", theta=1e6, required_keys=NEEDS_LAYER_TYPES)
_add("hunyuan hunyuan_v1_dense hunyuan_v1_moe", extra_fields=frozenset({"alpha"}))
# Grok-2 has it beyond `attn_temperature_len`. Its other rope types scale, and have no config.
_add(
    "grok-1",
    code="sgl-project/sglang: python/sglang/srt/models/grok.py",
    defaults={"head_dim": 128},
    only_values={"rope_type": ("original",), "rope_rotate_half_dims": (False,)},
    log_temperature=LogTemperature("attn_temperature_len", first=0),
)
# Versions differ in the language model (MiniCPM, Llama, Qwen2, Qwen3), which all rotate alike.
_add(
    "minicpmv",
    code="vllm-project/vllm: vllm/model_executor/models/minicpmv.py",
    only_values={"version": (2.0, 2.5, 2.6, 4.0, 4.5, "2.0", "2.5", "2.6", "4.0", "4.5")},
)
_add(
    "minicpmo",
    code="vllm-project/vllm: vllm/model_executor/models/minicpmo.py",
    only_values={"version": (2.6, 4.5, "2.6", "4.5")},
)
_add("dots_ocr", code="vllm-project/vllm: vllm/model_executor/models/dots_ocr.py")
# DeepSeek-VL and Janus, which leave out the sizes that are LlamaConfig's.
LLAMA_SIZES = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
_add("multi_modality", code="deepseek-ai/Janus: janus/models/modeling_vlm.py", defaults=LLAMA_SIZES)
_add("dbrx", rope_section="attn_config")
_add("jetmoe", required_keys=("kv_channels",))
_add("molmo2_text", scaled_layers_key="rope_scaling_layers")
_add("granite_swa granitemoe_swa", required_keys=("layer_rope_theta",))
_add("muse_glimmer_text", required_keys=("layer_rope_theta",), one_theta=True)
_add("muse_spark_text", theta=5e5, required_keys=("layer_rope_theta",), one_theta=True)
_add("voxtral_text", theta=1e8)
_add("hy_v3", theta=11_158_840.0)
_add("apertus", theta=12e6, required_keys=NEEDS_ROPE)
MISTRAL_FIELDS = frozenset({"llama_4_scaling_beta", "max_position_embeddings"})
_add("ministral3", required_keys=NEEDS_ROPE, extra_fields=MISTRAL_FIELDS)
_add("nanochat", reverse=True)

_add("exaone", code="ml-explore/mlx-lm: mlx_lm/models/exaone.py")
_add("internlm3", code="ml-explore/mlx-lm: mlx_lm/models/internlm3.py")
_add("mimo", code="ml-explore/mlx-lm: mlx_lm/models/mimo.py")

# Layers without rope, or models that may have none.
_add(
    "baichuan",  # the models of 13 billion parameters have ALiBi
    rope_switches={"hidden_size": 4096},
    code="vllm-project/vllm: vllm/model_executor/models/baichuan.py",
)
_add(
    "xlm-roberta",  # jina-embeddings-v3 before transformers had it
    rotary_dim_key="rotary_emb_dim",
    pairing_key="rotary_emb_interleaved",
    rope_switches={"position_embedding_type": "rotary"},
    defaults={"position_embedding_type": "absolute"},
    code="vllm-project/vllm: vllm/model_executor/models/config.py",
)
_add(
    "mpt",
    rope_section="attn_config",
    rule_choice=RuleChoice(
        "rope_impl",
        {"dail": "rope_dail_config", "hf": "rope_hf_config"},
        frozenset({"original", "no_scaling"}),
    ),
    aliases={"max_seq_len": "max_position_embeddings"},
    extra_fields=frozenset({"pos_idx_in_fp32", "xpos_scale_base"}),
    rope_switches={"rope": True, "nope": False},
    defaults={"rope": False, "nope": False, "alibi_bias_max": 8},
    code="mosaicml/llm-foundry: llmfoundry/models/mpt/modeling_mpt.py",
)
_add("smollm3", theta=2e6, reads_no_rope_layers=True)
NOPE_FULL = RopeConventions(nope_layer_types=frozenset({FULL}))
_add("exaone4 exaone_moe flint", NOPE_FULL, required_keys=NEEDS_LAYER_TYPES)
_add("kolibri1", NOPE_FULL, full_attention_interval=5)
_add(
    "afmoe",
    NOPE_FULL,
    full_attention_interval_key="global_attn_every_n_layers",
    defaults={"global_attn_every_n_layers": 4},
)
_add("olmo_hybrid", required_keys=NEEDS_LAYER_TYPES)
_add(
    "esm",
    rope_switches={"position_embedding_type": "rotary"},
    defaults={"position_embedding_type": "absolute"},
)
_add(
    "granitemoehybrid",
    rope_switches={"position_embedding_type": "rope"},
    defaults={"position_embedding_type": "nope"},
    required_keys=NEEDS_LAYER_TYPES,
)
_add("falcon", rope_switches={"alibi": False}, defaults={"alibi": False})
_add(
    "zamba2",
    rope_switches={"use_mem_rope": True},
    defaults={"use_mem_rope": False},
    required_keys=("attention_head_dim", "layer_types"),
)

# Types of layers with another theta or another rule.
_add("beam lfm3 mellum ultrabert", theta=None, rope_parameters_by_layer_type=True)
_add("olmo3", theta=5e5, unscaled_layer_types=frozenset({SLIDING}), full_attention_interval=4)
GEMMA = RopeConventions(
    defaults={"rope_local_base_freq": DEFAULT_THETA, "sliding_window_pattern": 6},
    keys_by_layer_type={SLIDING: {"rope_theta": "rope_local_base_freq"}},
    unscaled_layer_types=frozenset({SLIDING}),
    full_attention_interval_key="sliding_window_pattern",
)
_add("gemma3n_text", GEMMA, 1e6, full_attention_interval_key=None, full_attention_interval=5)
_add("gemma3_text t5gemma2_decoder t5gemma2_text", GEMMA, 1e6)
_add(
    "gemma4_text gemma4_unified_text diffusion_gemma_text embedding_gemma2_text",
    theta=None,
    rope_parameters_by_layer_type=True,
    defaults={"global_head_dim": 512},
    keys_by_layer_type={FULL: {"head_dim": "global_head_dim"}},
)
_add(
    "modernbert modernbert-decoder",
    theta=16e4,
    defaults={
        "global_rope_theta": 16e4,
        "local_rope_theta": DEFAULT_THETA,
        "global_attn_every_n_layers": 3,
    },
    keys_by_layer_type={
        FULL: {"rope_theta": "global_rope_theta"},
        SLIDING: {"rope_theta": "local_rope_theta"},
    },
    full_attention_interval_key="global_attn_every_n_layers",
    full_attention_at="first",
)

# The leading part of a head.
_add("gpt_neox_japanese phi3 phi3_v phi4_multimodal", PARTIAL)
_add("solar_open", PARTIAL, 1e6)
_add("glm4_moe", PARTIAL, required_keys=NEEDS_PARTIAL, rounds_head_dim=True)
_add("laguna mimo_v2_flash step3p5 zaya", PARTIAL, None, rope_parameters_by_layer_type=True)
QUARTER = PARTIAL._replace(rope_defaults={"partial_rotary_factor": 0.25})
_add("gpt_neox stablelm", QUARTER)
LINEAR_HYBRID = PARTIAL._replace(
    full_attention_interval_key="full_attention_interval",
    other_layer_type="linear_attention",
    defaults={"full_attention_interval": 4},
)
_add("qwen3_next", LINEAR_HYBRID, rope_defaults={"partial_rotary_factor": 0.25})
_add(
    "qwen",
    PARTIAL,
    code="alibaba/MNN: transformers/llm/export/llm_models/Qwen-1_8B/modeling_qwen.py",
    defaults={DOUBLING_KEY: True, "use_logn_attn": True},
    extra_fields=frozenset({DOUBLING_KEY, "seq_length"}),
    log_temperature=LogTemperature("seq_length", first=1, switch="use_logn_attn"),
)
HALF_HEAD = PARTIAL._replace(rope_defaults={"partial_rotary_factor": 0.5})
_add("nemotron phi", HALF_HEAD)
_add(
    "bamba",
    HALF_HEAD,
    full_attention_index_key="attn_layer_indices",
    other_layer_type="linear_attention",
    required_keys=NEEDS_LAYER_TYPES,
)
_add(
    "recurrent_gemma",
    HALF_HEAD,
    layer_type_pattern_key="block_types",
    required_keys=NEEDS_LAYER_TYPES,
)
# Its own code has 25,000, and the default of transformers has changed.
_add("persimmon", HALF_HEAD, None)
_add("minimax_m2", PARTIAL, 5e6, rotary_dim_key="rotary_dim")
_add(
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
_add(
    "stablelm_epoch",
    QUARTER,
    aliases={"rope_pct": "partial_rotary_factor"},
    defaults={"rotary_scaling_factor": 1.0},  # its code reads no such key
    code="Zumwaltboi68/stable-code-3b: modeling_stablelm_epoch.py",
)
_add(
    "nomic_bert",
    PARTIAL,
    1e3,
    aliases={"rotary_emb_fraction": "partial_rotary_factor"},
    pairing_key="rotary_emb_interleaved",
    code="nomic-ai/contrastors: src/contrastors/layers/attention.py",
)
_add(
    "bailing_moe bailing_moe_v2",
    PARTIAL,
    None,
    rotary_dim_key="rotary_dim",
    code="sgl-project/sglang: python/sglang/srt/models/bailing_moe.py",
)
_add("phi-msft", rotary_dim_key="rotary_dim", required_keys=NEEDS_ROTARY_DIM)

# Neighboring dimensions make a pair.
_add("blt_patcher roformer", PAIRWISE)
_add("helium", PAIRWISE, 1e5)
_add("openai_privacy_filter", PAIRWISE, 15e4, required_keys=NEEDS_ROPE)
_add("blt_global_transformer blt_local_decoder blt_local_encoder", PAIRWISE, 5e5)
_add("cohere ernie4_5 ernie4_5_moe", PAIRWISE, 5e5)
_add(
    "cohere2 cohere2_moe",
    PAIRWISE,
    nope_layer_types=frozenset({FULL}),
    full_attention_interval_key="sliding_window_pattern",
    defaults={"sliding_window_pattern": 4},
)
_add(
    "llama4_text",
    PAIRWISE,
    5e5,
    reads_no_rope_layers=True,
    defaults={"attn_temperature_tuning": True},
)
_add("codegen gptj", PAIRWISE, rotary_dim_key="rotary_dim", required_keys=NEEDS_ROTARY_DIM)
_add("chatglm", HALF_HEAD, pairing="interleaved", rope_ratio_key="rope_ratio")
_add("glm glm4", HALF_HEAD, pairing="interleaved")
_add("moonshine_streaming", PARTIAL, pairing="interleaved", required_keys=NEEDS_PARTIAL)
MOONSHINE = PAIRWISE._replace(partial_rotary=True, rope_defaults={"partial_rotary_factor": 0.9})
for side in ("encoder", "decoder"):
    keys = ("num_hidden_layers", "num_attention_heads")
    _add(f"moonshine_{side}", MOONSHINE, aliases={f"{side}_{key}": key for key in keys})

# Time, height and width; height and width.
QWEN2_VL = RopeConventions(axis_order="sectioned", rope_defaults={"mrope_section": [16, 24, 24]})
_add("qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text", QWEN2_VL, 1e6)
_add("paddleocr_vl_text", QWEN2_VL, 5e5)
# Position, width, height, number of the image. transformers' port mixes up the halves of pairs.
_add(
    "hunyuan_vl_text",
    code="Tencent-Hunyuan/HunyuanOCR: train/modeling_hunyuan_vl.py",
    axis_order="sectioned",
    axis_counts=(3, 4),
    extra_fields=frozenset({"alpha"}),
    rope_names={"xdrope": "dynamic", "xdrope_section": "mrope_section"},
)
QWEN3_VL = RopeConventions(axis_order="interleaved", rope_defaults={"mrope_section": [24, 20, 20]})
_add("qwen3_vl_moe_text qwen3_vl_text", QWEN3_VL, 5e5)
_add("cohere_compass_text qwen3_omni_moe_talker_text", QWEN3_VL)
_add("qwen3_omni_moe_text", QWEN3_VL, 1e6)
_add("cosmos3_edge_text", QWEN3_VL, 1e8)
QWEN3_5 = LINEAR_HYBRID._replace(
    axis_order="interleaved", rope_defaults={"mrope_section": [11, 11, 10]}
)
_add("qwen3_5_moe_text qwen3_5_text", QWEN3_5, rope_defaults={"partial_rotary_factor": 0.25})
_add(
    "qwen4_exp_text",
    QWEN3_5,
    indexer=IndexerConventions("half", head_dim_key="indexer_head_dim"),
    indexer_layer_types=frozenset({FULL, "indexed_attention"}),
)
GLM_V = PARTIAL._replace(axis_order="sectioned", rope_defaults={"mrope_section": [8, 12, 12]})
_add("glm4v_moe_text glm_image_text", GLM_V, rope_defaults={"partial_rotary_factor": 0.5})
_add("glm4v_text", GLM_V, pairing="interleaved", rope_defaults={"partial_rotary_factor": 0.5})
_add("glm_ocr_text", GLM_V, pairing="interleaved")
_add(
    "ernie4_5_vl_moe_text",
    PAIRWISE,
    5e5,
    axis_order="ernie",
    rope_defaults={"mrope_section": [22, 22, 20]},
)
_add(
    "neomme",
    PARTIAL,
    None,
    axis_order="round robin",
    rope_parameters_by_layer_type=True,
    required_keys=NEEDS_PARTIAL,
)

# A rope on a part of each head: latent attention, DeepSeek-V4.
LATENT = RopeConventions(head_layout="latent", pairing="interleaved", write_pairing="half")

INTERLEAVE = LATENT._replace(pairing_key="rope_interleave")  # only these types' code reads it
_add("axk1 glm4_moe_lite youtu", INTERLEAVE)
_add("deepseek_v3", INTERLEAVE, yarn_ratio=True)
_add("kimi_k2", LATENT, yarn_ratio=True)
# DeepSeek-V3.2's indexer pairs halves although the model pairs neighbors; GLM's does not.
HALF_INDEXED = LATENT._replace(indexer=IndexerConventions("half"), defaults=INDEX_128)
_add("axk2", HALF_INDEXED)
_add("deepseek_v32", HALF_INDEXED, yarn_ratio=True)
INDEXED = LATENT._replace(indexer=IndexerConventions("interleaved", "half"), defaults=INDEX_128)
_add("glm_moe_dsa", INDEXED, shares_indexers=True)
_add("bailing_hybrid", LATENT, 6e6, required_keys=NEEDS_LAYER_TYPES)
_add(
    "dots3_note_text",
    INDEXED,
    None,
    rope_parameters_by_layer_type=True,
    required_keys=("per_layer_config",),
    indexer_layer_types=frozenset({"indexed_attention"}),
)
_add("longcat_flash", LATENT, 1e7)
_add("mistral4", INTERLEAVE, required_keys=NEEDS_ROPE, extra_fields=MISTRAL_FIELDS)
_add(
    "mistral_large4_text",
    INDEXED,
    reads_no_rope_layers=True,
    required_keys=NEEDS_ROPE,
    shares_indexers=True,
)
_add("deepseek_v2", LATENT, write_pairing=None, yarn_ratio=True)
_add(
    "deepseek_vl_v2",
    LATENT,
    write_pairing=None,
    yarn_ratio=True,
    latent_key="use_mla",
    code="deepseek-ai/DeepSeek-VL2: deepseek_vl2/models/modeling_deepseek.py",
)
_add("minicpm3", LATENT, pairing="half", write_pairing=None)
_add(
    "hy_v4",
    LATENT,
    pairing="half",
    write_pairing=None,
    indexer=IndexerConventions("half", trailing=True),
    shares_indexers=True,
    defaults={**INDEX_128, "index_topk_freq": 4},
)
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
_add(
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

# Vision and audio.

AXIAL = RopeConventions(head_layout="axial")

# Patches of images.
_add(
    """
    cohere_compass_vision dots3_note_vision_encoder ernie4_5_vl_moe_vision exaone4_5_vision
    glm4v_moe_vision glm4v_vision glm5_next_vision glm_ocr_vision mlcd_vision_model
    muse_glimmer_vision muse_spark_vision paddleocr_vl_vision qwen2_5_omni_vision_encoder
    qwen2_5_vl_vision qwen3_5_moe_vision qwen3_5_vision qwen3_omni_moe_vision_encoder
    qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision video_llama_3_vision
    """,
    AXIAL,
)
_add("dots_vit", AXIAL, code="vllm-project/vllm: vllm/model_executor/models/dots_ocr.py")
_add("lfm3_vl_vision", AXIAL, 1e6, required_keys=NEEDS_LAYER_TYPES)
_add("qwen2_vl_vision", AXIAL, defaults={"depth": 32, "embed_dim": 1280, "num_heads": 16})
_add("step3p5_vision", AXIAL, axis_order="width first")
_add("inkling2_vision llama4_vision_model", AXIAL, axis_order="width first", pairing="interleaved")
_add("kimi_k25_vision", AXIAL, axis_order="width first, alternating")
_add("minimax_m3_vl_vision", AXIAL, axis_order="time too")
_add(
    "pixtral",
    AXIAL,
    axis_order="pixtral",
    defaults={"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_size": 1024},
)
_add("gemma4_vision", AXIAL, 100.0, axis_order="blocks")
_add("dinov3_vit eomt_dinov3 sapiens2", AXIAL, 100.0, continuous=True)
_add("sam3_vit_model", AXIAL, pairing="interleaved", continuous=True)
_add(
    "edgetam_video sam2_video sam3_tracker_video",
    AXIAL,
    pairing="interleaved",
    aliases={
        "memory_attention_hidden_size": "hidden_size",
        "memory_attention_num_attention_heads": "num_attention_heads",
        "memory_attention_num_layers": "num_hidden_layers",
        "memory_attention_rope_theta": "rope_theta",
    },
)
_add(
    "efficientloftr",  # all heads as one
    AXIAL,
    pairing="interleaved",
    axis_order="alternating",
    aliases={"hidden_size": "head_dim", "num_attention_layers": "num_hidden_layers"},
)

# Conformers, which rotate before they project.
CONFORMER = RopeConventions(
    rope_switches={"position_embeddings_type": "rotary"},
    aliases={"rotary_embedding_base": "rope_theta"},
    defaults={"position_embeddings_type": "relative"},
)
_add("wav2vec2-bert wav2vec2-conformer", CONFORMER)
_add(
    "seamless_m4t_speech",
    CONFORMER,
    aliases={
        **CONFORMER.aliases,
        "speech_encoder_attention_heads": "num_attention_heads",
        "speech_encoder_layers": "num_hidden_layers",
    },
)

# Other audio encoders.
_add("pe_audio_encoder pe_audio_video_encoder pe_video_encoder", PAIRWISE, 2e4)
_add(
    """
    glmasr_encoder nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp
    nemotron3_diarization_audio
    """,
    PARTIAL,
    required_keys=NEEDS_PARTIAL,
)
_add("dots3_note_audio_encoder", HALF_HEAD)

# Sizes of heads that are defaults of the code of a model type, if config.json has none. For all
# other types the size is the width over the number of heads.
HEAD_DIMS: dict[int, str] = {
    64: """
    gemma4_vision gpt_oss muse_spark_text neomme openai_privacy_filter voxtral_realtime_encoder
    """,
    80: "timesfm2_5",
    128: """
    afmoe beam cohere2_moe cosmos3_edge_text cwm dia_decoder dia_encoder ernie4_5 flint glm glm4
    helium higgs_audio_v2 hrm_text hy_v3 internlm3 kolibri1 laguna lfm3 llama4_text mellum
    minimax_m2 minimax_m3_vl_text ministral3 molmo2_text muse_glimmer_assistant muse_glimmer_text
    paddleocr_vl_text pe_audio_encoder pe_audio_video_encoder pe_video_encoder qwen2_5_omni_talker
    qwen3 qwen3_omni_moe_talker_code_predictor qwen3_vl_text seed_oss solar_open step3p5
    voxtral_text zaya
    """,
    192: "mimo_v2_flash",
    256: """
    diffusion_gemma_text embedding_gemma2_text gemma gemma2 gemma3_text gemma3n_text gemma4_text
    gemma4_unified_text qwen3_5_moe_text qwen3_5_text qwen3_next qwen4_exp_text t5_gemma_module
    t5gemma2_decoder t5gemma2_text vaultgemma
    """,
    512: "deepseek_v4",
}

for _head_dim, _names in HEAD_DIMS.items():
    for _model_type in _names.split():
        _entry = CONVENTIONS[_model_type]
        _defaults = {"head_dim": _head_dim, **_entry.defaults}
        CONVENTIONS[_model_type] = _entry._replace(defaults=_defaults)
