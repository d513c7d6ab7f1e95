"""Conventions of the vision and audio stacks of models."""

from __future__ import annotations

from ropewalk.rotary.config.conventions import ConventionsByModelType, RopeConventions

VISION_AUDIO = ConventionsByModelType()
AXIAL = RopeConventions(head_layout="axial")

# Patches of images.
VISION_AUDIO.add(
    """
    cohere_compass_vision dots3_note_vision_encoder ernie4_5_vl_moe_vision exaone4_5_vision
    glm4v_moe_vision glm4v_vision glm5_next_vision glm_ocr_vision mlcd_vision_model
    muse_glimmer_vision muse_spark_vision paddleocr_vl_vision qwen2_5_omni_vision_encoder
    qwen2_5_vl_vision qwen3_5_moe_vision qwen3_5_vision qwen3_omni_moe_vision_encoder
    qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision video_llama_3_vision
    """,
    AXIAL,
)
VISION_AUDIO.add("lfm3_vl_vision", AXIAL, 1e6, required_keys=("layer_types",))
VISION_AUDIO.add(
    "qwen2_vl_vision", AXIAL, defaults={"depth": 32, "embed_dim": 1280, "num_heads": 16}
)
VISION_AUDIO.add("step3p5_vision", AXIAL, axis_order="width first")
VISION_AUDIO.add(
    "inkling2_vision llama4_vision_model", AXIAL, axis_order="width first", pairing="interleaved"
)
VISION_AUDIO.add("kimi_k25_vision", AXIAL, axis_order="width first, alternating")
VISION_AUDIO.add("minimax_m3_vl_vision", AXIAL, axis_order="time too")
VISION_AUDIO.add(
    "pixtral",
    AXIAL,
    axis_order="pixtral",
    defaults={"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_size": 1024},
)
VISION_AUDIO.add("gemma4_vision", AXIAL, 100.0, axis_order="blocks")
VISION_AUDIO.add("dinov3_vit eomt_dinov3 sapiens2", AXIAL, 100.0, continuous=True)
VISION_AUDIO.add("sam3_vit_model", AXIAL, pairing="interleaved", continuous=True)
VISION_AUDIO.add(
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
VISION_AUDIO.add(
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
VISION_AUDIO.add("wav2vec2-bert wav2vec2-conformer", CONFORMER)
VISION_AUDIO.add(
    "seamless_m4t_speech",
    CONFORMER,
    aliases={
        **CONFORMER.aliases,
        "speech_encoder_attention_heads": "num_attention_heads",
        "speech_encoder_layers": "num_hidden_layers",
    },
)

# Other audio encoders.
VISION_AUDIO.add(
    "pe_audio_encoder pe_audio_video_encoder pe_video_encoder",
    RopeConventions(pairing="interleaved"),
    2e4,
)
VISION_AUDIO.add(
    """
    glmasr_encoder nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp
    nemotron3_diarization_audio
    """,
    RopeConventions(partial_rotary=True),
    required_keys=("partial_rotary_factor",),
)
VISION_AUDIO.add(
    "dots3_note_audio_encoder",
    RopeConventions(partial_rotary=True),
    rope_defaults={"partial_rotary_factor": 0.5},
)
