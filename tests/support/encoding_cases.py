"""Every encoding as text, models with each, and the properties that all of them share.

Each check takes an encoding's text, or a model, and asserts. The reference is a model that computes
everything from scratch. Parameters of a named encoding get random values, so that no initial value
hides an error.
"""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from ropewalk.encodings import (
    AttentionEncoding,
    Encoding,
    Placement,
    StackShape,
    build,
    build_encoder_decoder,
)
from ropewalk.model import (
    Attention,
    DecoderCache,
    KeyValueCache,
    Transformer,
    TransformerShape,
    initialize,
    rotated_dim,
)

BACK = StackShape(layers=2, heads=4, kv_heads=2, head_dim=8, width=32, causal=True)
BOTH = dataclasses.replace(BACK, causal=False)

EMBEDDED = [
    "sinusoidal",
    "sinusoidal(theta=100)",
    "learned(max_positions=12)",
    "integer",
    "integer(length=9)",
    "binary",
    "binary(bits=4)",
]
DISTANCE_BIASES = [
    "alibi",
    "alibi(symmetric=False)",
    "t5",
    "t5(buckets=8, distance=20)",
    "kerple",
    "kerple(kind=power)",
]
FIRE = ["fire", "fire(hidden=5, c=2, length=30, shared=True)"]
TUPE = ["tupe", "tupe(relative=True, reset=True)"]
BIASES = [*DISTANCE_BIASES, *FIRE, *TUPE]
SCORED_BY_DISTANCE = [
    "shaw",
    "shaw(distance=2)",
    "shaw(distance=1, values=False)",
    "shaw(distance=3, per_head=True)",
    "transformer_xl",
    "deberta",
    "deberta(distance=2)",
    "deberta(distance=9, buckets=4)",
]
COPE = ["cope(two_sided=True)", "cope(npos_max=3, two_sided=True)"]
FIXED = [
    "rotary",
    "rotary(rotary_dim=4, pairing=interleaved, reverse=True)",
    "rotary(frequency=0.3)",
    "rotary(rule=proportional, fraction=0.5)",
    "rotary(rule=yarn, factor=4, original_length=64, theta=100)",
    "rotary(rule=dynamicntk, factor=2, original_length=3, length=6)",
]
LEARNED = ["rotary(learned=True)", "rotary(learned=layer)", "rotary(learned=head, rotary_dim=6)"]
VALUES = [
    "rotary(values=True)",
    "rotary(values=True, learned=head)",
    "rotary(values=True, rule=yarn, factor=4, original_length=64, theta=100, rotary_dim=6)",
]
XPOS = [
    "xpos(both_ways=rotary)",
    "xpos(both_ways=xpos, scale_base=40, center=3)",
    "xpos(both_ways=rotary, theta=100, rotary_dim=4, pairing=interleaved, scale_base=20)",
]
#: What depends on distances alone.
RELATIVE = [*DISTANCE_BIASES, *SCORED_BY_DISTANCE, *FIXED, *LEARNED, *VALUES, *XPOS]
ATTENDING = [*RELATIVE, *FIRE, *TUPE, *COPE, "rotary(values=absolute)"]
EVERY = ["none", *EMBEDDED, *ATTENDING]

LINEAR_KINDS = [
    "elu",
    "elu(rotate=before)",
    "performer(features=12)",
    "performer(features=6, rotate=before)",
]


