"""How llama.cpp pairs dimensions, by the architecture in a GGUF file, which does not state it.

Source: ggml-org/llama.cpp, src/llama-model.cpp, `llama_model_rope_type`. Its type NORM pairs
neighbors, NEOX pairs halves. Files of `llama` and some others have permuted weights: the same model
has the pairing `half` in transformers and `interleaved` in its GGUF file.
"""

from __future__ import annotations

INTERLEAVED = frozenset(
    """
    llama llada llama4 deci baichuan internlm2 minicpm xverse command-r cohere2 olmo
    arctic deepseek deepseek2 deepseek2-ocr plm chatglm granite granitemoe granitehybrid chameleon
    bailingmoe neo-bert smollm3 arcee ernie4_5 ernie4_5-moe mistral3 mistral4 llama-embed maincoder
    glm-dsa glm4
    """.split()  # noqa: SIM905
)
HALF = frozenset(
    """
    falcon falcon-h1 grok dbrx bert jina-bert-v3 modern-bert nomic-bert nomic-bert-moe eurobert
    stablelm bitnet qwen qwen2 dream qwen2moe qwen3 qwen3moe llada-moe rnd1 olmo2 olmoe phi2 phi3
    phimoe plamo plamo2 plamo3 gemma gemma2 gemma3 gemma3n gemma4 gemma-embedding starcoder2
    openelm gptneox codeshell orion nemotron exaone exaone4 exaone-moe minicpm3 bailingmoe2 dots1
    hunyuan-moe jais2 gpt-oss hunyuan-dense lfm2 lfm2moe smallthinker seed_oss grovemoe apertus
    minimax-m2 cogvlm pangu-embedded afmoe qwen3next mimo2 step35 glm4moe
    """.split()  # noqa: SIM905
)
SECTIONED = frozenset({"qwen2vl", "paddleocr"})  # M-RoPE in chunks; pairs are halves
ALTERNATING = frozenset(
    {"qwen3vl", "qwen3vlmoe", "qwen35", "qwen35moe"}
)  # M-RoPE, interleaved axes
WITHOUT_ROPE = frozenset(
    """
    gpt2 gptj mpt refact bloom mamba mamba2 jamba jina-bert-v2 t5 t5encoder jais rwkv6 rwkv6qwen2
    rwkv7 arwkv7 wavtokenizer-dec nemotron_h nemotron_h_moe kimi-linear
    """.split()  # noqa: SIM905
)
#: Architectures whose files have permuted weights, so that the config.json says `half`.
#: Source: llama.cpp's conversion of Hugging Face models, `permute` and `_reverse_hf_permute`.
PERMUTED = frozenset(
    """
    llama deci baichuan internlm2 minicpm xverse olmo deepseek granite granitemoe smollm3 arcee
    mistral3
    """.split()  # noqa: SIM905
)
#: Architectures that llama.cpp does not rotate in every layer, which their files do not state.
SOME_LAYERS = frozenset({"cohere2", "exaone4", "exaone-moe", "smollm3", "llama4", "afmoe"})
#: Architectures whose sliding layers have theta 10,000 and no rule in llama.cpp's code, and the
#: distance between two of their full layers.
FIXED_SLIDING = {"gemma3": 6, "gemma-embedding": 6}


def pairing_of(architecture: str) -> str | None:
    """Return "half" or "interleaved", or None for an architecture that is not known."""
    if architecture in INTERLEAVED:
        return "interleaved"
    return "half" if architecture in HALF | SECTIONED | ALTERNATING else None
