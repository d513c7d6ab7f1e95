"""transformers: ROPE_INIT_FUNCTIONS, and the rotary modules and functions of its models.

A model of the library stands for each rope that it claims: Llama's pairs are halves, Cohere's are
interleaved, Phi and GLM rotate the first part of a head, DeepSeek the last, NanoChat the other way;
the others have several axes. A published config.json goes to its own model by AutoConfig. An
attention layer that cuts the rotary part out of a head itself is copied in that alone.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# The model of a rope of one axis, by its pairing, the pairing that it writes, and its part.
ONE = {
    ("half", "half", "all"): "llama",
    ("half", "half", "first"): "phi",
    ("half", "half", "last"): "hy_v4",
    ("interleaved", "interleaved", "all"): "cohere",
    ("interleaved", "interleaved", "first"): "glm",
    ("interleaved", "interleaved", "last"): "deepseek_v2",
    ("interleaved", "half", "all"): "deepseek_v3",
    ("interleaved", "half", "last"): "deepseek_v3",
    ("interleaved", "half", "first"): "glm_moe_dsa",
}
# The model of a rope of several axes, by its order, its pairing and its part.
SEVERAL = {
    ("sectioned", "half", "all"): ("qwen2_vl", "text"),
    ("sectioned", "half", "first"): ("glm4v_moe", "text"),
    ("sectioned", "interleaved", "first"): ("glm4v", "text"),
    ("interleaved", "half", "all"): ("qwen3_vl", "text"),
    ("interleaved", "half", "first"): ("qwen3_5", "text"),
    ("ernie", "interleaved", "all"): ("ernie4_5_vl_moe", "text"),
    ("axial", "half", "all"): ("qwen2_vl", "vision"),
    ("axial", "interleaved", "all"): ("sam3", "vit"),
    ("width first, alternating", "half", "all"): ("kimi_k25", "vision"),
    ("time too", "half", "first"): ("minimax_m3_vl", "vision"),
    ("pixtral", "half", "all"): ("pixtral", "vision"),
    ("blocks", "half", "all"): ("gemma4", "vision"),
}
# Models whose attention cuts the rotary part out, for a function that rotates all it gets.
CUT = {"phi", "stablelm", "hy_v4", "glm_moe_dsa", "deepseek_v2", "deepseek_v3", "gptj"}


def part_of(rope: dict[str, Any]) -> str:
    """Return which part of a head the rope rotates."""
    if rope["rotary_dim"] == rope["head_dim"]:
        return "all"
    return "first" if rope["start"] == 0 else "last"


def made_config(vector: dict[str, Any]) -> Any:
    """Return the config of a model that has the vector's rope, or None if no model has it."""
    rope, rule = vector["rope"], dict(vector["rope"]["scaling"])
    part, kind, kwargs = part_of(rope), rule["rope_type"], {}
    most = rule.get("original_max_position_embeddings", 4096)
    if rope["axes"] is not None:
        model, tower = SEVERAL.get((vector["order"], rope["pairing"], part), (None, None))
        counts = [sum(axis == n for axis, _, _ in rope["axes"]) for n in range(3)]
        if model is None or (rope["continuous"] and model != "sam3"):
            return None
        if model == "sam3" and counts[2]:
            return None
        name = {"sam3": "sam3_vit_model", "pixtral": "pixtral"}.get(model, f"{model}_{tower}")
        if tower == "text":
            rule["mrope_section"] = (
                counts[1:] + counts[:1] if vector["order"] == "ernie" else counts
            )
        kwargs = {"embed_dim": rope["head_dim"], "num_heads": 1} if tower == "vision" else {}
    else:
        name = ONE[rope["pairing"], rope["write_pairing"], part]
        if rope["reverse"]:
            name = "nanochat"
        if kind not in {"default", *ROPE_INIT_FUNCTIONS} or "use_dynamic_ntk" in rule:
            return None
        if rule.get("alpha"):
            name = "hunyuan_v1_dense"
            if part != "all":
                return None
    if kind in ("yarn", "longrope", "llama3"):
        most = int(most * rule["factor"])
    if part == "first" and name != "glm_moe_dsa" and name != "minimax_m3_vl_vision":
        rule["partial_rotary_factor"] = rope["rotary_dim"] / rope["head_dim"]
    latent = name in ("hy_v4", "deepseek_v2", "deepseek_v3", "glm_moe_dsa")
    if latent:
        kwargs["qk_rope_head_dim"] = rope["rotary_dim"]
        kwargs["qk_nope_head_dim"] = rope["head_dim"] - rope["rotary_dim"]
    return CONFIG_MAPPING[name](
        hidden_size=rope["head_dim"],
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=rope["rotary_dim"] if latent else rope["head_dim"],
        max_position_embeddings=most,
        rope_parameters={**rule, "rope_theta": rope["theta"]},
        **kwargs,
    )


