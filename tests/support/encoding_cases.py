"""Properties of every encoding: the result is the same however a sequence is cut, padded or packed.

Each check takes an encoding's name, or a model, and asserts. The reference is a model that computes
everything from scratch. Parameters of a named encoding get random values, so that no initial value
hides an error.
"""

import torch
from torch import Tensor, nn

from ropewalk.encodings import Encoding, Placement, StackShape, build, build_encoder_decoder
from ropewalk.model import (
    Attention,
    DecoderCache,
    KeyValueCache,
    Transformer,
    TransformerShape,
    initialize,
)

BACK = StackShape(layers=2, heads=4, kv_heads=2, head_dim=8, width=32, causal=True)
BOTH = StackShape(layers=2, heads=4, kv_heads=2, head_dim=8, width=32, causal=False)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def words(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(4, 20, shape, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor, expected: Tensor, atol: float = 1e-6) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


@torch.no_grad()
def randomise(module: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    for parameter in module.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)
    return module.double().eval()


def attention_with(name: str, shape: StackShape = BACK, seed: int = 0, layer: int = 0) -> Attention:
    encoding = build(name, shape).for_layer(layer)
    attention = Attention(shape.width, shape.heads, kv_heads=shape.kv_heads, encoding=encoding)
    randomise(attention, seed)
    return attention


def transformer(name: str, seed: int = 0, layers: int = 2) -> Transformer:
    shape = TransformerShape(20, 32, 4, 64, layers, layers, kv_heads=2)
    stacks = shape.stack_shape(causal=False), shape.stack_shape(causal=True)
    model = Transformer(shape, *build_encoder_decoder(name, *stacks))
    initialize(model, seed)
    for part in model.modules():
        if isinstance(part, Encoding):
            randomise(part, seed)
    return model.double().eval()


@torch.no_grad()
def check_chunks(name: str, steps: list[int], seed: int) -> None:
    """Attention with a cache, fed in chunks, equals attention over the full sequence."""
    attention, length = attention_with(name, seed=seed), sum(steps)
    x, cache, past = random(2, length, 32, seed=seed), KeyValueCache(), 0
    whole = attention(x, causal=True, need_probabilities=True)
    for step in steps:
        part = attention(x[:, past : past + step], causal=True, cache=cache)
        close(part.output, whole.output[:, past : past + step])
        past += step


@torch.no_grad()
def check_decoding(name: str, seed: int = 0, atol: float = 1e-6) -> None:
    """A transformer that decodes token by token with its cache equals one without a cache."""
    model, source, target = transformer(name, seed), words(3, 7, seed=1), words(3, 7, seed=2)
    mask = torch.arange(7) < torch.tensor([[7], [3], [5]])
    whole, memory, cache = model(source, target, mask), model.encode(source, mask), DecoderCache(2)
    for step in range(7):
        part = model.decode(target[:, step : step + 1], memory, mask, cache)
        close(part, whole[:, step : step + 1], atol)


@torch.no_grad()
def check_beams(name: str) -> None:
    """With a branching cache, each beam has the same result as its own prefix alone."""
    model, source = transformer(name), words(2, 5)
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


def check_padding(name: str, atol: float = 1e-6) -> None:
    """A padded sentence equals the sentence alone, on both sides."""
    check_padding_of(transformer(name), atol)


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
    check_decoding(name)
    check_beams(name)
    check_padding(name)


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
