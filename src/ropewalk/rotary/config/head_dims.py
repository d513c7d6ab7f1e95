"""Sizes of heads that are defaults of the model's code, if config.json has none, by model type.

For all other types the size is the width over the number of heads.
"""

from __future__ import annotations

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