def crossing(name: str) -> str:
    """The text of an encoding that acts in cross-attention too."""
    return f"{name[:-1]}, cross=True)" if name.endswith(")") else f"{name}(cross=True)"


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def words(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(4, 20, shape, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor, expected: Tensor, atol: float = 1e-6) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def of_site(site: type[AttentionEncoding]) -> type[Encoding]:
    """An encoding that is nothing but this site in each layer."""

    class OfSite(Encoding):
        def __init__(self, shape: StackShape) -> None:
            super().__init__()

        def for_layer(self, layer: int) -> AttentionEncoding:
            return site()

    return OfSite


def recorded(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[tuple]:
    """Return the list to which each call of a function or method adds its arguments."""
    calls, function = [], getattr(owner, name)

    def call(*args, **options):
        calls.append(args)
        return function(*args, **options)

    monkeypatch.setattr(owner, name, call)
    return calls


@torch.no_grad()
def randomise(module: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return module.double().eval()


def attention_with(
    name: str, kv_heads: int = 2, *, causal: bool = True, seed: int = 0, kind: str = "softmax"
) -> Attention:
    """Attention of width 32 with four heads, in float64; its encoding's parameters are random."""
    size = rotated_dim(kind, 8)
    shape = dataclasses.replace(BACK, kv_heads=kv_heads, causal=causal, head_dim=size)
    site = build(name, shape).for_layer(0)
    attention = Attention(32, 4, kv_heads=kv_heads, encoding=site, kind=kind)
    initialize(attention, seed)
    randomise(attention.encoding, seed)
    return attention.double().eval()


def new_model(name: str, shape: TransformerShape, seed: int = 0) -> Transformer:
    stacks = shape.stack_shape(causal=False), shape.stack_shape(causal=True)
    model = Transformer(shape, *build_encoder_decoder(name, *stacks))
    initialize(model, seed)
    return model


def transformer(
    name: str, seed: int = 0, layers: int = 2, kind: str = "softmax", kv_heads: int = 2
) -> Transformer:
    """A transformer of width 32 in float64; the parameters of its encodings are random."""
    shape = TransformerShape(20, 32, 4, 48, layers, layers, kv_heads=kv_heads, attention=kind)
    model = new_model(name, shape, seed)
    for part in model.modules():
        if isinstance(part, Encoding):
            randomise(part, seed)
    return model.double().eval()


@torch.no_grad()
def check_chunks(name: str, steps: list[int], seed: int, kv_heads: int = 2) -> None:
    """Attention with a cache, fed in chunks, equals attention over the full sequence."""
    attention, length = attention_with(name, kv_heads, seed=seed), sum(steps)
    x, cache, past = random(2, length, 32, seed=seed), KeyValueCache(), 0
    whole = attention(x, causal=True, need_probabilities=True)
    for step in steps:
        held, end = KeyValueCache(), past + step
        if past:
            held.append(*cache.held())
        for into, ask in ((held, False), (cache, True)):  # asking must leave the output alone
            part = attention(x[:, past:end], causal=True, cache=into, need_probabilities=ask)
            close(part.output, whole.output[:, past:end])
        close(part.probabilities, whole.probabilities[:, :, past:end, :end])
        past = end


@torch.no_grad()
def check_decoding(model: Transformer, atol: float = 1e-6) -> None:
    """A transformer that decodes token by token with its cache equals one without a cache."""
    source, target = words(3, 7, seed=1), words(3, 7, seed=2)
    mask = torch.arange(7) < torch.tensor([[7], [3], [5]])
    whole, memory, cache = model(source, target, mask), model.encode(source, mask), DecoderCache(2)
    for step in range(7):
        part = model.decode(target[:, step : step + 1], memory, mask, cache)
        close(part, whole[:, step : step + 1], atol)


@torch.no_grad()
def check_beams(model: Transformer) -> None:
    """With a branching cache, each beam has the same result as its own prefix alone."""
    source = words(2, 5)
    memory, cache = model.encode(source), DecoderCache(2, branching=True)
    prefixes = words(2, 1, 1, seed=1)  # (B, beams, steps)
    for step in range(4):
        hidden = model.decode(prefixes[..., -1], memory, cache=cache)
        for beam in range(prefixes.shape[1]):
            close(hidden[:, beam], model.decode(prefixes[:, beam], memory)[:, -1])
        parents = torch.tensor([[0, 0, 0], [0, 0, 0]] if step == 0 else [[2, 0, 1], [1, 1, 0]])
        cache.follow(parents)
        held = prefixes.gather(1, parents[..., None].expand(-1, -1, step + 1))
        prefixes = torch.cat((held, words(2, 3, seed=step + 2)[..., None]), -1)


@torch.no_grad()
def check_padding_of(model: Transformer, atol: float = 1e-6) -> None:
    """A padded sentence equals the sentence alone, on both sides; padding has no attention."""
    lengths = [(7, 3), (2, 6), (4, 1)]
    source, target = torch.zeros(2, 3, 7, dtype=torch.int64)
    for row, (s, t) in enumerate(lengths):
        source[row, :s], target[row, :t] = words(s, seed=row), words(t, seed=row)
    mask = source != 0
    together, maps = model(source, target, mask), model.attention_maps(source, target, mask)
    assert together.isfinite().all()
    for row, (s, t) in enumerate(lengths):
        alone = model(source[row : row + 1, :s], target[row : row + 1, :t])
        close(together[row : row + 1, :t], alone, atol)
        assert all((p[row, ..., s:] == 0).all() for p in maps.encoder + maps.cross)


def check_transformer(name: str) -> None:
    """A transformer's result does not depend on how it decodes and is padded."""
    model = transformer(name)
    check_decoding(model)
    check_beams(model)
    check_padding_of(model)


@torch.no_grad()
def check_packing(name: str, shape: StackShape) -> None:
    """Documents in one row, with positions that restart, equal each document alone."""
    encoding, lengths = randomise(build(name, shape)), [(4, 5), (6, 3)]
    attention = Attention(32, 4, kv_heads=2, encoding=encoding.for_layer(0)).double()
    place = torch.stack([torch.cat([torch.arange(n) for n in pair]) for pair in lengths])
    document = torch.stack([torch.arange(2).repeat_interleave(torch.tensor(p)) for p in lengths])
    mask = (document[:, :, None] == document[:, None])[:, None]
    x = random(2, 9, 32)
    packed = attention(
        encoding.embed(x, place), placement=Placement(place), mask=mask, causal=shape.causal
    ).output
    for row, (first, second) in enumerate(lengths):
        for part in (slice(0, first), slice(first, first + second)):
            alone = x[row : row + 1, part]
            alone = encoding.embed(alone, torch.arange(alone.shape[1]))
            close(packed[row : row + 1, part], attention(alone, causal=shape.causal).output)
