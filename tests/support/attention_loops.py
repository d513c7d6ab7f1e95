"""Attention one pair at a time, by the formulas of the papers, as a reference for encodings."""

import itertools
import math

import torch
from torch import Tensor

from ropewalk.encodings import AttentionEncoding, Placement
from ropewalk.encodings.relative import CoPESite, DebertaSite, ShawSite, TransformerXLSite
from ropewalk.model import Attention


def loop(
    attention: Attention, x: Tensor, memory: Tensor, placement: Placement, allowed: Tensor
) -> tuple[Tensor, Tensor]:
    """Attend with one query and one head at a time; allowed is boolean `(B, S, T)`.

    Returns the output, and the probabilities without gradient.
    """
    site, d = attention.encoding, attention.head_dim
    group = attention.heads // attention.kv_heads
    q, (keys, values) = attention.query(x), attention.key_value(memory).chunk(2, -1)
    at, to = (p.expand(len(x), -1).tolist() for p in (placement.queries, placement.keys))
    p = torch.zeros(len(x), attention.heads, x.shape[1], memory.shape[1], dtype=x.dtype)
    output = {}
    for b, s, h in itertools.product(*(range(p.shape[axis]) for axis in (0, 2, 1))):
        mine, theirs = slice(h * d, h * d + d), slice(h // group * d, h // group * d + d)
        seen, output[b, s, h] = allowed[b, s].nonzero().flatten().tolist(), q.new_zeros(d)
        if not seen:
            continue
        i, js = at[b][s], [to[b][t] for t in seen]
        scores = scores_of(site, h, q[b, s, mine], keys[b, seen][:, theirs], i, js)
        shares = torch.stack(scores).softmax(0)
        p[b, h, s, seen] = shares.detach()
        summed = zip(shares, values[b, seen][:, theirs], js, strict=True)
        output[b, s, h] = torch.stack([a * value(site, h, v, i, j) for a, v, j in summed]).sum(0)
    return attention.output(torch.cat(list(output.values())).view_as(q)), p


def scores_of(
    site: AttentionEncoding, h: int, q: Tensor, keys: Tensor, i: int, js: list[int]
) -> list[Tensor]:
    """The scores of a query of head h at i with the keys that it sees, at positions js."""
    if isinstance(site, CoPESite):
        return [
            q @ k / math.sqrt(len(q)) + q @ cope_vector(site, q, keys, i, js, t)
            for t, k in enumerate(keys)
        ]
    return [score(site, h, q, k, i, j) for k, j in zip(keys, js, strict=True)]


def score(site: AttentionEncoding, h: int, q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
    """The score of a query of head h at i and a key at j, by the paper's formula."""
    d = len(q)
    if type(site) is AttentionEncoding:
        return q @ k / math.sqrt(d)
    match site:
        case ShawSite():
            return q @ (k + shaw_row(site, site.keys.weight, h, i, j)) / math.sqrt(d)
        case TransformerXLSite():
            r = of_head(site.distance.weight, h, d) @ sinusoid(i - j, 32)
            u, v = site.u[h], site.v[h]
            return (q @ k + q @ r + u @ k + v @ r) / math.sqrt(d)
        case DebertaSite():
            row = site.table.weight[deberta_row(site, i, j)]
            key, query = (of_head(w.weight, h, d) @ row for w in (site.key, site.query))
            return (q @ k + q @ key + k @ query) / math.sqrt(3 * d)
    raise AssertionError(f"no formula for {site}")


def value(site: AttentionEncoding, h: int, v: Tensor, i: int, j: int) -> Tensor:
    """The contribution of a value at j to the output of a query of head h at i."""
    if isinstance(site, ShawSite) and site.values is not None:
        return v + shaw_row(site, site.values.weight, h, i, j)
    return v


def of_head(weight: Tensor, h: int, d: int) -> Tensor:
    """The rows of a projection that belong to head h."""
    return weight[h * d : h * d + d]


def shaw_row(site: ShawSite, table: Tensor, h: int, i: int, j: int) -> Tensor:
    """a_c of head h, c = clip(j - i, -K, K) (Shaw et al. 2018, section 3.2)."""
    per_head = len(table) > 2 * site.distance + 1
    start = h * (2 * site.distance + 1) if per_head else 0
    return table[start + site.distance + max(-site.distance, min(j - i, site.distance))]


def sinusoid(distance: int, width: int) -> Tensor:
    """r of Transformer-XL (Vaswani et al. 2017, section 3.5)."""
    angles = [distance / 10_000 ** (2 * (c // 2) / width) for c in range(width)]
    waves = [math.cos(a) if c % 2 else math.sin(a) for c, a in enumerate(angles)]
    return torch.tensor(waves, dtype=torch.float64)


def deberta_row(site: DebertaSite, i: int, j: int) -> int:
    """δ(i, j) (He et al. 2020, eq. 3), with logarithmic buckets if there are any."""
    reach, bucket = site.distance, i - j
    if site.buckets is not None:
        reach, exact = site.buckets, site.buckets // 2
        if abs(bucket) > exact:
            ratio = math.log(abs(bucket) / exact) / math.log((site.distance - 1) / exact)
            bucket = int(math.copysign(math.ceil(ratio * (exact - 1)) + exact, bucket))
    if bucket <= -reach:
        return 0
    return 2 * reach - 1 if bucket >= reach else bucket + reach


def cope_vector(site: CoPESite, q: Tensor, keys: Tensor, i: int, js: list[int], t: int) -> Tensor:
    """e[p] of the t-th key that a query sees (Golovneva et al. 2024, section 4)."""
    gates = [torch.sigmoid(q @ k / math.sqrt(len(q))) for k in keys]
    side = 0
    if site.causal:
        counted = gates[t:]
    elif js[t] <= i:
        counted = [g for g, j in zip(gates[t:], js[t:], strict=True) if j <= i]
    else:
        side = 1
        counted = [g for g, j in zip(gates[: t + 1], js, strict=False) if j > i]
    count = torch.stack(counted).sum().clamp(max=site.npos_max - 1)
    below = math.floor(count.item())
    above, vectors = min(below + 1, site.npos_max - 1), site.positions[side]
    return (1 - (count - below)) * vectors[below] + (count - below) * vectors[above]
