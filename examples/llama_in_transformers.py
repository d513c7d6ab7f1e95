"""Put ropewalk's rotation into a Llama of transformers.

At small positions the logits are the same as before; at very large positions they stay stable.
The model is tiny and random; nothing is downloaded. Two lines change: the module that computes cos
and sin, and the function that applies them. Needs `pip install transformers`.
"""

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

import ropewalk as rw


class Tables(torch.nn.Module):
    """Compute cos and sin, (B, S, R/2), in place of Llama's `rotary_emb`."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.rope = rw.RotaryEmbedding.from_config(config)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        return self.rope.tables(position_ids)  # float32, whatever the model's dtype


def rotate_both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate q and k where Llama calls `apply_rotary_pos_emb`."""
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # the same for all heads
    return rw.rotate(q, cos, sin, pairing="half"), rw.rotate(k, cos, sin, pairing="half")


def logits(model: LlamaForCausalLM, start: int) -> Tensor:
    """Return the logits of one text whose first token is at position `start`."""
    tokens = torch.arange(48)[None] * 7 % 100
    found: Tensor = model(tokens, position_ids=torch.arange(start, start + 48)[None]).logits
    return found


torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 100, "head_dim": 64}
heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, initializer_range=0.2)).eval()

# Rotary scores depend on distances only, so a text has the same logits wherever it starts.
starts = (0, 4_096, 131_072, 10_000_000)
with torch.no_grad():
    before = [logits(model, start) for start in starts]
    model.model.rotary_emb = Tables(model.config)
    modeling_llama.apply_rotary_pos_emb = rotate_both
    after = [logits(model, start) for start in starts]

size, difference = before[0].abs().mean(), (after[0] - before[0]).abs().max()
print(f"at position 0: logits of about {size:.1f}, the two ropes differ by {difference:.1e}")
print("\nlargest change of a logit when the text moves:")
print("text starts at   transformers   ropewalk")
for start, theirs, ours in zip(starts, before, after, strict=True):
    moved = [(now - at_0).abs().max() for now, at_0 in ((theirs, before[0]), (ours, after[0]))]
    print(f"{start:14,} {moved[0]:14.1e} {moved[1]:10.1e}")
