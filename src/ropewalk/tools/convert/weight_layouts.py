"""Where the queries and keys of each model type are in the tensors of its checkpoints.

In models of several stacks, the text stack is converted; the others are not touched.

Each type is tested on logits: a tiny model of transformers, converted, must compute the same under
the other pairing. A type without such a test is not in these tables, because a wrong guess is
silent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ropewalk.rotary.config.config_json import positive_int
from ropewalk.tools.convert.row_permutation import (
    Place,
    blocks_of_heads,
    codegen_blocks,
    gated_queries,
    groups_of_heads,
    head_by_head,
    keys,
    latent_key,
    one_head,
    queries,
)

Section = Mapping[str, Any]


@dataclass(frozen=True)
class Layout:
    """The names of the tensors of a layer, and the rows of queries and keys in them.

    layers: what precedes the number of a layer in a name. The second one is of a model that was
        saved without its head.
    attention: the module of a layer with the attention.
    moved: modules of it with rows of queries and keys, and where these are; * is a number.
    kept: modules and parameters of it that have none.
    required: modules of it that every layer with a rope must have; "a|b" is one of two.
    without_rope: modules of a layer that look like attention but have no rope.
    other_stacks: what precedes names of tensors of other stacks, such as vision.
    drafts: what precedes the number of a layer that predicts further tokens. Such layers have the
        class and rope of the others (transformers, modeling_layers.py, `MtpModel`; vLLM,
        deepseek_mtp.py, qwen3_next_mtp.py). If it is what precedes the other layers, their
        numbers follow.
    from_config: returns more modules for `moved`, if their rows depend on the config.
    key_heads: returns the number of key heads, from the config and the number of query heads.
    refused: returns why a config of this type cannot be converted, or None.
    """

    layers: tuple[str, ...] = ("model.layers.", "layers.")
    attention: str = "self_attn."
    moved: Mapping[str, Place] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    without_rope: frozenset[str] = frozenset()
    other_stacks: tuple[str, ...] = ()
    drafts: str = ""
    from_config: Callable[[Section], Mapping[str, Place]] = lambda section: {}
    key_heads: Callable[[Section, int], int] = lambda section, heads: _key_heads(section, heads)
    refused: Callable[[Section], str | None] = lambda section: None


def _key_heads(section: object, heads: int) -> int:
    """Return the number of key heads, K; a config without it has as many as query heads."""
    for key in ("num_key_value_heads", "num_kv_heads", "kv_n_heads"):
        if isinstance(section, Mapping) and section.get(key) is not None:
            return positive_int(section, key)
    return heads


LAYOUTS: dict[str, Layout] = {}


def add(
    model_types: str, layout: Layout, *, also_kept: str = "", also_moved: str = "", **changes: Any
) -> None:
    """Add these model types with a layout, except for the changes.

    also_kept, also_moved: names of more modules; the latter have the rows of one head.
    """
    kept = layout.kept | names(also_kept)
    moved = {**layout.moved, **dict.fromkeys(names(also_moved), one_head)}
    for model_type in model_types.split():
        assert model_type not in LAYOUTS, model_type
        LAYOUTS[model_type] = replace(layout, **{"kept": kept, "moved": moved, **changes})


def names(text: str) -> frozenset[str]:
    """Return a set of names."""
    return frozenset(text.split())


ROTATED = {"q_proj": queries, "k_proj": keys}
SEPARATE = Layout(
    moved=ROTATED,
    kept=names("v_proj o_proj rotary_emb.inv_freq"),
    required=names("q_proj k_proj v_proj"),
)
WITH_NORMS = SEPARATE.required | {"q_norm", "k_norm"}
HEAD_NORMS = replace(
    SEPARATE, moved={**ROTATED, "q_norm": one_head, "k_norm": one_head}, required=WITH_NORMS
)
WIDE_NORMS = replace(
    SEPARATE, moved={**ROTATED, "q_norm": queries, "k_norm": keys}, required=WITH_NORMS
)
HEAD_LAYERNORMS = "q_layernorm k_layernorm"

add(
    "llama mistral mixtral qwen2 qwen2_moe gemma gemma2 olmo granite granitemoe granitemoeshared "
    "starcoder2 glm glm4 smollm3 nemotron helium ministral ministral3 seed_oss arcee ernie4_5 "
    "ernie4_5_moe llama4_text jais2 vaultgemma phimoe cwm hyperclovax solar_open aria_text "
    "nanochat falcon_h1 granitemoehybrid bamba",
    SEPARATE,
)
add("qwen3 qwen3_moe gemma3_text exaone4 exaone_moe apertus mellum dots1", HEAD_NORMS)
add("hy_v3", HEAD_NORMS, drafts="model.layers.")
# Its norms are optional.
add("glm4_moe", HEAD_NORMS, required=SEPARATE.required, drafts="model.layers.")
add("olmo2 olmo3 olmoe flex_olmo minimax_m2", WIDE_NORMS)
add("gpt_oss granite_swa granitemoe_swa", SEPARATE, also_kept="sinks")
add("cohere cohere2 cohere2_moe", WIDE_NORMS, required=SEPARATE.required)
add("bitnet", SEPARATE, also_kept="attn_sub_norm")
add("doge", HEAD_NORMS, also_kept="A dt_proj")
add("afmoe", HEAD_NORMS, also_kept="gate_proj")
add("laguna", HEAD_NORMS, also_kept="g_proj")
add("diffllama", SEPARATE, also_kept="groupnorm lambda_q1 lambda_k1 lambda_q2 lambda_k2")
add("hunyuan_v1_dense hunyuan_v1_moe", SEPARATE, also_moved="query_layernorm key_layernorm")
DENSE = names("v_proj dense rotary_emb.inv_freq")
add("phi", SEPARATE, also_moved=HEAD_LAYERNORMS, kept=DENSE)
add("stablelm", SEPARATE, also_moved="q_layernorm.norms.* k_layernorm.norms.*")
add(
    "qwen3_next qwen3_5_text",
    HEAD_NORMS,
    moved={**HEAD_NORMS.moved, "q_proj": gated_queries},
    without_rope=names("linear_attn"),
    drafts="mtp.layers.",
)
add("olmo_hybrid", WIDE_NORMS, without_rope=names("linear_attn"))
add("lfm2 lfm2_moe", SEPARATE, also_moved=HEAD_LAYERNORMS, kept=names("v_proj out_proj"))


SHARED = "attention_k_eq_v is true: its values are its keys, so they would change too"
add(
    "gemma3n_text gemma4_text",
    HEAD_NORMS,
    required=names("q_proj"),  # some layers use the keys and values of an earlier one
    also_kept="v_norm",
    refused=lambda section: SHARED if section.get("attention_k_eq_v") else None,
)

LIGHTNING = "norm qkv_proj out_proj output_gate slope_rate query_decay key_decay diagonal_decay"
add("minimax", SEPARATE, also_kept=LIGHTNING)  # of its linear layers

GPTJ = Layout(
    layers=("transformer.h.", "h."),
    attention="attn.",
    moved=ROTATED,
    kept=names("v_proj out_proj bias masked_bias embed_positions"),
    required=names("q_proj k_proj v_proj"),
)
add("gptj", GPTJ)


def _not_in_quarters(section: Section) -> str | None:
    heads = section.get("num_attention_heads", section.get("n_head"))
    if isinstance(heads, int) and heads % 4:
        return f"its heads are in four blocks, but it has {heads}"
    return None


add(
    "codegen",
    GPTJ,
    moved={"qkv_proj": codegen_blocks},
    kept=names("out_proj causal_mask embed_positions"),
    required=names("qkv_proj"),
    refused=_not_in_quarters,
)
add(
    "phi3",
    SEPARATE,
    moved={"qkv_proj": blocks_of_heads},
    kept=names("o_proj rotary_emb.inv_freq"),
    required=names("qkv_proj"),
)
GPT_NEOX = Layout(
    layers=("gpt_neox.layers.", "layers."),
    attention="attention.",
    moved={"query_key_value": head_by_head},
    kept=names("dense bias masked_bias rotary_emb.inv_freq"),
    required=names("query_key_value"),
)
add("gpt_neox", GPT_NEOX)
add(
    "gpt_neox_japanese",
    GPT_NEOX,
    layers=("gpt_neox_japanese.layers.", "layers."),
    also_kept="dense_bias",
)
add(
    "persimmon",
    GPT_NEOX,
    layers=SEPARATE.layers,
    attention=SEPARATE.attention,
    also_moved=HEAD_LAYERNORMS,
)
add("modernbert-decoder", SEPARATE, attention="attn.", kept=names("v_proj Wo"))
add(
    "dbrx",
    Layout(
        layers=("transformer.blocks.", "blocks."),
        attention="norm_attn_norm.attn.",
        moved={"Wqkv": blocks_of_heads},
        kept=names("out_proj"),
        required=names("Wqkv"),
        key_heads=lambda section, heads: _key_heads(section.get("attn_config"), heads),
    ),
)


def _falcon_heads(section: Section, heads: int) -> int:
    if section.get("new_decoder_architecture"):
        return _key_heads(section, heads)
    return 1 if section.get("multi_query", True) else heads


def _falcon_rows(section: Section) -> Mapping[str, Place]:
    grouped = section.get("new_decoder_architecture") or section.get("multi_query", True)
    return {"query_key_value": groups_of_heads if grouped else head_by_head}


add(
    "falcon",
    Layout(
        layers=("transformer.h.", "h."),
        attention="self_attention.",
        kept=names("dense"),
        without_rope=names("ln_attn"),
        required=names("query_key_value"),
        from_config=_falcon_rows,
        key_heads=_falcon_heads,
    ),
)


LATENT = Layout(
    moved={"q_proj": queries, "q_b_proj": queries},
    kept=names("q_a_proj q_a_layernorm kv_a_layernorm kv_b_proj o_proj rotary_emb.inv_freq"),
    required=names("q_proj|q_b_proj kv_a_proj_with_mqa kv_b_proj"),
    from_config=lambda section: {
        "kv_a_proj_with_mqa": latent_key(positive_int(section, "kv_lora_rank"))
    },
)
add("deepseek_v2 youtu minicpm3", LATENT)
add("deepseek_v3 glm4_moe_lite", LATENT, drafts="model.layers.")


TEXT = "text_config"
#: What precedes the number of a layer of the text, from different versions of transformers.
TEXT_LAYERS = (
    "model.language_model.layers.",
    "language_model.model.layers.",
    "language_model.layers.",
    "model.layers.",
)
#: What precedes the names of tensors of other stacks.
OTHER_STACKS = (
    "model.visual.",
    "visual.",
    "model.vision_tower.",
    "vision_tower.",
    "vision_model.",
    "model.multi_modal_projector.",
    "multi_modal_projector.",
)
#: Model type → types of its text model.
TEXT_TYPES: dict[str, frozenset[str]] = {
    "gemma3": names("gemma3_text"),
    "glm4v": names("glm4v_text"),
    "glm4v_moe": names("glm4v_moe_text"),
    "internvl": names("llama qwen2 qwen3"),
    "llama4": names("llama4_text"),
    "llava": names("llama mistral qwen2"),
    "llava_next": names("llama mistral qwen2"),
    "mistral3": names("mistral ministral3"),
    "paligemma": names("gemma gemma2"),
    "qwen2_5_vl": names("qwen2_5_vl_text"),
    "qwen2_vl": names("qwen2_vl_text"),
    "qwen3_5": names("qwen3_5_text"),
    "qwen3_vl": names("qwen3_vl_text"),
    "qwen3_vl_moe": names("qwen3_vl_moe_text"),
}
#: Layouts of text models that are only part of others.
ONLY_INSIDE: dict[str, Layout] = {
    **dict.fromkeys(names("qwen2_vl_text qwen2_5_vl_text glm4v_text glm4v_moe_text"), SEPARATE),
    **dict.fromkeys(names("qwen3_vl_text qwen3_vl_moe_text"), HEAD_NORMS),
}


def text_layout(config: Mapping[str, Any]) -> tuple[str, Layout] | None:
    """Return the path of the text's section and the layout of its tensors, or None if unknown."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return None
    if model_type in LAYOUTS:
        return "", LAYOUTS[model_type]
    known = TEXT_TYPES.get(model_type, frozenset())
    only = next(iter(known)) if len(known) == 1 else None
    section = config.get(TEXT)
    path, section_type = "", only  # earlier files had the text's fields at the top
    if isinstance(section, Mapping):
        path, section_type = TEXT, section.get("model_type", only)
    if not isinstance(section_type, str) or section_type not in known:
        return None
    layout = {**LAYOUTS, **ONLY_INSIDE}[section_type]
    return path, replace(layout, layers=TEXT_LAYERS, other_stacks=OTHER_STACKS)
