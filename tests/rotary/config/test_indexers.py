"""The ropes of sparse attention's indexers, which choose keys.

transformers' own indexer gets q and k where its projections answer, and multiplies them rotated;
what is read of its configuration must rotate them alike. These fail when an indexer is given its
model's pairing where it has another, when the wrong end of its heads rotates, and when a layer
without an indexer of its own is given one.
"""

import importlib
import json
from typing import Any

import pytest
import torch
from refusals import check_refused
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ropewalk import LayerSpec, ModelSpec, RotaryEmbedding, RotarySpec
from ropewalk.rotary.config.model_types import CONVENTIONS

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


MISTAKES = [
    ({"indexer_types": ["full"]}, "indexer_types must name each of 78 layers, got 1"),
    ({"indexer_types": ["fuII"] * 78}, 'indexer_types must have "full" or "shared", got'),
    ({"index_head_dim": 32}, "index_head_dim must be at least the 64 dimensions"),
    ({"index_head_dim": 2**20}, "index_head_dim must be at most 8,192"),
    ({"indexer_types": None, "index_skip_topk_offset": "x"}, "offset must be an integer, got 'x'"),
]


def test_mistakes():
    config = transformers.CONFIG_MAPPING["glm_moe_dsa"]().to_dict()
    check_refused(
        ValueError,
        *[
            (lambda changes=changes: ModelSpec.from_config({**config, **changes}), message)
            for changes, message in MISTAKES
        ],
    )


def test_other_models_have_none():
    without = {name for name, conventions in CONVENTIONS.items() if conventions.indexer is None}
    assert {"deepseek_v3", "llama", "kimi_k2"} <= without
    assert LayerSpec(RotarySpec(8)).indexer is None