class Model:
    """A model's config, its module of code, and its rotary module."""

    def __init__(self, vector: dict[str, Any], config: Any) -> None:
        self.vector, self.config, self.layer_type = vector, config, None
        self.code = importlib.import_module(
            type(config).__module__.replace(".configuration_", ".modeling_")
        )
        self.name = type(config).__module__.split(".")[-2]
        vision = "Vision" in type(config).__name__ and self.name != "pixtral"
        names = [
            name
            for name, each in vars(self.code).items()
            if name.endswith("RotaryEmbedding")
            and isinstance(each, type)
            and issubclass(each, nn.Module)
            and each.__module__ == self.code.__name__
            and (("Vision" in name) == vision or self.name == "pixtral")
        ]
        self.vision = vision or self.name in ("pixtral", "sam3")
        self.rope = getattr(self.code, names[0])(config) if names else None
        if isinstance(getattr(self.rope, "rope_type", None), dict):
            self.layer_type = config.layer_types[vector["layer"]]
            if self.name == "deepseek_v4":
                self.layer_type = "main" if self.layer_type == "sliding_attention" else "compress"

    def tables(self, x: Tensor) -> Any:
        """Return what the rotary module gives at the positions, in its own form."""
        at = torch.tensor(self.vector["positions"])
        more = self.vector["length"]
        if more is not None:  # the sequence's last token tells the module how long it is
            at = torch.cat([at, torch.tensor([more - 1])])
        if self.name in ("gptj", "roformer"):
            return self.sinusoids(at)
        if self.vision:
            at = at.T[None] if self.name == "gemma4" else at.T
        else:
            at = at[:, None] if at.ndim == 2 else at[None]
        named = {} if self.layer_type is None else {"layer_type": self.layer_type}
        found = self.rope(x, at, **named)
        if more is None:
            return found
        return found[:, :-1] if isinstance(found, Tensor) else tuple(t[:, :-1] for t in found)

    def sinusoids(self, at: Tensor) -> Any:
        """Return the table of GPT-J or RoFormer, whose theta is 10,000."""
        size = int(at.max()) + 1
        if self.name == "gptj":
            table = self.code.create_sinusoidal_positions(size, self.config.rotary_dim)
            sin, cos = table[at][None].chunk(2, -1)
            return cos, sin
        head = self.config.hidden_size // self.config.num_attention_heads
        module = self.code.RoFormerSinusoidalPositionalEmbedding(size, head)
        module.weight.data = module.create_weight()
        sin, cos = module((1, len(at)), position_ids=at)[None].chunk(2, -1)
        return cos, sin

    def apply(self, q: Tensor, k: Tensor) -> list[Tensor]:
        """Return q and k rotated, (1, 1, S, D) both."""
        code, found = self.code, self.tables(q)
        if self.name == "gptj":
            tokens = (q.transpose(1, 2), k.transpose(1, 2))
            turned = [code.apply_rotary_pos_emb(x, *found[::-1]) for x in tokens]
            return [x.transpose(1, 2) for x in turned]
        if self.name == "roformer":
            both = torch.cat(found[::-1], -1)[None]
            attention = code.RoFormerSelfAttention
            return list(attention.apply_rotary_position_embeddings(both, q, k))
        if self.name == "llama4":
            turned = code.apply_rotary_emb(q.transpose(1, 2), k.transpose(1, 2), found)
            return [x.transpose(1, 2) for x in turned]
        if self.name == "deepseek_v2":
            return list(code.apply_rotary_emb(q, k, found))
        if self.name in ("gemma4", "gemma4_unified", "deepseek_v4"):
            if self.vision:
                at = torch.tensor(self.vector["positions"]).T[None]
                tokens = (q.transpose(1, 2), k.transpose(1, 2))
                turned = [code.apply_multidimensional_rope(x, *found, at) for x in tokens]
                return [x.transpose(1, 2) for x in turned]
            return [code.apply_rotary_pos_emb(x, *found) for x in (q, k)]
        if self.name == "sam3":
            return list(code.apply_rotary_pos_emb_2d(q, k, *found))
        if self.name == "pixtral":
            return list(code.apply_rotary_pos_emb(q, k, *found, unsqueeze_dim=0))
        if self.vision:
            turned = code.apply_rotary_pos_emb_vision(
                q[0].transpose(0, 1), k[0].transpose(0, 1), *found
            )
            return [x.transpose(0, 1)[None] for x in turned]
        name = "apply_rotary_pos_emb"
        if self.name in ("deepseek_v3", "glm_moe_dsa"):
            name += "_interleave"
        return list(getattr(code, name)(q, k, *found))


