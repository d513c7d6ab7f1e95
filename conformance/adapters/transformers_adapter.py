"""transformers: ROPE_INIT_FUNCTIONS, and the rotary modules and functions of its models.

A model of the library stands for each rope that it claims: Llama's pairs are halves, Cohere's are
interleaved, Phi and GLM rotate the first part of a head, DeepSeek the last, NanoChat the other way;
the others have several axes. A published config.json goes to its own model by AutoConfig. An
attention layer that cuts the rotary part out of a head itself is copied in that alone.
"""

import importlib
from typing import Any, NamedTuple

import torch
from offered import EVERY, ORIGINAL, Result, Vector, heads, joined, named, once, sections
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

RULES = {"default", "ntk-aware", *ROPE_INIT_FUNCTIONS}
# The models that stand for a rope of all, the first and the last dimensions of a head, by its order
# of axes (or what else it needs) and pairing.
MODELS = {
    ("one", "half"): ("llama", "phi", "hy_v4"),
    ("one", "interleaved"): ("cohere", "glm", "deepseek_v2"),
    ("one", "interleaved-to-half"): ("deepseek_v3", "glm_moe_dsa", "deepseek_v3"),
    ("reverse", "half"): ("nanochat", None, None),
    ("ntk-aware", "half"): ("hunyuan_v1_dense", None, None),
    ("sectioned", "half"): ("qwen2_vl_text", "glm4v_moe_text", None),
    ("sectioned", "interleaved"): (None, "glm4v_text", None),
    ("interleaved", "half"): ("qwen3_vl_text", "qwen3_5_text", None),
    ("ernie", "interleaved"): ("ernie4_5_vl_moe_text", None, None),
    ("axial", "half"): ("qwen2_vl_vision", None, None),
    ("axial", "interleaved"): ("sam3_vit_model", None, None),
    ("width first, alternating", "half"): ("kimi_k25_vision", None, None),
    ("time too", "half"): (None, "minimax_m3_vl_vision", None),
    ("pixtral", "half"): ("pixtral", None, None),
    ("blocks", "half"): ("gemma4_vision", None, None),
}
LATENT = {"hy_v4", "deepseek_v2", "deepseek_v3", "glm_moe_dsa"}  # the rotary part has its own size
# Models whose attention cuts the rotary part out, for a function that rotates all it gets.
CUT = {*LATENT, "phi", "stablelm", "gptj"}


class Call(NamedTuple):
    """A model's function that rotates q and k, (1, 1, S, D), by what its rotary module returns.

    tokens_first: they are (1, S, 1, D). each: one of them. grid: positions are (S, axes).
    """

    name: str = "apply_rotary_pos_emb"
    tokens_first: bool = False
    each: bool = False
    grid: bool = False


VISION = Call("apply_rotary_pos_emb_vision", tokens_first=True, grid=True)
CALLS = {  # of the models whose call differs
    "gptj": Call(tokens_first=True, each=True),
    "llama4_text": Call("apply_rotary_emb", tokens_first=True),
    "deepseek_v2": Call("apply_rotary_emb"),
    "deepseek_v3": Call("apply_rotary_pos_emb_interleave"),
    "glm_moe_dsa": Call("apply_rotary_pos_emb_interleave"),
    "deepseek_v4": Call(each=True),
    "gemma4_text": Call(each=True),
    "gemma4_unified_text": Call(each=True),
    "gemma4_vision": Call("apply_multidimensional_rope", tokens_first=True, each=True, grid=True),
    "sam3_vit_model": Call("apply_rotary_pos_emb_2d", grid=True),
    "pixtral": Call(grid=True),
    "qwen2_vl_vision": VISION,
    "kimi_k25_vision": VISION,
    "minimax_m3_vl_vision": VISION,
}


def made_config(vector: Vector) -> Any:
    """Return the config of a model that has the vector's rope, or None if no model has it."""
    rope, rule = vector["rope"], dict(vector["rope"]["scaling"])
    order, pairing, part, kind = named(vector)
    needs = "reverse" if rope["reverse"] else kind if kind == "ntk-aware" else order
    name = MODELS.get((needs, pairing), [None] * 3)[EVERY.index(part)]
    size, rotary = rope["head_dim"], rope["rotary_dim"]
    if name is None or kind not in RULES or (rope["continuous"] and name != "sam3_vit_model"):
        return None
    if name == "sam3_vit_model" and len(vector["positions"]) > 2:
        return None
    more = {"embed_dim": size, "num_heads": 1} if name.endswith("_vision") else {}
    if name in LATENT:
        more = {"qk_rope_head_dim": rotary, "qk_nope_head_dim": size - rotary}
    if name.endswith("_text"):
        time, *space = sections(rope)
        rule["mrope_section"] = [*space, time] if order == "ernie" else [time, *space]
    if part == "first" and name not in ("glm_moe_dsa", "minimax_m3_vl_vision"):
        rule["partial_rotary_factor"] = rotary / size
    longer = rule["factor"] if kind in ("yarn", "longrope", "llama3") else 1
    return CONFIG_MAPPING[name](
        hidden_size=size,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=rotary if name in LATENT else size,
        max_position_embeddings=int(rule.get(ORIGINAL, 4096) * longer),
        rope_parameters={**rule, "rope_theta": rope["theta"]},
        **more,
    )


