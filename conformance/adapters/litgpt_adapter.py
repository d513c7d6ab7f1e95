"""LitGPT: build_rope_cache with its extra_config, apply_rope and apply_rope_interleave.

It rotates the first dimensions in CausalSelfAttention, the last in MultiheadLatentAttention, and
picks the rows of its tables by position. Interleaved pairs are written in halves. It has the rules
linear, Llama 3.1's, and YaRN, which it takes with both betas.
"""

from __future__ import annotations

from typing import Any

import torch
from litgpt.model import apply_rope, apply_rope_interleave, build_rope_cache

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LONGEST = 2**20  # a table of more positions takes gigabytes


def extra_config(scaling: dict[str, Any]) -> dict[str, Any] | None:
    """Return the rule's settings in the library's names."""
    rule = scaling["rope_type"]
    if rule == "default":
        return None
    made = {"factor": scaling["factor"]}
    if rule == "linear":
        return made
    made["original_max_seq_len"] = scaling["original_max_position_embeddings"]
    if rule == "llama3":
        names = ["low_freq_factor", "high_freq_factor"]
    else:
        made |= {"beta_fast": 32.0, "beta_slow": 1.0}
        names = ["beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"]
    return made | {name: scaling[name] for name in names if name in scaling}


def tables(vector: dict[str, Any]) -> Any:
    """Level 2."""
    rope, scaling, at = vector["rope"], vector["rope"]["scaling"], vector["positions"]
    if (
        scaling["rope_type"] not in ("default", "linear", "llama3", "yarn")
        or (rope["axes"] or rope["reverse"] or rope["amplitude"] != 1 or vector["cached"])
        or rope["write_pairing"] != "half"
        or "attention_factor" in scaling
        or not 0 <= min(at) <= max(at) < LONGEST
    ):
        return None
    found = build_rope_cache(
        max(at) + 1, rope["rotary_dim"], base=rope["theta"], extra_config=extra_config(scaling)
    )
    return [table[at][:, : rope["rotary_dim"] // 2] for table in found]


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3."""
    found, rope = tables(vector), vector["rope"]
    if found is None:
        return None
    cos, sin = (torch.cat((table, table), -1)[None] for table in found)
    turn = apply_rope if rope["pairing"] == "half" else apply_rope_interleave
    parts = rope["start"], rope["rotary_dim"], rope["head_dim"] - rope["start"] - rope["rotary_dim"]
    results = []
    for name in ("q", "k"):
        if vector[name]:
            x = torch.tensor(vector[name], dtype=torch.float64).to(DTYPES[vector["dtype"]])
            before, part, after = x[None, None].split(parts, -1)
            results.append(torch.cat((before, turn(part, cos, sin), after), -1)[0, 0].float())
    return results
