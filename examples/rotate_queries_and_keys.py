"""Rotate queries and keys: prefill and cached decode agree, and scores depend on distance alone.

Start here. The rope has no parameters and no state: when decoding, pass `offset`, the number
of cached tokens, to get the same values as one pass over the complete sequence.
"""

import torch

import ropewalk as rw

torch.manual_seed(0)

# Head size and theta of Llama 3, without its scaling rule. "half" pairs dimension i with i + 64.
spec = rw.RotarySpec(head_dim=128, theta=500_000.0, pairing="half")
rope = rw.RotaryEmbedding(spec)
print(spec)

# Prefill: 12 tokens in one call. Queries have 8 heads, keys 2 (grouped-query attention).
q = torch.randn(1, 8, 12, 128)  # (B, H, S, D)
k = torch.randn(1, 2, 12, 128)  # (B, K, S, D)
q_rotated, k_rotated = rope(q, k)

# Decode: the same tokens one by one. The cache holds rotated keys, which never change.
cache, worst = [], 0.0
for past in range(12):
    q_new, k_new = rope(q[:, :, past : past + 1], k[:, :, past : past + 1], offset=past)
    cache.append(k_new)
    worst = max(worst, (q_new - q_rotated[:, :, past : past + 1]).abs().max().item())
worst = max(worst, (torch.cat(cache, dim=-2) - k_rotated).abs().max().item())
print(f"prefill against decode, largest difference: {worst:.1e}")

# If the key is 5 positions before the query, their score is the same at any position.
query, key = torch.nn.functional.normalize(torch.randn(2, 1, 1, 1, 128), dim=-1)
print("\nscore of one query and one key, 5 positions apart:")
for position in (5, 5_000, 131_072, 10_000_000, 2_000_000_000):
    here = torch.tensor([position])
    a, b = rope(query, key, here, here - 5)
    print(f"  query at {position:13,}: {(a * b).sum():.6f}")

# Rotation keeps lengths, and can be undone.
back = rope.unrotate(k_rotated)
print(f"\nunrotate gives the keys back, largest difference: {(back - k).abs().max():.1e}")