class Model:
    """A model's config, its module of code, and its rotary module."""

    def __init__(self, vector: Vector, config: Any) -> None:
        self.vector, self.config, self.name = vector, config, config.model_type
        self.call, self.layer_type = CALLS.get(self.name, Call()), None
        module, vision = type(config).__module__, "Vision" in type(config).__name__
        self.code = importlib.import_module(module.replace(".configuration_", ".modeling_"))
        names = [name for name in vars(self.code) if name.endswith("RotaryEmbedding")]
        names = [name for name in names if ("Vision" in name) == vision]
        self.rope = getattr(self.code, names[0])(config) if names else None
        if isinstance(getattr(self.rope, "rope_type", None), dict):
            self.layer_type = config.layer_types[vector["layer"]]
            if self.name == "deepseek_v4":
                self.layer_type = "main" if self.layer_type == "sliding_attention" else "compress"

    def tables(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return what the rotary module gives: cos and sin in its own form, or one of both."""
        at, length = torch.tensor(self.vector["positions"]), self.vector["length"]
        if self.rope is None:
            return self.sinusoids(at)
        if length is not None:  # the sequence's last token tells the module how long it is
            at = torch.cat([at, torch.tensor([length - 1])])
        if self.call.grid:
            at = at.T[None] if self.name == "gemma4_vision" else at.T
        else:
            at = at[:, None] if at.ndim == 2 else at[None]
        found = self.rope(x, at, *([self.layer_type] if self.layer_type else []))
        found = (found,) if isinstance(found, Tensor) else found
        return found if length is None else tuple(table[:, :-1] for table in found)

    def sinusoids(self, at: Tensor) -> tuple[Tensor, ...]:
        """Return the table of GPT-J or RoFormer, whose theta is 10,000."""
        size = int(at.max()) + 1
        if self.name == "gptj":
            table = self.code.create_sinusoidal_positions(size, self.config.rotary_dim)[at]
        else:
            head = self.config.hidden_size // self.config.num_attention_heads
            module = self.code.RoFormerSinusoidalPositionalEmbedding(size, head)
            module.weight.data = module.create_weight()
            table = module((1, len(at)), position_ids=at)
        return table[None].chunk(2, -1)[::-1]

    def apply(self, q: Tensor, k: Tensor) -> Any:
        """Return q and k rotated, (1, 1, S, D) both."""
        found, grid = self.tables(q), torch.tensor(self.vector["positions"]).T[None]
        if self.name == "roformer":
            turn = self.code.RoFormerSelfAttention.apply_rotary_position_embeddings
            return turn(torch.cat(found[::-1], -1)[None], q, k)
        found = found[::-1] if self.name == "gptj" else found  # sin before cos
        found += {"gemma4_vision": (grid,), "pixtral": (0,)}.get(self.name, ())
        turn = getattr(self.code, self.call.name)
        if self.call.tokens_first:
            q, k = q.transpose(1, 2), k.transpose(1, 2)
        turned = [turn(x, *found) for x in (q, k)] if self.call.each else turn(q, k, *found)
        return [x.transpose(1, 2) for x in turned] if self.call.tokens_first else turned


def model_of(vector: Vector) -> Model | None:
    """Return the model of the vector, or None if the library has no such model."""
    given = dict(vector["config"] or {})
    if vector["cached"] is not None or given.get("model_type", "llama") not in CONFIG_MAPPING:
        return None
    if given:
        config = AutoConfig.for_model(given.pop("model_type"), **given).get_text_config()
    else:
        config = made_config(vector)
    return config and Model(vector, config)


def frequencies(vector: Vector) -> Result:
    """Level 1. Ernie keeps its frequencies in another order, NanoChat the sign elsewhere."""
    model, (order, _, _, rule) = model_of(vector), named(vector)
    if model is None or model.rope is None or model.name in ("ernie4_5_vl_moe_text", "nanochat"):
        return None
    if vector["config"] is None and order == "one" and rule != "ntk-aware":
        default = model.rope.compute_default_rope_parameters
        return ROPE_INIT_FUNCTIONS.get(rule, default)(model.config, seq_len=vector["length"])
    model.tables(torch.zeros(1))
    before = f"{model.layer_type}_" if model.layer_type else ""
    found = getattr(model.rope, f"{before}inv_freq")
    if len(found) != vector["rope"]["rotary_dim"] // 2:
        return None  # the axes share them
    return found, getattr(model.rope, f"{before}attention_scaling")


def tables(vector: Vector) -> Result:
    """Level 2."""
    model, pairs = model_of(vector), vector["rope"]["rotary_dim"] // 2
    if model is None or model.name == "nanochat":
        return None
    found = [table.reshape(-1, table.shape[-1]) for table in model.tables(torch.zeros(1))]
    if len(found) == 1:  # complex numbers
        return found[0].real, found[0].imag
    if vector["rope"]["blocks"]:
        return [torch.cat([once(b, "half") for b in t.chunk(2, -1)], -1) for t in found]
    if found[0].shape[-1] == pairs:
        return found
    halves = all(torch.equal(table[:, :pairs], table[:, pairs:]) for table in found)
    return [once(table, "half" if halves else "interleaved") for table in found]


def rotate(vector: Vector) -> Result:
    """Level 3."""
    model = model_of(vector)
    if model is None:
        return None
    cut = model.name in CUT
    x = heads(vector, cut)
    return joined(vector, model.apply(x[0], x[-1]), cut)
