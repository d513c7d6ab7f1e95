"""diffusers: get_1d_rotary_pos_embed and apply_rotary_emb of its embeddings, and its models' own.

One axis is get_1d_rotary_pos_embed with its factors (StableAudio's processor rotates the first part
of a head, OmniGen has LongRoPE). Several axes are FluxPosEmbed, whose ids may be in any order,
GLM-Image's grid and Ideogram 4's M-RoPE (both half). No function rotates cached keys again.
"""

import numpy as np
import torch
from diffusers.models.attention_processor import StableAudioAttnProcessor2_0
from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed
from diffusers.models.transformers.transformer_flux import FluxPosEmbed
from diffusers.models.transformers.transformer_glm_image import GlmImageRotaryPosEmbed
from diffusers.models.transformers.transformer_ideogram4 import Ideogram4MRoPE
from diffusers.models.transformers.transformer_omnigen import OmniGenSuScaledRotaryEmbedding
from offered import ORIGINAL, Offer, Result, Vector, asked, heads, joined, once, sections

RULES = ("default", "linear", "ntk-aware")
ONE_AXIS = Offer(("interleaved",), rules=RULES, models=())
STABLE_AUDIO = Offer(("half",), ("all", "first"), RULES, models=())
OMNIGEN = Offer(("half",), ("all", "first"), ("longrope",), models=())
FLUX = Offer(("interleaved",), orders=("axial", "width first"))
GLM_IMAGE = Offer(("half",), orders=("axial",))
IDEOGRAM = Offer(("half",), orders=("interleaved",))
OFFERED = ONE_AXIS, STABLE_AUDIO, OMNIGEN, FLUX, GLM_IMAGE, IDEOGRAM


@asked(*OFFERED)
def table(vector: Vector) -> Result:
    """Return the cosines and sines, each (S, R), doubled as the pairing needs them."""
    rope, at = vector["rope"], torch.tensor(vector["positions"])
    size, theta, rule = rope["rotary_dim"], rope["theta"], rope["scaling"]
    if vector in FLUX:
        order = list(dict.fromkeys(axis for axis, _, _ in rope["axes"]))
        sizes = [2 * sections(rope)[axis] for axis in order]
        return FluxPosEmbed(theta, sizes)(at[order].T)
    if vector in IDEOGRAM:
        cos, sin = Ideogram4MRoPE(size, theta, tuple(sections(rope)))(at.T[None])
        return cos[0], sin[0]
    if vector in GLM_IMAGE:
        if rope["continuous"]:
            return None
        height, width = (int(row.max()) + 1 for row in at)
        module = GlmImageRotaryPosEmbed(size, patch_size=1, theta=theta)
        cos, sin = module(torch.zeros(1, 1, height, width))
        return cos[at[0] * width + at[1]], sin[at[0] * width + at[1]]
    if vector in OMNIGEN:
        original = rule[ORIGINAL]
        most = int(original * rule["factor"])
        module = OmniGenSuScaledRotaryEmbedding(size, most, original, theta, rule)
        ids = torch.tensor([[*vector["positions"], vector["length"] - 1]])
        cos, sin = module(torch.zeros(1), ids)
        return cos[:-1], sin[:-1]
    return get_1d_rotary_pos_embed(
        size,
        np.array(vector["positions"]),
        theta,
        use_real=True,
        linear_factor=rule.get("factor", 1.0),
        ntk_factor=rule.get("alpha", 1.0),
        repeat_interleave_real=rope["pairing"] == "interleaved",
    )


def tables(vector: Vector) -> Result:
    """Level 2."""
    found = table(vector)
    return found and [once(each, vector["rope"]["pairing"]) for each in found]


def rotate(vector: Vector) -> Result:
    """Level 3."""
    found, rope = table(vector), vector["rope"]
    if found is None:
        return None
    if rope["rotary_dim"] < rope["head_dim"]:
        partial = StableAudioAttnProcessor2_0().apply_partial_rotary_emb
        return joined(vector, [partial(x, found) for x in heads(vector)])
    dim = -2 if rope["pairing"] == "half" else -1
    return joined(vector, [apply_rotary_emb(x, found, True, dim) for x in heads(vector)])
