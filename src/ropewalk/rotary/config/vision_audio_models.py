"""Conventions of stacks that look or listen: see `families`."""

from __future__ import annotations

from ropewalk.rotary.config.conventions import Stack, Table

OTHER = Table()
AXIAL = Stack(layout="axial")

# Patches of images.
OTHER.enter(
    """
    cohere_compass_vision dots3_note_vision_encoder ernie4_5_vl_moe_vision exaone4_5_vision
    glm4v_moe_vision glm4v_vision glm5_next_vision glm_ocr_vision mlcd_vision_model
    muse_glimmer_vision muse_spark_vision paddleocr_vl_vision qwen2_5_omni_vision_encoder
    qwen2_5_vl_vision qwen3_5_moe_vision qwen3_5_vision qwen3_omni_moe_vision_encoder
    qwen3_vl_moe_vision qwen3_vl_vision qwen4_exp_vision video_llama_3_vision
    """,
    AXIAL,
)
OTHER.enter("lfm3_vl_vision", AXIAL, 1e6, needs=("layer_types",))
OTHER.enter("qwen2_vl_vision", AXIAL, defaults={"depth": 32, "embed_dim": 1280, "num_heads": 16})
OTHER.enter("step3p5_vision", AXIAL, order="width first")
OTHER.enter(
    "inkling2_vision llama4_vision_model", AXIAL, order="width first", pairing="interleaved"
)
OTHER.enter("kimi_k25_vision", AXIAL, order="width first, alternating")
OTHER.enter("minimax_m3_vl_vision", AXIAL, order="time too")
OTHER.enter(
    "pixtral",
    AXIAL,
    order="pixtral",
    defaults={"num_hidden_layers": 24, "num_attention_heads": 16, "hidden_size": 1024},
)
OTHER.enter("gemma4_vision", AXIAL, 100.0, order="blocks")
OTHER.enter("dinov3_vit eomt_dinov3 sapiens2", AXIAL, 100.0, continuous=True)
OTHER.enter("sam3_vit_model", AXIAL, pairing="interleaved", continuous=True)
OTHER.enter(
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
OTHER.enter(
    "efficientloftr",  # all heads as one
    AXIAL,
    pairing="interleaved",
    order="alternating",
    reads={"hidden_size": "head_dim", "num_attention_layers": "num_hidden_layers"},
)

# Conformers, which turn before they project.
CONFORMER = Stack(
    only_if={"position_embeddings_type": "rotary"},
    reads={"rotary_embedding_base": "rope_theta"},
    defaults={"position_embeddings_type": "relative"},
)
OTHER.enter("wav2vec2-bert wav2vec2-conformer", CONFORMER)
OTHER.enter(
    "seamless_m4t_speech",
    CONFORMER,
    reads={
        **CONFORMER.reads,
        "speech_encoder_attention_heads": "num_attention_heads",
        "speech_encoder_layers": "num_hidden_layers",
    },
)

# Others that listen.
OTHER.enter(
    "pe_audio_encoder pe_audio_video_encoder pe_video_encoder", Stack(pairing="interleaved"), 2e4
)
OTHER.enter(
    """
    glmasr_encoder nemotron3_5_transcribe_asr_audio nemotron3_5_transcribe_word_timestamp
    nemotron3_diarization_audio
    """,
    Stack(partial=True),
    needs=("partial_rotary_factor",),
)
OTHER.enter(
    "dots3_note_audio_encoder", Stack(partial=True), defaults={"partial_rotary_factor": 0.5}
)

OTHER.size_heads(64, "gemma4_vision")
OTHER.size_heads(128, "pe_audio_encoder pe_audio_video_encoder pe_video_encoder")
