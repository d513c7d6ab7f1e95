"""Model types whose code transformers lacks, or has otherwise than their own.

These fail when a published config is read with another pairing, part of the head, theta or rule
than the code that its entry names has. The expected rotations are computed here, by the formulas
of that code, pair by pair. They fail, too, when a key of such a config that no rope can say is
read, when a model without rope is read or named wrongly, and when an entry names no code.
"""

import math
import re

import pytest
import torch
from published import GONE, PUBLISHED, changed, published_spec
from refusals import check_refused

from ropewalk import ModelSpec, RotaryEmbedding, RotarySpec, tools
from ropewalk.rotary.config.model_types import CONVENTIONS

MPT, NOMIC, JINA = "llm-foundry-mpt-rope", "nomic-bert-2048", "jina-xlm-roberta-flash"
MPT_HF = {"attn_config.rope_impl": "hf", "attn_config.rope_theta": 5e5, "max_seq_len": 64}


def hf(**rule):
    """An MPT that has its rule in `rope_hf_config`, in training 64 tokens long."""
    return {**MPT_HF, "attn_config.rope_hf_config": rule}


# Published config, changes, D, R, theta, pairing, and what multiplies positions or theta.
CASES = [
    # taylorbollman/hf_nomicbert_tb: modeling_hf_nomic_bert.py, NomicBertRotaryEmbedding
    (NOMIC, {}, 64, 64, 1e3, "half", None),
    (NOMIC, {"rotary_emb_base": 10_000}, 64, 64, 1e4, "half", None),
    (NOMIC, {"rotary_emb_fraction": 0.5}, 64, 32, 1e3, "half", None),
    (NOMIC, {"rotary_emb_interleaved": True}, 64, 64, 1e3, "interleaved", None),
    (NOMIC, {"rope_parameters": {"rope_type": "default", "rope_theta": 1e3}}, 64, 64, 1e3, "half",
     None),
    # Zumwaltboi68/stable-code-3b: modeling_stablelm_epoch.py, Attention._init_rope
    ("stable-code-3b", {}, 80, 20, 1e6, "half", None),
    ("stable-code-3b", {"rope_pct": 0.5}, 80, 40, 1e6, "half", None),
    # mosaicml/llm-foundry: llmfoundry/models/mpt/modeling_mpt.py, gen_rotary_embedding
    (MPT, {}, 64, 64, 1e4, "half", None),
    (MPT, hf(type="no_scaling", factor=1.0), 64, 64, 5e5, "half", None),
    (MPT, hf(type="linear", factor=4.0), 64, 64, 5e5, "half", "linear"),
    (MPT, hf(type="dynamic", factor=4.0), 64, 64, 5e5, "half", "dynamic"),
    # vllm-project/vllm: vllm/model_executor/models/config.py, JinaRobertaModelConfig
    (JINA, {}, 64, 64, 1e4, "half", None),
    (JINA, {"rotary_emb_base": 20_000.0, "rotary_emb_dim": 32}, 64, 32, 2e4, "half", None),
    # The hub's file of jina-embeddings-v3 has no model_type.
    (JINA, {"model_type": GONE, "architectures": ["XLMRobertaModel"]}, 64, 64, 1e4, "half", None),
    # ml-explore/mlx-lm: mlx_lm/models/exaone.py, mimo.py, internlm3.py
    ("exaone-3.0-7.8b-instruct", {}, 128, 128, 5e5, "half", None),
    ("mimo-7b", {}, 128, 128, 640_000.0, "half", None),
    ("internlm3-8b-instruct", {"rope_scaling": None}, 128, 128, 5e7, "half", None),
    ("internlm3-8b-instruct", {"max_position_embeddings": 64, "rope_scaling.factor": 4.0},
     128, 128, 5e7, "half", "dynamic"),
    # vllm-project/vllm: vllm/model_executor/models/baichuan.py
    ("baichuan2-7b-finetune", {}, 128, 128, 1e4, "half", None),
    # sgl-project/sglang: python/sglang/srt/models/bailing_moe.py, BailingMoEAttention
    ("ling-lite-1.5", {}, 128, 128, 6e5, "half", None),
    ("ling-lite-1.5", {"rotary_dim": 32}, 128, 32, 6e5, "half", None),
    ("ling-mini-2.0", {}, 128, 64, 6e5, "half", None),
    ("bailing-moe-v2-toy", {}, 128, 128, 1e4, "half", None),
]  # fmt: skip
LENGTH, FACTOR, TRAINED = 200, 4.0, 64
POSITIONS = (0, 1, 63, LENGTH - 1)


def rotated(x, position, rotary_dim, theta, pairing, rule):
    """A head (D,) rotated by the formula of the model's code, one pair after the other."""
    if rule == "dynamic":
        grown = FACTOR * LENGTH / TRAINED - (FACTOR - 1)
        theta *= grown ** (rotary_dim / (rotary_dim - 2))
    result, pairs = list(x), rotary_dim // 2
    for i in range(pairs):
        a, b = (i, i + pairs) if pairing == "half" else (2 * i, 2 * i + 1)
        angle = position / theta ** (2 * i / rotary_dim) / (FACTOR if rule == "linear" else 1)
        result[a] = x[a] * math.cos(angle) - x[b] * math.sin(angle)
        result[b] = x[b] * math.cos(angle) + x[a] * math.sin(angle)
    return result


