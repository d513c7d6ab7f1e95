"""Packed documents and left padding: every text gets the attention that it gets alone.

Packing puts several documents in one row; left padding lines up prompts of different lengths.
Both need explicit positions, which `rw.positions` builds.
"""

import torch
from torch.nn.functional import scaled_dot_product_attention as attend

import ropewalk as rw

torch.manual_seed(0)
rope = rw.RotaryEmbedding(rw.RotarySpec(head_dim=32))
lengths = (3, 6, 4)
texts = [torch.randn(3, 1, 2, length, 32) for length in lengths]  # q, k, v of (B, H, S, D)


def alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return causal attention of one text in a row of its own."""
    return attend(*rope(q, k), v, is_causal=True)


wanted = [alone(*text) for text in texts]

# Packed: one row of 13 tokens. Positions start again at 0 with each document.
cu_seqlens = torch.tensor([0, 3, 9, 13])
positions = rw.positions.packed(cu_seqlens)
document = torch.bucketize(torch.arange(13), cu_seqlens, right=True)
same = document[:, None] == document  # a query looks at its own document only
q, k, v = torch.cat(texts, dim=-2)
out = attend(*rope(q, k, positions), v, attn_mask=same.tril())
difference = max((a - b).abs().max() for a, b in zip(out.split(lengths, -2), wanted, strict=True))
print(f"packed positions: {positions.tolist()}\n  against each text alone: {difference:.1e}")

# Left-padded: three rows of 6. The first real token of each row is at position 0.
mask = torch.tensor([[6 - n <= i for i in range(6)] for n in lengths])
positions = rw.positions.left_padded(mask)
rows = [
    torch.nn.functional.pad(text, (0, 0, 6 - n, 0)) for text, n in zip(texts, lengths, strict=True)
]
q, k, v = torch.cat(rows, dim=1)
causal = torch.ones(6, 6, dtype=torch.bool).tril()
out = attend(*rope(q, k, positions), v, attn_mask=mask[:, None, None] & causal)
difference = max((out[i, :, 6 - n :] - wanted[i][0]).abs().max() for i, n in enumerate(lengths))
print(f"\nleft-padded positions: {positions.tolist()}\n  against each text alone: {difference:.1e}")

# One decoded token for each row: positions (B, 1), a different one in each row.
new = rope.rotate(torch.randn(3, 2, 1, 32), mask.sum(-1, keepdim=True))
print(f"\nnext token of each row, at positions {mask.sum(-1).tolist()}: shape {tuple(new.shape)}")

# With an image between words (M-RoPE), a token has a time, a row and a column.
print("\n4 words, an image of 2 x 3 patches, 2 words: time, row, column of each token")
print(rw.positions.multimodal([4, (2, 3), 2]))
