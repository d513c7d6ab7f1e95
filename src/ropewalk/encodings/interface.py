"""One interface for every position encoding: what a model calls, not how an encoding works.

Axes: `B` batch, `H` query heads, `K` key/value heads, `S` queries, `T` keys,
`D` head_dim.

An encoding is built for a stack of layers. In each attention layer, it acts through a *site*. A
published encoding acts at one or more of five places, and each place has its method:

==================  =====================================  =======================================
place               method                                 encodings that act there
==================  =====================================  =======================================
embeddings          `Encoding.embed`                       sinusoidal, learned, integer, binary
queries and keys    `AttentionEncoding.rotate`             rotary, xPos
scores              `AttentionEncoding.bias` (H, S, T)     ALiBi, T5, KERPLE, FIRE, TUPE
scores or values    `AttentionEncoding.attend`             Shaw, Transformer-XL, DeBERTa, CoPE
values and output   `rotate_values` and `restore`          rotary, if values rotate too
==================  =====================================  =======================================
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from torch import Tensor, nn

T = TypeVar("T")


@dataclass(frozen=True)
class StackShape:
    """Shape of a stack: the attention layers that one encoding is built for.

    `causal` says whether these attentions look back only: True for a decoder's self-attention,
    False for an encoder and for cross-attention. Encodings that use distances need `causal` (T5
    divides its buckets between earlier and later keys). `head_dim` is the size of the vectors that
    `rotate` receives (the number of features, if linear attention rotates features).

    Example:
        >>> from ropewalk.encodings import StackShape, build
        >>> shape = StackShape(
        ...     layers=2, heads=4, kv_heads=4, head_dim=16, width=64, causal=True
        ... )
        >>> build("learned(max_positions=128)", shape).max_positions
        128
    """

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    width: int
    causal: bool


class Placement:
    """Positions of queries and keys in one forward pass, and values computed from them.

    `queries` is `(S,)` or `(B, S)`, `keys` is `(T,)` or `(B, T)`: integer positions. `new_keys` are
    the positions of the keys that `rotate` receives: all keys, or only those of the new tokens if
    keys are cached rotated. A model makes one placement per forward pass and passes it to every
    layer, so that layers which share tables, bucket indices and biases compute them once
    (`memoize`). A placement lasts for one pass, so no result depends on earlier calls. A sequence
    that is too long to attend in one piece attends in blocks of queries: `bias` and `attend` then
    receive a placement for each block, and again when the backward pass recomputes the block.

    Example:
        >>> import torch
        >>> from ropewalk.encodings import Placement
        >>> step = Placement(queries=torch.tensor([3]), keys=torch.arange(4))  # decode token 3
        >>> step.keys - step.queries
        tensor([-3, -2, -1,  0])
    """

    def __init__(
        self, queries: Tensor, keys: Tensor | None = None, new_keys: Tensor | None = None
    ) -> None:
        self.queries = queries
        self.keys = queries if keys is None else keys
        self.new_keys = self.keys if new_keys is None else new_keys
        self._memo: dict[Hashable, Any] = {}

    def memoize(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return `compute()`, which runs only on the first request for `key` in this pass.

        `key` must contain everything that the value depends on, except this placement's positions.
        """
        if key not in self._memo:
            self._memo[key] = compute()
        value: T = self._memo[key]
        return value


class Attended(NamedTuple):
    """What content-dependent attention returns.

    Example:
        >>> import torch
        >>> from ropewalk.encodings import Placement, StackShape, build
        >>> site = build("shaw", StackShape(1, 2, 2, 4, 8, causal=False)).for_layer(0)
        >>> q, k, v = torch.randn(3, 1, 2, 5, 4)
        >>> attended = site.attend(q, k, v, Placement(torch.arange(5)), mask=None)
        >>> attended.output.shape, attended.probabilities
        (torch.Size([1, 2, 5, 4]), None)
    """

    output: Tensor  # (B, H, S, D)
    probabilities: Tensor | None  # (B, H, S, T), only on request


