"""The Annotated Transformer's way: the baseline of `training.py` and `translation.py`.

This is new code. It follows The Annotated Transformer (Rush 2018; Huang et al. 2022,
https://nlp.seas.harvard.edu/annotated-transformer/) in everything that costs time: every sentence
padded to the same length, attention and layer norm in elementary operations, dropout on
probabilities and inside the feed-forward, a vocabulary for each side, log-probabilities at every
padded position, and a loss against a dense `(N, V)` distribution.

Axes: `B` batch, `H` heads, `S` queries, `T` keys, `D` head_dim, `N` tokens,
`V` vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div

from ropewalk.encodings.absolute import Sinusoidal, sinusoids
from ropewalk.lab.data.batches import Batch, EncodedSplit
from ropewalk.lab.tokens import BOS, EOS, PAD
from ropewalk.model import Transformer, TransformerShape
from ropewalk.model.cache import causal_mask

LENGTH = 72  # tokens of every padded sentence, including both marks
SENTENCES = 32  # of a batch
ACCUMULATE = 10  # batches whose gradients make one step


def padded_batch(split: EncodedSplit, rows: Sequence[int], length: int = LENGTH) -> Batch:
    """Return these rows, with begin and end mark on both sides, each side padded to `length`."""
    sides = []
    for side in (split.source, split.target):
        ids = torch.full((len(rows), length), PAD, dtype=torch.int64)
        for i, row in enumerate(rows):
            marked = [BOS, *side[row], EOS]
            if len(marked) > length:
                raise ValueError(f"sentences must have at most {length} tokens, got {len(marked)}")
            ids[i, : len(marked)] = torch.tensor(marked)
        sides.append(ids)
    source, target = sides
    # The decoder's input keeps the end mark of all but the longest sentence; it is not scored.
    return Batch(source, source != PAD, target[:, :-1], target[:, 1:])


class LayerNorm(nn.Module):
    """Norm over the last axis from mean and standard deviation, one operation at a time."""

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        deviation = x.std(-1, keepdim=True)
        return self.gain * (x - x.mean(-1, keepdim=True)) / (deviation + self.eps) + self.shift


class Attention(nn.Module):
    """Multi-head attention that computes, masks and drops out its probabilities."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(shape.width, shape.width) for _ in range(4)
        )
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.query(x), self.key(memory), self.value(memory)
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])  # (B, H, S, T)
        probabilities = self.dropout(scores.masked_fill(~mask, -1e9).softmax(-1))
        out: Tensor = self.output((probabilities @ v).transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Module):
    """Two linear maps with ReLU and dropout between them."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.inner = nn.Linear(shape.width, shape.feed_forward)
        self.outer = nn.Linear(shape.feed_forward, shape.width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.outer(self.dropout(self.inner(x).relu()))
        return out


class Residual(nn.Module):
    """The output of a sublayer on the normalized input, dropped out and added to the input."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.norm = LayerNorm(shape.width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        out: Tensor = x + self.dropout(sublayer(self.norm(x)))
        return out


class Layer(nn.Module):
    """Self-attention, in the decoder also attention to memory, and feed-forward."""

    def __init__(self, shape: TransformerShape, *, decoder: bool) -> None:
        super().__init__()
        self.own = Attention(shape)
        self.cross = Attention(shape) if decoder else None
        self.feed_forward = FeedForward(shape)
        self.residuals = nn.ModuleList(Residual(shape) for _ in range(3 if decoder else 2))

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None, memory_mask: Tensor | None
    ) -> Tensor:
        cross = self.cross
        x = self.residuals[0](x, lambda y: self.own(y, y, mask))
        if cross is not None:
            x = self.residuals[1](x, lambda y: cross(y, memory, memory_mask))
        out: Tensor = self.residuals[-1](x, self.feed_forward)
        return out


