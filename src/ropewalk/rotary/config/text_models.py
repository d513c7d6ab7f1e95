"""What config.json does not say: how each family of models pairs, places and orders its dimensions.

`STACKS` is a table by the `model_type` of a config.json or of one of its sections. It was read in
the modeling files of transformers 5.23 and, where that library has none, in the model's own code.
This file holds language models; `families_other` what looks and listens.
"""

from __future__ import annotations

from dataclasses import replace

from ropewalk.rotary.config.conventions import FULL, SLIDING, THETA, Stack, Table
from ropewalk.rotary.config.vision_audio_models import OTHER

TEXT = Table()
LAYER_TYPES = ("layer_types",)
ROPE = ("rope_parameters",)

LATENT = Stack(layout="latent", pairing="interleaved", write_pairing="half")
PARTIAL = Stack(partial=True)
PAIRWISE = Stack(pairing="interleaved")

# Whole heads in halves, as Llama has it; others differ in the theta that stands for a missing one.
TEXT.enter(
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
    t5_gemma_module timesfm2_5 unlimited_ocr_text vaultgemma voxtral_realtime_encoder
    """
)
TEXT.enter("nomic_bert", theta=1e3)
TEXT.enter("jina_embeddings_v3", theta=2e4)
TEXT.enter("gpt_oss", theta=15e4, needs=ROPE)
TEXT.enter("gte", theta=16e4)
TEXT.enter("bitnet csm csm_depth_decoder_model evolla flex_olmo", theta=5e5)
TEXT.enter("higgs_audio_v2", theta=None, needs=ROPE)
TEXT.enter("mllama_text_model muse_glimmer_assistant", theta=5e5)
TEXT.enter("emu3_text_model mixtral phimoe", theta=1e6)
TEXT.enter("voxtral_realtime_text", theta=None, needs=("head_dim",))
TEXT.enter("cwm", theta=1e6, needs=ROPE)
TEXT.enter("lfm2 lfm2_moe", theta=1e6, listed=("full_attn_idxs", "conv"))
TEXT.enter("minimax", theta=1e6, needs=LAYER_TYPES)
TEXT.enter("hunyuan hunyuan_v1_dense hunyuan_v1_moe", extra=frozenset({"alpha"}))
TEXT.enter("dbrx", inner="attn_config")
TEXT.enter("jetmoe", needs=("kv_channels",))
TEXT.enter("molmo2_text", scaled="rope_scaling_layers")
TEXT.enter(
    "granite_swa granitemoe_swa muse_glimmer_text muse_spark_text", needs=("layer_rope_theta",)
)
TEXT.enter("voxtral_text", theta=1e8)
TEXT.enter("hy_v3", theta=11_158_840.0)
TEXT.enter("apertus", theta=12e6, needs=ROPE)
TEXT.enter(
    "ministral3", needs=ROPE, extra=frozenset({"llama_4_scaling_beta", "max_position_embeddings"})
)
TEXT.enter("nanochat", reverse=True)

# Layers without rope, or models that may have none.
TEXT.enter("smollm3", theta=2e6, switched=True)
TEXT.enter("afmoe exaone4 exaone_moe flint kolibri1", unturned=frozenset({FULL}), needs=LAYER_TYPES)
TEXT.enter("olmo_hybrid", needs=LAYER_TYPES)
TEXT.enter(
    "esm",
    only_if={"position_embedding_type": "rotary"},
    defaults={"position_embedding_type": "absolute"},
)
TEXT.enter(
    "granitemoehybrid",
    only_if={"position_embedding_type": "rope"},
    defaults={"position_embedding_type": "nope"},
    needs=LAYER_TYPES,
)
TEXT.enter("falcon", only_if={"alibi": False}, defaults={"alibi": False})
TEXT.enter(
    "zamba2",
    only_if={"use_mem_rope": True},
    defaults={"use_mem_rope": False},
    needs=("attention_head_dim", "layer_types"),
)

# Types of layers that differ in theta or in rule.
TEXT.enter("beam mellum ultrabert", theta=None, nested=True)
TEXT.enter("lfm3", theta=None, nested=True)
TEXT.enter("olmo3", theta=5e5, unscaled=frozenset({SLIDING}), needs=LAYER_TYPES)
GEMMA = Stack(
    defaults={"rope_local_base_freq": THETA, "sliding_window_pattern": 6},
    of_kind={SLIDING: {"rope_theta": "rope_local_base_freq"}},
    unscaled=frozenset({SLIDING}),
    full_every=("sliding_window_pattern", "last", SLIDING),
)
TEXT.enter("gemma3n_text", GEMMA, 1e6, full_every=None, needs=LAYER_TYPES)
TEXT.enter("gemma3_text t5gemma2_decoder t5gemma2_text", GEMMA, 1e6)
TEXT.enter(
    "gemma4_text gemma4_unified_text diffusion_gemma_text embedding_gemma2_text",
    theta=None,
    nested=True,
    defaults={"global_head_dim": 512},
    of_kind={FULL: {"head_dim": "global_head_dim"}},
)
MODERN = {"global_rope_theta": 16e4, "local_rope_theta": THETA, "global_attn_every_n_layers": 3}
TEXT.enter(
    "modernbert modernbert-decoder",
    theta=16e4,
    defaults=MODERN,
    of_kind={
        FULL: {"rope_theta": "global_rope_theta"},
        SLIDING: {"rope_theta": "local_rope_theta"},
    },
    full_every=("global_attn_every_n_layers", "first", SLIDING),
)

# The leading part of a head.
TEXT.enter(
    """
    gpt_neox_japanese phi3 phi3_v phi4_multimodal
    """,
    PARTIAL,
)
TEXT.enter("solar_open", PARTIAL, 1e6)
PART_SAID = ("partial_rotary_factor",)
TEXT.enter("glm4_moe", PARTIAL, needs=PART_SAID)
TEXT.enter("laguna mimo_v2_flash step3p5 zaya", PARTIAL, None, nested=True)
QUARTER = replace(PARTIAL, defaults={"partial_rotary_factor": 0.25})
TEXT.enter("gpt_neox stablelm", QUARTER)
HYBRID = ("full_attention_interval", "last", "linear_attention")
TEXT.enter("qwen3_next", QUARTER, full_every=HYBRID, defaults={"full_attention_interval": 4})
HALF_HEAD = replace(PARTIAL, defaults={"partial_rotary_factor": 0.5})
TEXT.enter("nemotron phi", HALF_HEAD)
TEXT.enter("bamba", HALF_HEAD, listed=("attn_layer_indices", "linear_attention"), needs=LAYER_TYPES)
TEXT.enter("recurrent_gemma", HALF_HEAD, cycle="block_types", needs=LAYER_TYPES)
# Its own code has 25,000, and what transformers takes has changed.
TEXT.enter("persimmon", HALF_HEAD, None)
TURNING = ("rotary_dim",)
TEXT.enter("minimax_m2", PARTIAL, 5e6, size="rotary_dim")
TEXT.enter("minimax_m3_vl_text", PARTIAL, 5e6, size="rotary_dim", needs=TURNING)
TEXT.enter("phi-msft", size="rotary_dim", needs=TURNING)

# Neighbours make a pair.
TEXT.enter("blt_patcher roformer", PAIRWISE)
TEXT.enter("helium", PAIRWISE, 1e5)
TEXT.enter("openai_privacy_filter", PAIRWISE, 15e4, needs=ROPE)
TEXT.enter("blt_global_transformer blt_local_decoder blt_local_encoder", PAIRWISE, 5e5)
TEXT.enter("cohere ernie4_5 ernie4_5_moe", PAIRWISE, 5e5)
TEXT.enter(
    "cohere2 cohere2_moe",
    PAIRWISE,
    unturned=frozenset({FULL}),
    full_every=("sliding_window_pattern", "last", SLIDING),
    defaults={"sliding_window_pattern": 4},
)
TEXT.enter("llama4_text", PAIRWISE, 5e5, switched=True, defaults={"attn_temperature_tuning": True})
TEXT.enter("codegen gptj", PAIRWISE, size="rotary_dim", needs=TURNING)
TEXT.enter("chatglm", HALF_HEAD, pairing="interleaved", reads={"rope_ratio": "rope_ratio"})
TEXT.enter("glm glm4", HALF_HEAD, pairing="interleaved")
TEXT.enter("moonshine_streaming", PARTIAL, pairing="interleaved", needs=PART_SAID)
MOONSHINE = Stack(pairing="interleaved", partial=True, defaults={"partial_rotary_factor": 0.9})
for side in ("encoder", "decoder"):
    keys = ("num_hidden_layers", "num_attention_heads")
    TEXT.enter(f"moonshine_{side}", MOONSHINE, reads={f"{side}_{key}": key for key in keys})

# A part of the head: multi-head latent attention, DeepSeek-V4.
TEXT.enter(
    """
    axk1 axk2 deepseek_v3 deepseek_v32 glm4_moe_lite glm_moe_dsa kimi_k2 youtu
    """,
    LATENT,
)
TEXT.enter("bailing_hybrid", LATENT, needs=LAYER_TYPES)
TEXT.enter("dots3_note_text", LATENT, None, nested=True, needs=("per_layer_config",))
TEXT.enter("longcat_flash", LATENT, 1e7)
TEXT.enter(
    "mistral4",
    LATENT,
    needs=ROPE,
    extra=frozenset({"llama_4_scaling_beta", "max_position_embeddings"}),
)
TEXT.enter("mistral_large4_text", LATENT, switched=True, needs=ROPE)
TEXT.enter("deepseek_v2", LATENT, write_pairing=None)
TEXT.enter("hy_v4 minicpm3", LATENT, pairing="half", write_pairing=None)
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
TEXT.enter(
    "deepseek_v4",
    Stack(layout="trailing", pairing="interleaved"),
    defaults={"compress_rope_theta": 16e4},
    of_kind={kind: {"rope_theta": "compress_rope_theta"} for kind in COMPRESSED},
    unscaled=frozenset({SLIDING}),
    named={SLIDING: "main", **dict.fromkeys(COMPRESSED, "compress")},
    fixed={"attention_factor": 1.0},
    ratios={0: SLIDING, 4: COMPRESSED[0], 128: COMPRESSED[1]},
)

# Time, height and width; height and width.
QWEN2_VL = Stack(order="sectioned", defaults={"mrope_section": [16, 24, 24]})
TEXT.enter("qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text", QWEN2_VL, 1e6)
TEXT.enter("paddleocr_vl_text", QWEN2_VL, 5e5)
QWEN3_VL = Stack(order="interleaved", defaults={"mrope_section": [24, 20, 20]})
TEXT.enter("qwen3_vl_moe_text qwen3_vl_text", QWEN3_VL, 5e5)
TEXT.enter("cohere_compass_text qwen3_omni_moe_talker_text qwen3_omni_moe_text", QWEN3_VL)
TEXT.enter("cosmos3_edge_text", QWEN3_VL, 1e8)
QWEN3_5 = Stack(
    order="interleaved",
    partial=True,
    full_every=HYBRID,
    defaults={"mrope_section": [11, 11, 10], "full_attention_interval": 4},
)
TEXT.enter("qwen3_5_moe_text qwen3_5_text", QWEN3_5, defaults={"partial_rotary_factor": 0.25})
TEXT.enter("qwen4_exp_text", QWEN3_5)
GLM_V = Stack(order="sectioned", partial=True, defaults={"mrope_section": [8, 12, 12]})
TEXT.enter("glm4v_moe_text glm_image_text", GLM_V, defaults={"partial_rotary_factor": 0.5})
TEXT.enter("glm4v_text", GLM_V, pairing="interleaved", defaults={"partial_rotary_factor": 0.5})
TEXT.enter("glm_ocr_text", GLM_V, pairing="interleaved")
TEXT.enter(
    "ernie4_5_vl_moe_text",
    PAIRWISE,
    5e5,
    order="ernie",
    defaults={"mrope_section": [22, 22, 20]},
)
TEXT.enter("neomme", PARTIAL, None, order="round robin", nested=True, needs=PART_SAID)

# Where config.json is silent, the width over the number of heads is D, but for these.
TEXT.size_heads(
    64,
    """
    gpt_oss muse_spark_text neomme openai_privacy_filter voxtral_realtime_encoder
    """,
)
TEXT.size_heads(80, "timesfm2_5")
TEXT.size_heads(
    128,
    """
    afmoe beam cohere2_moe cosmos3_edge_text cwm dia_decoder dia_encoder ernie4_5 flint glm glm4
    helium higgs_audio_v2 hrm_text hy_v3 kolibri1 laguna lfm3 llama4_text mellum minimax_m2
    minimax_m3_vl_text ministral3 molmo2_text muse_glimmer_assistant muse_glimmer_text
    paddleocr_vl_text qwen2_5_omni_talker qwen3 qwen3_omni_moe_talker_code_predictor qwen3_vl_text
    seed_oss solar_open step3p5 voxtral_text zaya
    """,
)
TEXT.size_heads(192, "mimo_v2_flash")
TEXT.size_heads(
    256,
    """
    diffusion_gemma_text embedding_gemma2_text gemma gemma2 gemma3_text gemma3n_text gemma4_text
    gemma4_unified_text qwen3_5_moe_text qwen3_5_text qwen3_next qwen4_exp_text t5_gemma_module
    t5gemma2_decoder t5gemma2_text vaultgemma
    """,
)
TEXT.size_heads(512, "deepseek_v4")

STACKS = Table({**TEXT, **OTHER})