class AttentionEncoding(nn.Module):
    """What an encoding does inside one attention layer. This base class does nothing (NoPE).

    `scale` multiplies the scores before the softmax; None means `1/sqrt(head_dim)` (TUPE uses
    `1/sqrt(2 head_dim)`). `cached_keys` says which keys a key/value cache stores: `"rotated"`, keys
    after `rotate`, so each key is rotated once; `"raw"`, keys before `rotate`, so `rotate` receives
    all keys at each step; `"none"` if the published method allows no cache.

    Example:
        >>> import torch
        >>> from ropewalk.encodings import AttentionEncoding
        >>> from ropewalk.model import Attention
        >>> class Nearer(AttentionEncoding):
        ...     def bias(self, placement):
        ...         distance = placement.keys - placement.queries[:, None]
        ...         return -distance.abs()[None].float()  # (H, S, T), H = 1
        >>> Attention(8, heads=1, encoding=Nearer())(torch.randn(2, 5, 8)).output.shape
        torch.Size([2, 5, 8])
    """

    scale: float | None = None
    cached_keys: Literal["rotated", "raw", "none"] = "rotated"
    #: True if `attend` replaces the softmax of `scale * q k^T + bias`.
    attends: bool = False
    #: True if `rotate_values` rotates values.
    rotates_values: bool = False

    @property
    def biases(self) -> bool:
        """Whether there is a `bias`; this does not compute it."""
        return type(self).bias is not AttentionEncoding.bias

    def rotate(
        self, q: Tensor, k: Tensor | None, placement: Placement
    ) -> tuple[Tensor, Tensor | None]:
        """Rotate q `(B, H, S, D)` to `placement.queries`, k `(B, K, T, D)` to `.new_keys`.

        k is None if a cache already contains all keys, rotated (cross-attention after its first
        step).
        """
        return q, k

    def rotate_values(self, v: Tensor, placement: Placement) -> Tensor:
        """Rotate v `(B, K, T, D)`, the values that belong to the keys that `rotate` receives.

        Values are cached rotated or raw, like the keys.
        """
        return v

    def restore(self, output: Tensor, placement: Placement) -> Tensor:
        """Rotate the output of attention, `(B, H, S, D)`, back by `placement.queries`."""
        return output

    def bias(self, placement: Placement) -> Tensor | None:
        """Return what to add to the scaled scores, independent of content: `(H, S, T)`, or None.

        If positions differ within the batch, the result is `(B, H, S, T)`.
        """
        return None

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        placement: Placement,
        mask: Tensor | None,
        need_probabilities: bool = False,
    ) -> Attended:
        """Attend with scores or values that depend on content and distance together (`attends`).

        q `(B, H, S, D)`; k and v `(B, H, T, D)`; mask is boolean, True where a query may look, and
        broadcasts to `(B, H, S, T)`. Probabilities are returned only on request.
        """
        raise RuntimeError(f"{type(self).__name__} has no attend method: its attends is False")


class Encoding(nn.Module):
    """A position encoding built for one stack. This base class does nothing (NoPE).

    `max_positions` is the number of positions that the encoding accepts, None without a limit.
    `trained_rows` is True if each position has its own parameters: parameters of positions that
    training never reached keep their initial values. `crosses` is False if the encoding is not
    defined between a source and a target.

    Example:
        >>> import torch
        >>> from ropewalk.encodings import Encoding
        >>> class Ramp(Encoding):
        ...     def embed(self, x, positions):
        ...         return x + positions[..., None] / 100
        >>> Ramp().embed(torch.zeros(1, 3, 2), torch.arange(3))[0, :, 0]
        tensor([0.0000, 0.0100, 0.0200])
    """

    max_positions: int | None = None
    trained_rows: bool = False
    crosses: bool = True

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Put the positions `(S,)` or `(B, S)` into the embeddings x `(B, S, width)`."""
        return x

    def for_layer(self, layer: int) -> AttentionEncoding:
        """Return what acts in the attention of this layer, counted from 0."""
        return AttentionEncoding()


class SharedSite(Encoding):
    """An encoding with one site, which all layers share."""

    shared: AttentionEncoding

    def for_layer(self, layer: int) -> AttentionEncoding:
        return self.shared


class LayerSites(Encoding):
    """An encoding with a site for each layer, or with a single one; sites may share parameters."""

    sites: nn.ModuleList

    def for_layer(self, layer: int) -> AttentionEncoding:
        site = self.sites[layer if len(self.sites) > 1 else 0]
        assert isinstance(site, AttentionEncoding)
        return site