class AnnotatedTransformer(nn.Module):
    """Pre-norm encoder-decoder: sinusoidal, an embedding per side, a separate generator."""

    def __init__(self, shape: TransformerShape, max_positions: int = 512) -> None:
        super().__init__()
        self.shape = shape
        self.embeddings = nn.ModuleList(
            nn.Embedding(shape.vocabulary, shape.width) for _ in ("source", "target")
        )
        self.encoder = nn.ModuleList(
            Layer(shape, decoder=False) for _ in range(shape.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            Layer(shape, decoder=True) for _ in range(shape.decoder_layers)
        )
        self.norms = nn.ModuleList(LayerNorm(shape.width) for _ in ("encoder", "decoder"))
        self.generator = nn.Linear(shape.width, shape.vocabulary)
        self.dropout = nn.Dropout(shape.dropout)
        self.positions: Tensor
        self.register_buffer("positions", sinusoids(torch.arange(max_positions), shape.width))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, batch: Batch) -> Tensor:
        """Return log-probabilities `(B, S, V)` of every target position, including padding."""
        source_mask = batch.source_mask[:, None, None, :]
        hidden = self.decode(batch.target_in, self.encode(batch.source, source_mask), source_mask)
        return self.generate(hidden)

    def encode(self, source: Tensor, mask: Tensor) -> Tensor:
        """Encode source `(B, S)` into memory `(B, S, width)`; mask `(B, 1, 1, S)`."""
        memory = self._embed(0, source)
        for layer in self.encoder:
            memory = layer(memory, mask, None, None)
        out: Tensor = self.norms[0](memory)
        return out

    def decode(self, target: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return the hidden states `(B, S, width)` of every target position."""
        real = (target != PAD)[:, None, None, :]
        target_mask = real & causal_mask(real.shape[-1], real.shape[-1], real.device)
        x = self._embed(1, target)
        for layer in self.decoder:
            x = layer(x, target_mask, memory, mask)
        out: Tensor = self.norms[1](x)
        return out

    def generate(self, hidden: Tensor) -> Tensor:
        """Return log-probabilities of the vocabulary."""
        return torch.log_softmax(self.generator(hidden), -1)

    def _embed(self, side: int, tokens: Tensor) -> Tensor:
        x = self.embeddings[side](tokens) * math.sqrt(self.shape.width)
        out: Tensor = self.dropout(x + self.positions[: tokens.shape[1]])
        return out


def smoothed_divergence(log_p: Tensor, target: Tensor, smoothing: float) -> Tensor:
    """Return the summed divergence of the smoothed targets from log_p `(N, V)`, without padding.

    The word `target` has probability 1 - smoothing, padding has none, and the other V - 2 words
    share the rest: a full distribution for every row.
    """
    wanted = torch.full_like(log_p, smoothing / (log_p.shape[-1] - 2))
    wanted.scatter_(1, target[:, None], 1 - smoothing)
    wanted[:, PAD] = 0
    wanted[target == PAD] = 0
    return kl_div(log_p, wanted, reduction="sum")


def annotated_loss(model: AnnotatedTransformer, batch: Batch, smoothing: float) -> Tensor:
    """Return the loss of a batch per real target token."""
    log_p = model(batch).flatten(0, 1)
    return smoothed_divergence(log_p, batch.target_out.flatten(), smoothing) / batch.target_tokens


@torch.no_grad()
def with_weights_of(model: Transformer) -> AnnotatedTransformer:
    """Return the Annotated Transformer that computes what a sinusoidal `model` does."""
    if not isinstance(model.decoder_encoding, Sinusoidal):
        raise ValueError(
            f"model must be sinusoidal, as The Annotated Transformer is, "
            f"got {type(model.decoder_encoding).__name__}"
        )
    same = AnnotatedTransformer(model.shape).to(model.embedding.weight.dtype)
    for embedding in same.embeddings:
        embedding.weight.copy_(model.embedding.weight)
    same.generator.weight.copy_(model.embedding.weight)
    same.generator.bias.zero_()
    for stack, theirs in ((same.encoder, model.encoder), (same.decoder, model.decoder)):
        for layer, their in zip(stack, theirs, strict=True):
            norms = [their.attention_norm, their.feed_forward_norm]
            _copy_attention(layer.own, their.attention)
            if layer.cross is not None:
                _copy_attention(layer.cross, their.cross)
                norms.insert(1, their.cross_norm)
            for residual, norm in zip(layer.residuals, norms, strict=True):
                _copy_norm(residual.norm, norm)
            layer.feed_forward.inner.load_state_dict(their.feed_forward.inner.state_dict())
            layer.feed_forward.outer.load_state_dict(their.feed_forward.outer.state_dict())
    for norm, their in zip(same.norms, (model.encoder_norm, model.decoder_norm), strict=True):
        _copy_norm(norm, their)
    return same.eval()


def _copy_attention(attention: Attention, their: nn.Module) -> None:
    attention.query.load_state_dict(their.query.state_dict())
    attention.output.load_state_dict(their.output.state_dict())
    for name, tensor in their.key_value.state_dict().items():
        for half, part in zip((attention.key, attention.value), tensor.chunk(2), strict=True):
            half.get_parameter(name).copy_(part)


def _copy_norm(norm: LayerNorm, their: nn.LayerNorm) -> None:
    # The deviation here divides by n - 1, that of `model` by n.
    width = their.weight.numel()
    norm.gain.copy_(their.weight * (width / (width - 1)) ** 0.5)
    norm.shift.copy_(their.bias)
