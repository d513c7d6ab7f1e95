"""Which dimensions of a head rotate, and by which axes; also of the indexer of sparse attention.

These fail when a size that cannot be is read in silence, or when the error does not name the key.

transformers' own indexer gets q and k where its projections answer, and multiplies them rotated;
what is read of its configuration must rotate them alike. These fail when an indexer is given its
model's pairing where it has another, when the wrong end of its heads rotates, and when a layer
without an indexer of its own is given one.
"""

import importlib
import json
import re
from typing import Any

import pytest
import torch
from published import GONE, changed
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ropewalk import LayerSpec, ModelSpec, RotaryEmbedding, RotarySpec
from ropewalk.rotary.config.conventions import RopeConventions
from ropewalk.rotary.config.model_types import CONVENTIONS

LLAMA = "llama-2-7b"
YARN = "deepseek-v3"
QWEN_VL = "qwen2.5-vl-7b-instruct"
GEMMA_4 = "gemma-4-12b"
FULL = "text_config.rope_parameters.full_attention"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        # Sizes.
        ("hunyuan-7b-instruct", {"attention_head_dim": 64}, "head_dim and attention_head_dim must"),
        (LLAMA, {"num_attention_heads": GONE}, "num_attention_heads must be given"),
        (LLAMA, {"num_attention_heads": 0}, "num_attention_heads must be an integer above 0"),
        (LLAMA, {"hidden_size": "4096"}, "hidden_size must be an integer above 0, got '4096'"),
        (LLAMA, {"hidden_size": GONE}, "must be given, got none of embed_dim, hidden_size"),
        (LLAMA, {"head_dim": 127}, "head_dim must be even if all of it rotates, got 127"),
        (LLAMA, {"head_dim": 2**70}, "head_dim must be at most"),
        (YARN, {"qk_rope_head_dim": GONE}, "qk_rope_head_dim must be given"),
        (YARN, {"qk_nope_head_dim": GONE}, "qk_nope_head_dim must be given"),
        (LLAMA, {"qk_rope_head_dim": 64}, "qk_rope_head_dim must be absent"),
        ("gpt-j-6b", {"rotary_dim": 512}, "rotary_dim must be at most head_dim=256, got 512"),
        ("gpt-j-6b", {"rotary_dim": "64"}, "rotary_dim must be an integer above 0, got '64'"),
        ("phi-1", {"rotary_dim": 16}, "rotary_dim must be absent or 32"),
        ("pixtral-12b", {"vision_config.head_dim": 66}, "head_dim must be a multiple of 4"),
        # Theta.
        ("persimmon-8b-base", {"rope_theta": GONE}, "rope_theta must be given, got none"),
        # How much of a head rotates.
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor must be absent, as this"),
        ("phi-2", {"partial_rotary_factor": 1.5}, "partial_rotary_factor must be above 0 and at m"),
        ("phi-2", {"partial_rotary_factor": 0.001}, "partial_rotary_factor must leave at least 2"),
        # Several axes.
        (LLAMA, {"rope_scaling": {"type": "mrope"}}, "rope_type must not be 'mrope' here"),
        (
            QWEN_VL,
            {"rope_scaling.mrope_section": [16, 24]},
            "mrope_section must have three numbers",
        ),
        (QWEN_VL, {"rope_scaling.mrope_section": [16, 24, 25]}, "mrope_section must sum to the 64"),
        (QWEN_VL, {"rope_scaling.mrope_section": [40, 24, 0]}, "mrope_section must have integers"),
        (QWEN_VL, {"rope_scaling.mrope_section": "16"}, "mrope_section must have three numbers"),
        (
            QWEN_VL,
            {"rope_scaling.mrope_interleaved": True},
            "mrope_interleaved must be false or abs",
        ),
        (LLAMA, {"rope_scaling": {"type": "default", "mrope_section": [64]}}, "mrope_section must"),
        # Types of layers.
        (GEMMA_4, {FULL + ".rope_theta": GONE}, "rope_theta must be given, got none"),
    ],
)
def test_a_mistake_in_the_layout(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(changed(name, changes))


transformers = pytest.importorskip(
    "transformers", reason="the outside reference: pip install 'ropewalk[dev]'"
)

# Model type → modeling folder, prefix of its classes.
INDEXED = {
    "axk2": ("axk2", "AXK2"),
    "deepseek_v32": ("deepseek_v32", "DeepseekV32"),
    "dots3_note_text": ("dots3_note", "Dots3NoteText"),
    "glm_moe_dsa": ("glm_moe_dsa", "GlmMoeDsa"),
    "hy_v4": ("hy_v4", "HYV4"),
    "mistral_large4_text": ("mistral_large4", "MistralLarge4Text"),
}


class Caught(Exception):  # noqa: N818 – not an error: it ends the indexer once q and k are known
    """Raised with q and k as they are multiplied."""


class Product(TorchFunctionMode):
    """Stops at the product of q and k."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func in (torch.matmul, Tensor.matmul):
            raise Caught(args[0], args[1])
        return func(*args, **(kwargs or {}))


class Answer(nn.Module):
    """Stands where a projection or a norm is, and answers with what it was given, or its input."""

    def __init__(self, answer: Tensor | None = None):
        super().__init__()
        self.answer = answer
        self.weight = torch.zeros(1)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return x if self.answer is None else self.answer


def rotated_by_transformers(
    model_type: str, config: Any, q: Tensor, k: Tensor
) -> tuple[Tensor, Tensor]:
    """Rotate q (1, S, H, D) and k (1, S, D) by the indexer of the first layer."""
    folder, prefix = INDEXED[model_type]
    module = importlib.import_module(f"transformers.models.{folder}.modeling_{folder}")
    indexer = getattr(module, f"{prefix}Indexer")(config, 0)
    indexer.wq_b, indexer.wk, indexer.k_norm = Answer(q.flatten(2)), Answer(k), Answer()
    if hasattr(indexer, "softmax_scaling"):
        indexer.softmax_scaling = Answer()
    length = k.shape[1]
    positions, hidden = torch.arange(length)[None], torch.zeros(1, length, config.hidden_size)
    rotary = getattr(module, f"{prefix}RotaryEmbedding")(config)
    by_type = {"layer_type": "indexed_attention"} if model_type == "dots3_note_text" else {}
    tables = rotary(hidden, positions, **by_type)
    given = {
        "hidden_states": hidden,
        "q_resid": hidden,
        "position_embeddings": tables,
        "attention_mask": torch.zeros(1, length, length),
        "position_ids": positions,
    }
    if model_type == "mistral_large4_text":
        del given["q_resid"]
    with Product(), pytest.raises(Caught) as caught:
        indexer(**given)
    q_out, k_out = caught.value.args
    return q_out, k_out.transpose(-1, -2).reshape(k.shape)


@pytest.mark.parametrize("model_type", INDEXED)
def test_rotates_as_transformers_own_indexer(model_type):
    torch.manual_seed(0)
    config = transformers.CONFIG_MAPPING[model_type]()
    layer = ModelSpec.from_config(json.loads(json.dumps(config.to_dict()))).layer(0)
    assert layer.indexer is not None
    heads, size, length = config.index_n_heads, config.index_head_dim, 40
    q, k = torch.randn(1, length, heads, size), torch.randn(1, length, size)
    theirs = rotated_by_transformers(model_type, config, q, k)

    def ours(rope: RotarySpec) -> tuple[Tensor, Tensor]:
        embedding = RotaryEmbedding(rope)
        rotated_k = embedding.rotate(k[:, :, None], torch.arange(length), seq_dim=-3)
        return embedding.rotate(q, torch.arange(length), seq_dim=-3), rotated_k[:, :, 0]

    for received, expected in zip(ours(layer.indexer), theirs, strict=True):
        torch.testing.assert_close(received, expected, rtol=0, atol=1e-4)


def test_deepseeks_indexer_pairs_otherwise_than_the_model():
    config = {**transformers.CONFIG_MAPPING["deepseek_v32"]().to_dict()}
    layer = ModelSpec.from_config(config).layer(0)
    assert (layer.rope.pairing, layer.indexer.pairing) == ("interleaved", "half")
    assert (layer.indexer.head_dim, layer.indexer.rotary_dim, layer.indexer.start) == (128, 64, 0)


@pytest.mark.parametrize("model_type", ["glm_moe_dsa", "hy_v4", "mistral_large4_text"])
def test_layers_that_share_have_none(model_type):
    config = transformers.CONFIG_MAPPING[model_type](
        indexer_types=["full", "shared", "shared", "full"], num_hidden_layers=4
    )
    layers = ModelSpec.from_config(config).layers
    has_rope = [layer.rope is not None for layer in layers]
    own = [layer.indexer is not None for layer in layers]
    assert own == [a and b for a, b in zip(has_rope, (True, False, False, True), strict=True)]
    assert (
        ModelSpec.from_config(ModelSpec({"text": layers}, model_type).to_config()).layers == layers
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indexer_types": ["full"]}, "indexer_types must name each of 78 layers, got 1"),
        ({"indexer_types": ["fuII"] * 78}, 'indexer_types must have "full" or "shared", got'),
        ({"index_head_dim": 32}, "index_head_dim must be at least the 64 dimensions"),
        ({"index_head_dim": 2**20}, "index_head_dim must be at most 8,192"),
        (
            {"indexer_types": None, "index_skip_topk_offset": "x"},
            "index_skip_topk_offset must be an integer, got 'x'",
        ),
    ],
)
def test_a_mistake_in_an_indexer(changes, message):
    config = {**transformers.CONFIG_MAPPING["glm_moe_dsa"]().to_dict(), **changes}
    with pytest.raises(ValueError, match=message):
        ModelSpec.from_config(config)


def test_other_models_have_none():
    without = {name for name, each in CONVENTIONS.items() if each.indexer is None}
    assert {"deepseek_v3", "llama", "kimi_k2"} <= without
    assert RopeConventions().indexer is None
    assert LayerSpec(RotarySpec(8)).indexer is None
