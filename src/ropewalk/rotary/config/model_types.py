"""The conventions of every known model type, and the types that no spec can describe.

Here are those of vision and audio stacks, and the stacks of models that have several;
`text_models` has those of language models.
"""

from __future__ import annotations

from ropewalk.rotary.config.conventions import ConventionsByModelType, RopeConventions
from ropewalk.rotary.config.text_models import LATENT_TEXT, TEXT

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


# Model type → stack → (dotted path of its section, model type of that section's conventions).
MULTIMODAL_MODELS: dict[str, dict[str, tuple[str, str]]] = {}


def _add(model_types: str, **stacks: str) -> None:
    """Add these models: stack="path=model type"; {} is replaced by the model's own type."""
    for model_type in model_types.split():
        assert model_type not in MULTIMODAL_MODELS, model_type
        MULTIMODAL_MODELS[model_type] = {
            stack: (place.partition("=")[0], place.partition("=")[2].format(model_type))
            for stack, place in stacks.items()
        }


_add(
    """
    aria cosmos3_edge diffusion_gemma embedding_gemma2 gemma3 gemma3n gemma4_unified glm_image
    granite4_vision granite_docling mistral_large4 molmo2 unlimited_ocr
    """,
    text="text_config={}_text",
)
_add("mllama emu3", text="text_config={}_text_model")
_add(
    "qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe qwen4_exp cohere_compass glm4v "
    "glm4v_moe glm_ocr paddleocr_vl minimax_m3_vl muse_glimmer muse_spark ernie4_5_vl_moe gemma4",
    text="text_config={}_text",
    vision="vision_config={}_vision",
)
_add(
    "deepseek_ocr2",
    text="text_config={}_text",
    vision="vision_config.encoder_config=deepseek_ocr2_encoder",
)
_add("voxtral", text="text_config=voxtral_text")
_add("dots3_note", text="text_config={}_text", vision="vision_config={}_vision_encoder",
        audio="audio_config={}_audio_encoder")  # fmt: skip
_add("exaone4_5", text="text_config=exaone4", vision="vision_config={}_vision")
_add("kimi_k25", text="text_config=deepseek_v3", vision="vision_config={}_vision")
_add("step3p7", text="text_config=step3p5", vision="vision_config=step3p5_vision")
_add("llama4", text="text_config={}_text", vision="vision_config=llama4_vision_model")
_add(
    "qwen2_5_omni",
    text="thinker_config.text_config={}_text",
    vision="thinker_config.vision_config={}_vision_encoder",
    talker="talker_config={}_talker",
)
_add(
    "qwen3_omni_moe",
    text="thinker_config.text_config={}_text",
    vision="thinker_config.vision_config={}_vision_encoder",
    talker="talker_config.text_config={}_talker_text",
    code_predictor="talker_config.code_predictor_config={}_talker_code_predictor",
    audio="code2wav_config={}_code2wav",
)
_add("glm5_next inkling2", vision="vision_config={}_vision")
_add("sam3", vision="vision_config.backbone_config=sam3_vit_model")
_add("pixtral mlcd_vision_model dinov3_vit sapiens2 eomt_dinov3 efficientloftr sam2_video "
        "sam3_tracker_video edgetam_video", vision="={}")  # fmt: skip
_add("csm", text="=csm", decoder="depth_decoder_config=csm_depth_decoder_model")
_add("dia", encoder="encoder_config=dia_encoder", decoder="decoder_config=dia_decoder")
_add("t5gemma", encoder="encoder=t5_gemma_module", decoder="decoder=t5_gemma_module")
_add("t5gemma2", encoder="encoder.text_config=t5gemma2_text", decoder="decoder=t5gemma2_decoder")
_add("moonshine", encoder="=moonshine_encoder", decoder="=moonshine_decoder")
_add(
    "blt",
    text="global_config=blt_global_transformer",
    encoder="encoder_config=blt_local_encoder",
    decoder="decoder_config=blt_local_decoder",
    patcher="patcher_config=blt_patcher",
)
_add(
    "nemo_speechlm",
    audio="audio_config.asr_config=nemotron3_5_transcribe_asr_audio",
    encoder="word_timestamp_config=nemotron3_5_transcribe_word_timestamp",
)
_add("lasr_ctc", audio="encoder_config=lasr_encoder")
_add("wav2vec2-bert wav2vec2-conformer", audio="={}")
_add("seamless_m4t seamless_m4t_v2", audio="=seamless_m4t_speech")
_add("evolla", text="=evolla", encoder="protein_encoder_config=esm_rotary")
_add(
    "pocket_tts_audio_tokenizer",
    encoder="={}_encoder",
    decoder="={}_decoder",
)
_add("pe_audio", audio="audio_config=pe_audio_encoder")
_add("pe_video", vision="video_config=pe_video_encoder")
_add("pe_audio_video", text="audio_video_config=pe_audio_video_encoder")

