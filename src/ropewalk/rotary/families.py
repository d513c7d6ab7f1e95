"""What config.json does not say: how each family of models pairs, places and orders its dimensions.

`STACKS` is a table by the `model_type` of a config.json or of one of its sections. It was read in
the modeling files of transformers 5.23 and, where that library has none, in the model's own code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ropewalk.rotary.spec import Pairing

THETA = 10_000.0


@dataclass(frozen=True)
class Stack:
    """The conventions of one stack of layers.

    layout: which dimensions of a head turn: its `head` or the first part of it, the rope part of
        `latent` attention, `trailing` dimensions, or `axial`, for patches of an image.
    defaults: what the model's code takes where config.json is silent.
    partial: whether `partial_rotary_factor` counts. size: a key that holds R itself.
    order: of axes, where there are several.
    unturned: types of layers without rope. switched: whether `no_rope_layers` says which have none.
    only_if: keys that must have these values, or there is no rope.
    full_every: which layers have full attention, where `layer_types` is absent: the key of their
        interval, the first of them, and the type of the others.
    of_kind: keys that hold instead of others in layers of a type. unscaled: types of layers that
        the legacy `rope_scaling` does not touch.
    extra: further fields of the rope that are read elsewhere, or without effect.
    fixed: fields of the rope that the model's code sets itself.
    reads: keys that stand for the usual ones. named: what `rope_parameters` calls types of layers.
    ratios: types of layers by the entries of `compress_ratios`, where `layer_types` is absent.
    """

    layout: Literal["head", "latent", "trailing", "axial"] = "head"
    pairing: Pairing = "half"
    write_pairing: Pairing | None = None
    defaults: Mapping[str, Any] = field(default_factory=lambda: {"rope_theta": THETA})
    partial: bool = False
    size: str | None = None
    order: str | None = None
    unturned: frozenset[str] = frozenset()
    switched: bool = False
    only_if: Mapping[str, Any] = field(default_factory=dict)
    full_every: tuple[str, int, str] | None = None
    of_kind: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unscaled: frozenset[str] = frozenset()
    extra: frozenset[str] = frozenset()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    reads: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    ratios: Mapping[int, str] = field(default_factory=dict)
    reverse: bool = False
    continuous: bool = False


STACKS: dict[str, Stack] = {}


def _add(names: str, base: Stack | None = None, theta: float = THETA, **conventions: Any) -> None:
    """Enter these model types, with the conventions of `base` but for those given."""
    base = Stack() if base is None else base
    defaults = {**base.defaults, "rope_theta": theta, **conventions.pop("defaults", {})}
    for name in names.split():
        assert name not in STACKS, name
        STACKS[name] = replace(base, defaults=defaults, **conventions)


FULL, SLIDING = "full_attention", "sliding_attention"
LATENT = Stack(layout="latent", pairing="interleaved", write_pairing="half")
PARTIAL = Stack(partial=True)
PAIRWISE = Stack(pairing="interleaved")
AXIAL = Stack(layout="axial")

# Whole heads in halves, as Llama has it; others differ in the theta that stands for a missing one.
_add(
    """
    Yi arcee aria_text chameleon dbrx deepseek deepseek_ocr2_encoder deepseek_ocr2_text dia_decoder
    dia_encoder diffllama doge dots1 esm_rotary esmc eurobert falcon_h1 gemma gemma2
    gradium_phonon_tts granite granite4_vision_text granite_docling_text granite_swa granitemoe
    granitemoe_swa granitemoehybrid granitemoeshared hrm_text hunyuan hunyuan_v1_dense
    hunyuan_v1_moe hyperclovax idefics internlm2 jais2 jetmoe kyutai_speech_to_text lasr_encoder
    llama mimi mimi_decoder mimi_encoder minicpm ministral molmo2_text moshi muse_glimmer_text
    muse_spark_text olmo olmo2 olmo_hybrid olmoe pocket_tts pocket_tts_audio_tokenizer_decoder
    pocket_tts_audio_tokenizer_encoder qwen2 qwen2_moe qwen3 qwen3_moe qwen3_omni_moe_code2wav
    qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text seed_oss starcoder2
    t5_gemma_module timesfm2_5 unlimited_ocr_text vaultgemma voxtral_realtime_encoder
    voxtral_realtime_text
    """
)
_add("nomic_bert", theta=1e3)
_add("jina_embeddings_v3", theta=2e4)
_add("gpt_oss", theta=15e4)
_add("gte", theta=16e4)
_add("bitnet csm csm_depth_decoder_model evolla flex_olmo higgs_audio_v2", theta=5e5)
_add("mllama_text_model muse_glimmer_assistant", theta=5e5)
_add("cwm emu3_text_model lfm2 lfm2_moe minimax mixtral phimoe", theta=1e6)
_add("hy_v3", theta=11_158_840.0)
_add("apertus", theta=12e6)
_add("mistral", defaults={"num_attention_heads": 32})
_add("ministral3", extra=frozenset({"llama_4_scaling_beta", "max_position_embeddings"}))
_add("nanochat", reverse=True)

# Layers without rope, or models that may have none.
_add("smollm3", theta=2e6, switched=True)
_add("afmoe exaone4 exaone_moe flint kolibri1", unturned=frozenset({FULL}))
_add("esm", only_if={"position_embedding_type": "rotary"})
_add("falcon", only_if={"alibi": False}, defaults={"alibi": False})
_add("zamba2", only_if={"use_mem_rope": True})

# Types of layers that differ in theta or in rule.
_add("beam embedding_gemma2_text mellum ultrabert")
_add("lfm3", theta=1e6)
_add("olmo3", theta=5e5, unscaled=frozenset({SLIDING}))
GEMMA = Stack(
    defaults={"rope_local_base_freq": THETA, "sliding_window_pattern": 6},
    of_kind={SLIDING: {"rope_theta": "rope_local_base_freq"}},
    unscaled=frozenset({SLIDING}),
    full_every=("sliding_window_pattern", 5, SLIDING),
)
_add("gemma3_text", GEMMA, 1e6, defaults={"head_dim": 256, "num_attention_heads": 8})
_add("gemma3n_text t5gemma2_decoder t5gemma2_text", GEMMA, 1e6)
_add(
    "gemma4_text gemma4_unified_text diffusion_gemma_text",
    of_kind={FULL: {"head_dim": "global_head_dim"}},
)
MODERN = {"global_rope_theta": 16e4, "local_rope_theta": THETA, "global_attn_every_n_layers": 3}
_add(
    "modernbert modernbert-decoder",
    theta=16e4,
    defaults=MODERN,
    of_kind={
        FULL: {"rope_theta": "global_rope_theta"},
        SLIDING: {"rope_theta": "local_rope_theta"},
    },
    full_every=("global_attn_every_n_layers", 0, SLIDING),
)

# The leading part of a head.
_add(
    """
    glm4_moe glmasr_encoder gpt_neox_japanese laguna mimo_v2_flash nemotron3_5_transcribe_asr_audio
    nemotron3_5_transcribe_word_timestamp nemotron3_diarization_audio phi3 phi3_v phi4_multimodal
    step3p5 zaya
    """,
    PARTIAL,
)
_add("solar_open", PARTIAL, 1e6)
QUARTER = replace(PARTIAL, defaults={"partial_rotary_factor": 0.25})
_add("gpt_neox stablelm", QUARTER)
HYBRID = ("full_attention_interval", 3, "linear_attention")
_add("qwen3_next", QUARTER, full_every=HYBRID, defaults={"full_attention_interval": 4})
HALF_HEAD = replace(PARTIAL, defaults={"partial_rotary_factor": 0.5})
_add("bamba dots3_note_audio_encoder nemotron phi recurrent_gemma", HALF_HEAD)
_add("persimmon", HALF_HEAD, 25e3)
_add("minimax_m2 minimax_m3_vl_text", PARTIAL, 5e6, size="rotary_dim")
_add("phi-msft", size="rotary_dim")

# Neighbours make a pair.
_add("blt_patcher roformer", PAIRWISE)
_add("pe_audio_encoder pe_audio_video_encoder pe_video_encoder", PAIRWISE, 2e4)
_add("helium", PAIRWISE, 1e5)
_add("openai_privacy_filter", PAIRWISE, 15e4)
_add("blt_global_transformer blt_local_decoder blt_local_encoder", PAIRWISE, 5e5)
_add("cohere ernie4_5 ernie4_5_moe", PAIRWISE, 5e5)
_add(
    "cohere2 cohere2_moe",
    PAIRWISE,
    unturned=frozenset({FULL}),
    full_every=("sliding_window_pattern", 3, SLIDING),
    defaults={"sliding_window_pattern": 4},
)
_add("llama4_text", PAIRWISE, 5e5, switched=True, defaults={"attn_temperature_tuning": True})
_add("codegen gptj", PAIRWISE, size="rotary_dim")
_add("chatglm glm glm4", HALF_HEAD, pairing="interleaved")
_add("moonshine_streaming", PARTIAL, pairing="interleaved")
MOONSHINE = Stack(pairing="interleaved", partial=True, defaults={"partial_rotary_factor": 0.9})
for side in ("encoder", "decoder"):
    keys = ("num_hidden_layers", "num_attention_heads")
    _add(f"moonshine_{side}", MOONSHINE, reads={f"{side}_{key}": key for key in keys})

# A part of the head: multi-head latent attention, DeepSeek-V4.
_add(
    """
    axk1 axk2 bailing_hybrid deepseek_v3 deepseek_v32 dots3_note_text glm4_moe_lite glm_moe_dsa
    kimi_k2 youtu
    """,
    LATENT,
)
_add("longcat_flash", LATENT, 1e7)
_add("mistral4", LATENT, extra=frozenset({"llama_4_scaling_beta", "max_position_embeddings"}))
_add("mistral_large4_text", LATENT, switched=True)
_add("deepseek_v2", LATENT, write_pairing=None)
_add("hy_v4 minicpm3", LATENT, pairing="half", write_pairing=None)
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
_add(
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
_add("qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl_text qwen2_vl_text", QWEN2_VL, 1e6)
_add("paddleocr_vl_text", QWEN2_VL, 5e5)
QWEN3_VL = Stack(order="interleaved", defaults={"mrope_section": [24, 20, 20]})
_add("qwen3_vl_moe_text qwen3_vl_text", QWEN3_VL, 5e5)
_add("cohere_compass_text qwen3_omni_moe_text", QWEN3_VL)
_add("cosmos3_edge_text", QWEN3_VL, 1e8)
QWEN3_5 = Stack(
    order="interleaved",
    partial=True,
    full_every=HYBRID,
    defaults={"mrope_section": [11, 11, 10], "full_attention_interval": 4},
)
_add("qwen3_5_moe_text qwen3_5_text", QWEN3_5, defaults={"partial_rotary_factor": 0.25})
_add("qwen4_exp_text", QWEN3_5)
GLM_V = Stack(order="sectioned", partial=True, defaults={"mrope_section": [8, 12, 12]})
_add("glm4v_moe_text glm_image_text", GLM_V, defaults={"partial_rotary_factor": 0.5})
_add("glm4v_text", GLM_V, pairing="interleaved", defaults={"partial_rotary_factor": 0.5})
_add("glm_ocr_text", GLM_V, pairing="interleaved")
_add(
    "ernie4_5_vl_moe_text",
    PAIRWISE,
    5e5,
    order="ernie",
    defaults={"mrope_section": [22, 22, 20]},
)
_add("neomme", PARTIAL, order="in turn")

# Patches of images.
_add(
    """
    cohere_compass_vision dots3_note_vision_encoder ernie4_5_vl_moe_vision exaone4_5_vision
    glm4v_moe_vision glm4v_vision glm5_next_vision glm_ocr_vision lfm3_vl_vision mlcd_vision_model
    muse_glimmer_vision muse_spark_vision paddleocr_vl_vision qwen2_5_omni_vision_encoder
    qwen2_5_vl_vision qwen3_5_moe_vision qwen3_5_vision qwen3_omni_moe_vision_encoder
    qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision video_llama_3_vision
    """,
    AXIAL,
)
_add("qwen2_vl_vision", AXIAL, defaults={"depth": 32, "embed_dim": 1280, "num_heads": 16})
_add("step3p5_vision", AXIAL, order="width first")
_add("inkling2_vision llama4_vision_model", AXIAL, order="width first", pairing="interleaved")
_add("kimi_k25_vision", AXIAL, order="width first, alternating")
_add("minimax_m3_vl_vision", AXIAL, order="time too")
_add(
    "pixtral",
    AXIAL,
    order="dealt",
    defaults={"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_size": 1024},
)
_add("gemma4_vision", AXIAL, 100.0, order="blocks")
_add("dinov3_vit eomt_dinov3 sapiens2", AXIAL, 100.0, continuous=True)
_add("sam3_vit_model", AXIAL, pairing="interleaved", continuous=True)
_add(
    "edgetam_video sam2_video sam3_tracker_video",
    AXIAL,
    pairing="interleaved",
    reads={
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
    order="alternating",
    reads={"hidden_size": "head_dim", "num_attention_layers": "num_hidden_layers"},
)

# Conformers, which turn before they project.
CONFORMER = Stack(
    only_if={"position_embeddings_type": "rotary"}, reads={"rotary_embedding_base": "rope_theta"}
)
_add("wav2vec2-bert wav2vec2-conformer", CONFORMER)
_add(
    "seamless_m4t_speech",
    CONFORMER,
    reads={
        **CONFORMER.reads,
        "speech_encoder_attention_heads": "num_attention_heads",
        "speech_encoder_layers": "num_hidden_layers",
    },
)