def model_of(vector: dict[str, Any]) -> Model | None:
    """Return the model of the vector, or None if the library has no such model."""
    if vector["cached"] is not None:
        return None
    if vector["config"] is None:
        config = made_config(vector)
    elif vector["config"]["model_type"] not in CONFIG_MAPPING:
        return None
    else:
        given = dict(vector["config"])
        config = AutoConfig.for_model(given.pop("model_type"), **given).get_text_config()
    return None if config is None else Model(vector, config)


def frequencies(vector: dict[str, Any]) -> Any:
    """Level 1. Ernie keeps its frequencies in another order, NanoChat the sign elsewhere."""
    model = model_of(vector)
    if model is None or model.rope is None or model.name in ("ernie4_5_vl_moe", "nanochat"):
        return None
    rule = vector["rope"]["scaling"]
    if vector["config"] is None and vector["rope"]["axes"] is None and "alpha" not in rule:
        default = model.rope.compute_default_rope_parameters
        function = ROPE_INIT_FUNCTIONS.get(rule["rope_type"], default)
        return function(model.config, seq_len=vector["length"])
    model.tables(torch.zeros(1))
    before = "" if model.layer_type is None else f"{model.layer_type}_"
    found = getattr(model.rope, f"{before}inv_freq")
    if len(found) != vector["rope"]["rotary_dim"] // 2:
        return None  # the axes share them
    return found, getattr(model.rope, f"{before}attention_scaling")


def tables(vector: dict[str, Any]) -> Any:
    """Level 2."""
    model = model_of(vector)
    if model is None or model.name == "nanochat":
        return None
    found, pairs = model.tables(torch.zeros(1)), vector["rope"]["rotary_dim"] // 2
    if isinstance(found, Tensor):
        return found[0].real, found[0].imag
    cos, sin = (each.reshape(-1, each.shape[-1]) for each in found)
    if vector["rope"]["blocks"]:
        return [torch.cat([b.chunk(2, -1)[0] for b in t.chunk(2, -1)], -1) for t in (cos, sin)]
    if cos.shape[-1] == pairs:
        return cos, sin
    if torch.equal(cos[:, :pairs], cos[:, pairs:]) and torch.equal(sin[:, :pairs], sin[:, pairs:]):
        return cos[:, :pairs], sin[:, :pairs]
    return cos[:, ::2], sin[:, ::2]


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3."""
    model, rope = model_of(vector), vector["rope"]
    if model is None:
        return None
    x = [
        torch.tensor(vector[name], dtype=DTYPES[vector["dtype"]])[None, None]
        for name in ("q", "k")
        if vector[name]
    ]
    if model.name not in CUT:
        turned = model.apply(x[0], x[-1])
    else:
        rest = rope["head_dim"] - rope["rotary_dim"] - rope["start"]
        cuts = [each.split([rope["start"], rope["rotary_dim"], rest], -1) for each in x]
        parts = model.apply(cuts[0][1], cuts[-1][1])[: len(x)]
        turned = [torch.cat([a, each, b], -1) for each, (a, _, b) in zip(parts, cuts, strict=True)]
    return [each[0, 0].float() for each in turned[: len(x)]]