# Models with sections that leave out the default sizes of the section's class; these sizes.
WITH_CLASS_SIZES = frozenset(
    """
    gemma3 idefics2 idefics3 internvl llava llava_next llava_next_video llava_onevision mistral3
    paligemma smolvlm video_llava vipllava
    """.split()  # noqa: SIM905
)
_LLAMA = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32}
CLASS_SIZES: dict[str, dict[str, int]] = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "qwen3"), _LLAMA),
    "gemma": {"hidden_size": 3072, "num_attention_heads": 16, "num_hidden_layers": 28},
    "gemma2": {"hidden_size": 2304, "num_attention_heads": 8, "num_hidden_layers": 26},
    "gemma3_text": {"hidden_size": 2304, "num_attention_heads": 8, "num_hidden_layers": 26},
}

# Sizes of heads that are defaults of the code of a model type, if config.json has none. For all
# other types the size is the width over the number of heads.
HEAD_DIMS: dict[int, str] = {
    64: """
    gemma4_vision gpt_oss muse_spark_text neomme openai_privacy_filter voxtral_realtime_encoder
    """,
    80: "timesfm2_5",
    128: """
    afmoe beam cohere2_moe cosmos3_edge_text cwm dia_decoder dia_encoder ernie4_5 flint glm glm4
    helium higgs_audio_v2 hrm_text hy_v3 kolibri1 laguna lfm3 llama4_text mellum minimax_m2
    minimax_m3_vl_text ministral3 molmo2_text muse_glimmer_assistant muse_glimmer_text
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

#: The conventions of every known model type.
CONVENTIONS = ConventionsByModelType({**TEXT, **LATENT_TEXT, **VISION_AUDIO})

for _head_dim, _names in HEAD_DIMS.items():
    CONVENTIONS.set_head_dim(_head_dim, _names)

# Types that rotate, but not as a `RotarySpec` can describe, and the reason.
UNSUPPORTED = {
    "qwen2_5_omni_dit": "its code rotates only the first head",
    "vjepa2": "its code mixes up pairs, so that norms change: it is not a rotation",
    "hunyuan_vl": "the two halves of a pair follow different axes, so that norms change",
    "musicflamingo": "it rotates audio states by seconds, not queries and keys by positions",
    "clvp": "it rotates values too",
    "neucodec": "its code rotates heads by their number, not tokens by their position",
    "xcodec2": "its code rotates heads by their number, not tokens by their position",
    "qwen": "its dynamic rule grows by powers of two, and ropewalk.scaling does not have it",
    "esmfold2": "its axes have different thetas within one head",
}

# Types without rope, and what encodes positions instead.
WITHOUT_ROPE = {
    **dict.fromkeys(
        """
        albert bart bert bert-generation big_bird bigbird_pegasus biogpt blenderbot
        blenderbot-small camembert canine clip clip_text_model convbert ctrl data2vec-text deit
        distilbert electra ernie fnet git gpt2 gpt_bigcode gpt_neo imagegpt layoutlm led
        longformer luke lxmert mbart megatron-bert mobilebert mpnet mvp nllb-moe nystromformer
        openai-gpt opt plbart prophetnet rembert roberta roberta-prelayernorm siglip
        siglip_text_model siglip_vision_model squeezebert vilt vit whisper xlm xlm-roberta
        xlm-roberta-xl xmod yoso m2m_100 marian pegasus pegasus_x speech_to_text trocr xglm
        clip_vision_model beit time_series_transformer
        """.split(),  # noqa: SIM905
        "it adds positions to the embeddings",
    ),
    **dict.fromkeys(("bloom", "mpt"), "ALiBi adds distances to its scores"),
    **dict.fromkeys(
        ("t5", "mt5", "umt5", "longt5", "switch_transformers", "udop", "pop2piano", "pix2struct"),
        "T5's biases are added to its scores by distance",
    ),
    **dict.fromkeys(("deberta", "deberta-v2", "sew-d"), "DeBERTa's scores depend on distances"),
    **dict.fromkeys(("xlnet", "transfo-xl"), "Transformer-XL's scores depend on distances"),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv"), "it has no attention"),
}
