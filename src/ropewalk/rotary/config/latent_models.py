"""Conventions of language models with a rope on a part of each head: latent attention, DeepSeek-V4.

Their sources are those of `text_models`.
"""

from __future__ import annotations

from dataclasses import replace

from ropewalk.rotary.config.conventions import (
    SLIDING,
    ConventionsByModelType,
    IndexerConventions,
    RopeConventions,
)

LATENT_TEXT = ConventionsByModelType()
LATENT = RopeConventions(head_layout="latent", pairing="interleaved", write_pairing="half")
INDEX_HEADS_OF_128 = {"index_head_dim": 128}

INTERLEAVE = replace(LATENT, pairing_key="rope_interleave")  # only these types' code reads it
LATENT_TEXT.add("axk1 deepseek_v3 glm4_moe_lite youtu", INTERLEAVE)
LATENT_TEXT.add("kimi_k2", LATENT)
# DeepSeek-V3.2's indexer pairs halves although the model pairs neighbors; GLM's does not.
LATENT_TEXT.add(
    "axk2 deepseek_v32", LATENT, indexer=IndexerConventions("half"), defaults=INDEX_HEADS_OF_128
)
GLM_INDEXER = IndexerConventions("interleaved", "half")
LATENT_TEXT.add(
    "glm_moe_dsa", LATENT, indexer=GLM_INDEXER, shares_indexers=True, defaults=INDEX_HEADS_OF_128
)
LATENT_TEXT.add("bailing_hybrid", LATENT, 6e6, required_keys=("layer_types",))
LATENT_TEXT.add(
    "dots3_note_text",
    LATENT,
    None,
    rope_parameters_by_layer_type=True,
    required_keys=("per_layer_config",),
    indexer=GLM_INDEXER,
    indexer_layer_types=frozenset({"indexed_attention"}),
    defaults=INDEX_HEADS_OF_128,
)
LATENT_TEXT.add("longcat_flash", LATENT, 1e7)
LATENT_TEXT.add(
    "mistral4",
    INTERLEAVE,
    required_keys=("rope_parameters",),
    extra_fields=frozenset({"llama_4_scaling_beta", "max_position_embeddings"}),
)
LATENT_TEXT.add(
    "mistral_large4_text",
    LATENT,
    reads_no_rope_layers=True,
    required_keys=("rope_parameters",),
    indexer=GLM_INDEXER,
    shares_indexers=True,
    defaults=INDEX_HEADS_OF_128,
)
LATENT_TEXT.add("deepseek_v2", LATENT, write_pairing=None)
LATENT_TEXT.add("minicpm3", LATENT, pairing="half", write_pairing=None)
LATENT_TEXT.add(
    "hy_v4",
    LATENT,
    pairing="half",
    write_pairing=None,
    indexer=IndexerConventions("half", trailing=True),
    shares_indexers=True,
    defaults={**INDEX_HEADS_OF_128, "index_topk_freq": 4},
)
COMPRESSED = ("compressed_sparse_attention", "heavily_compressed_attention")
LATENT_TEXT.add(
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
