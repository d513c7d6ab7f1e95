"""Where the config of a model of several stacks has each of them, and the type of each."""

from __future__ import annotations

from ropewalk.rotary.config.model_types import LLAMA_SIZES

# Model type → stack → (dotted path of its section, model type of that section's conventions).
MULTIMODAL_MODELS: dict[str, dict[str, tuple[str, str]]] = {}


def _combine(model_types: str, **stacks: str) -> None:
    """Add these models: stack="path=model type"; {} is replaced by the model's own type."""
    for model_type in model_types.split():
        assert model_type not in MULTIMODAL_MODELS, model_type
        MULTIMODAL_MODELS[model_type] = {
            stack: (place.partition("=")[0], place.partition("=")[2].format(model_type))
            for stack, place in stacks.items()
        }


_combine(
    """
    aria cosmos3_edge diffusion_gemma embedding_gemma2 gemma3 gemma3n gemma4_unified glm_image
    granite4_vision granite_docling mistral_large4 molmo2 unlimited_ocr
    """,
    text="text_config={}_text",
)
_combine("mllama emu3", text="text_config={}_text_model")
_combine(
    "qwen2_vl qwen2_5_vl qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe qwen4_exp cohere_compass glm4v "
    "glm4v_moe glm_ocr paddleocr_vl minimax_m3_vl muse_glimmer muse_spark ernie4_5_vl_moe gemma4",
    text="text_config={}_text",
    vision="vision_config={}_vision",
)
_combine("hunyuan_vl", text="text_config={}_text")  # its vision adds positions
_combine("deepseek_vl_v2 multi_modality", text="language_config={}")
_combine("dots_ocr", text="={}", vision="vision_config=dots_vit")
_combine(
    "deepseek_ocr2",
    text="text_config={}_text",
    vision="vision_config.encoder_config=deepseek_ocr2_encoder",
)
_combine("voxtral", text="text_config=voxtral_text")
_combine("dots3_note", text="text_config={}_text", vision="vision_config={}_vision_encoder",
        audio="audio_config={}_audio_encoder")  # fmt: skip
_combine("exaone4_5", text="text_config=exaone4", vision="vision_config={}_vision")
_combine("kimi_k25", text="text_config=deepseek_v3", vision="vision_config={}_vision")
_combine("step3p7", text="text_config=step3p5", vision="vision_config=step3p5_vision")
_combine("llama4", text="text_config={}_text", vision="vision_config=llama4_vision_model")
_combine(
    "qwen2_5_omni",
    text="thinker_config.text_config={}_text",
    vision="thinker_config.vision_config={}_vision_encoder",
    talker="talker_config={}_talker",
)
_combine(
    "qwen3_omni_moe",
    text="thinker_config.text_config={}_text",
    vision="thinker_config.vision_config={}_vision_encoder",
    talker="talker_config.text_config={}_talker_text",
    code_predictor="talker_config.code_predictor_config={}_talker_code_predictor",
    audio="code2wav_config={}_code2wav",
)
_combine("glm5_next inkling2", vision="vision_config={}_vision")
_combine("sam3", vision="vision_config.backbone_config=sam3_vit_model")
_combine("pixtral mlcd_vision_model dinov3_vit sapiens2 eomt_dinov3 efficientloftr sam2_video "
        "sam3_tracker_video edgetam_video", vision="={}")  # fmt: skip
_combine("csm", text="=csm", decoder="depth_decoder_config=csm_depth_decoder_model")
_combine("dia", encoder="encoder_config=dia_encoder", decoder="decoder_config=dia_decoder")
_combine("t5gemma", encoder="encoder=t5_gemma_module", decoder="decoder=t5_gemma_module")
_combine(
    "t5gemma2", encoder="encoder.text_config=t5gemma2_text", decoder="decoder=t5gemma2_decoder"
)
_combine("moonshine", encoder="=moonshine_encoder", decoder="=moonshine_decoder")
_combine(
    "blt",
    text="global_config=blt_global_transformer",
    encoder="encoder_config=blt_local_encoder",
    decoder="decoder_config=blt_local_decoder",
    patcher="patcher_config=blt_patcher",
)
_combine(
    "nemo_speechlm",
    audio="audio_config.asr_config=nemotron3_5_transcribe_asr_audio",
    encoder="word_timestamp_config=nemotron3_5_transcribe_word_timestamp",
)
_combine("lasr_ctc", audio="encoder_config=lasr_encoder")
_combine("wav2vec2-bert wav2vec2-conformer", audio="={}")
_combine("seamless_m4t seamless_m4t_v2", audio="=seamless_m4t_speech")
_combine("evolla", text="=evolla", encoder="protein_encoder_config=esm_rotary")
_combine("pocket_tts_audio_tokenizer", encoder="={}_encoder", decoder="={}_decoder")
_combine("pe_audio", audio="audio_config=pe_audio_encoder")
_combine("pe_video", vision="video_config=pe_video_encoder")
_combine("pe_audio_video", text="audio_video_config=pe_audio_video_encoder")

# Types whose files have no model_type, or that of another model, by `architectures`.
BY_ARCHITECTURE = {
    "Grok1ModelForCausalLM": "grok-1",
    "Grok1ForCausalLM": "grok-1",
    "XLMRobertaModel": "xlm-roberta",  # jina-embeddings-v3
}

# Models with sections that leave out the default sizes of the section's class; these sizes.
WITH_CLASS_SIZES = frozenset(
    """
    gemma3 idefics2 idefics3 internvl llava llava_next llava_next_video llava_onevision mistral3
    paligemma smolvlm video_llava vipllava
    """.split()  # noqa: SIM905
)
CLASS_SIZES: dict[str, dict[str, int]] = {
    **dict.fromkeys(("llama", "mistral", "mixtral", "qwen2", "qwen3"), LLAMA_SIZES),
    "gemma": {"hidden_size": 3072, "num_attention_heads": 16, "num_hidden_layers": 28},
    "gemma2": {"hidden_size": 2304, "num_attention_heads": 8, "num_hidden_layers": 26},
    "gemma3_text": {"hidden_size": 2304, "num_attention_heads": 8, "num_hidden_layers": 26},
}
