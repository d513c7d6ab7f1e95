"""Model types that no spec can describe, and those without a rope, with the reason of each."""

# Types that rotate, but not as a `RotarySpec` can describe, and the reason.
UNSUPPORTED = {
    "qwen2_5_omni_dit": "its code rotates only the first head",
    "vjepa2": "its code mixes up pairs, so that norms change: it is not a rotation",
    "musicflamingo": "it rotates audio states by seconds, not queries and keys by positions",
    "clvp": "it rotates values too",
    "neucodec": "its code rotates heads by their number, not tokens by their position",
    "xcodec2": "its code rotates heads by their number, not tokens by their position",
    "esmfold2": "its axes have different thetas within one head",
}

ALIBI = "ALiBi adds distances to its scores"
# Types without rope, and what encodes positions instead. Those that have conventions too have none
# unless their config says so.
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
    "bloom": ALIBI,
    "mpt": "without rope in its attn_config, ALiBi adds distances to its scores, or positions are "
    "added to the embeddings",
    "baichuan": f"{ALIBI}, except with hidden_size 4096",
    **dict.fromkeys(
        ("t5", "mt5", "umt5", "longt5", "switch_transformers", "udop", "pop2piano", "pix2struct"),
        "T5's biases are added to its scores by distance",
    ),
    **dict.fromkeys(("deberta", "deberta-v2", "sew-d"), "DeBERTa's scores depend on distances"),
    **dict.fromkeys(("xlnet", "transfo-xl"), "Transformer-XL's scores depend on distances"),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv"), "it has no attention"),
}

# What encodes positions in a model without rope whose config states it.
POSITION_EMBEDDING_TYPES = {
    "alibi": ALIBI,
    "rotary": "no public code of this type is known that rotates",
}
