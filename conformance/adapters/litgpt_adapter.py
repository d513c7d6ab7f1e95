"""LitGPT: build_rope_cache with its extra_config, apply_rope and apply_rope_interleave.

It rotates the first dimensions in CausalSelfAttention, the last in MultiheadLatentAttention, and
picks the rows of its tables by position. Interleaved pairs are written in halves. It has the rules
linear, Llama 3.1's, and YaRN, which it takes with both betas.
"""

import torch
from litgpt.model import apply_rope, apply_rope_interleave, build_rope_cache
from offered import EVERY, ORIGINAL, Offer, Result, Vector, asked, heads, joined, once

FIELDS = {  # of each rule
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
}
OFFERED = Offer(
    ("half", "interleaved-to-half"),
    EVERY,
    rules=(*FIELDS,),
    lacks=("attention_factor",),
    end=2**20,  # a table of more positions takes gigabytes
)


@asked(OFFERED)
def tables(vector: Vector) -> Result:
    """Level 2."""
    rope, at = vector["rope"], vector["positions"]
    given = {"beta_fast": 32.0, "beta_slow": 1.0, **rope["scaling"]}
    extra = {name: given[name] for name in FIELDS[given["rope_type"]] if name in given}
    if ORIGINAL in given:
        extra["original_max_seq_len"] = given[ORIGINAL]
    size, theta = rope["rotary_dim"], rope["theta"]
    found = build_rope_cache(max(at) + 1, size, base=theta, extra_config=extra or None)
    return [once(table[at], "half") for table in found]


@asked(OFFERED)
def rotate(vector: Vector) -> Result:
    """Level 3."""
    cos, sin = (torch.cat((table, table), -1)[None] for table in tables(vector))
    turn = apply_rope if vector["rope"]["pairing"] == "half" else apply_rope_interleave
    return joined(vector, [turn(x, cos, sin) for x in heads(vector, cut=True)], cut=True)