@pytest.mark.parametrize(
    ("name", "changes", "head_dim", "rotary_dim", "theta", "pairing", "rule"),
    CASES,
    ids=[f"{case[0]}-{i}" for i, case in enumerate(CASES)],
)
def test_rotates_as_the_models_own_code(name, changes, head_dim, rotary_dim, theta, pairing, rule):
    layers = ModelSpec.from_config(changed(name, changes)).layers
    assert len({layer.rope for layer in layers}) == 1
    rope = RotaryEmbedding(layers[0].rope)
    x = torch.randn(1, 1, len(POSITIONS), head_dim, generator=torch.manual_seed(0)).double()
    read = rope.rotate(x, torch.tensor(POSITIONS), length=LENGTH)[0, 0]
    expected = [
        rotated(head.tolist(), position, rotary_dim, theta, pairing, rule)
        for head, position in zip(x[0, 0], POSITIONS, strict=True)
    ]
    assert (read - torch.tensor(expected, dtype=torch.float64)).abs().max() < 1e-5


def test_every_entry_of_another_repository_names_its_code():
    """Each type that is newly read is in the catalogue with a repository and a file."""
    named = {name: entry.code for name, entry in CONVENTIONS.items() if entry.code}
    assert named.keys() >= {PUBLISHED[case[0]]["model_type"] for case in CASES}
    for name, code in named.items():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+: [\w./-]+\.py", code)
        assert code in tools.catalogue(name).source


def test_where_values_come_from():
    """By the names that the file has, not by those that are usual elsewhere."""
    origins = {name: published_spec(name).layers[0].origins for name in (NOMIC, MPT)}
    assert origins[NOMIC]["rotary_dim"] == "rotary_emb_fraction"
    assert origins[NOMIC]["pairing"] == "rotary_emb_interleaved"
    assert origins[MPT]["theta"] == "attn_config.rope_theta"
    assert origins[MPT]["scaling"] == "attn_config.rope_dail_config"
    dbrx = {"model_type": "dbrx", "d_model": 64, "n_heads": 2, "n_layers": 1}
    spec = ModelSpec.from_config({**dbrx, "attn_config": {"rope_theta": 5e5, "kv_n_heads": 1}})
    assert spec.layers[0].rope == RotarySpec(32, theta=5e5)
    assert spec.layers[0].origins["theta"] == "attn_config.rope_theta"


BERT = {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1}
NONE = "must be of a model with a rope, got "
REFUSALS = [
    # jina-embeddings-v2 is a bert by its model_type
    ({**BERT, "position_embedding_type": "alibi"}, f"{NONE}'bert', which has none: ALiBi adds"),
    ({**BERT, "position_embedding_type": "rotary"}, "no public code of this type is known that"),
    (BERT, "it adds positions to the embeddings"),
    (changed(JINA, {"position_embedding_type": "absolute"}), "it adds positions to the embeddings"),
    (changed(JINA, {"position_embedding_type": "alibi"}), "'xlm-roberta', which has none: ALiBi"),
    (changed(JINA, {"rotary_emb_scale_base": 512}), "rotary_emb_scale_base must be null or absent"),
    (PUBLISHED["baichuan2-13b-chat"], "'baichuan', which has none: ALiBi adds distances"),
    ({"model_type": "llava", "text_config": PUBLISHED["baichuan2-13b-chat"]}, "text_config.model_"),
    (changed(NOMIC, {"rotary_emb_scale_base": 512}), "got 512: xPos multiplies queries and keys"),
    (changed(NOMIC, {"rotary_scaling_factor": 2}), "got 2: with it the model's code follows the"),
    (changed(NOMIC, {"rotary_emb_fraction": 0.0}), "rotary_emb_fraction must be finite and above"),
    (changed(NOMIC, {"partial_rotary_factor": 0.5}), "must be the same as rotary_emb_fraction"),
    (changed(MPT, {"attn_config.rope": False}), "'mpt', which has none: without rope in its attn"),
    (changed(MPT, {"attn_config.nope": True}), "'mpt', which has none"),
    (changed(MPT, {"attn_config.alibi": True}), "alibi must be false or absent"),
    (changed(MPT, {"attn_config.rope_impl": "te"}), "rope_impl must be one of dail, hf, got 'te'"),
    (changed(MPT, {"attn_config.rope_dail_config.type": "xpos"}), "got 'xpos': xPos multiplies"),
    (changed(MPT, {"block_overrides": {"order": []}}), "block_overrides must be a key that is"),
    (changed(MPT, {"max_seq_len": "long"}), "max_seq_len must be"),
    # Only its own type's code reads this key.
    (changed("llama-2-7b", {"rope_pct": 0.5}), "rope_pct must be a key that is known"),
    (changed("llama-2-7b", {"rotary_emb_interleaved": True}), "rotary_emb_interleaved must be fal"),
]


def test_refuses():
    calls = [(lambda raw=raw: ModelSpec.from_config(raw), says) for raw, says in REFUSALS]
    check_refused(ValueError, *calls)


def test_a_type_that_may_have_none_is_read_with_a_stated_pairing():
    """The way out that the refusal names."""
    raw = changed(JINA, {"position_embedding_type": "absolute", "rope_theta": 1e4})
    assert ModelSpec.from_config(raw, pairing="interleaved").layers[0].rope.pairing == "interleaved"
