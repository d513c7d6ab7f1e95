"""Every encoding of the registry in a compiled and an exported model, at several lengths.

Fails if one breaks the graph, limits the range of lengths, is compiled again for each length or
gives another result than uncompiled, and if a position without a row raises no error.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from ropewalk.encodings import REGISTRY, build
from ropewalk.model import LanguageModel, TransformerShape, softmax_attention

SHAPE = TransformerShape(
    vocabulary=20, width=16, heads=2, feed_forward=16, encoder_layers=1, decoder_layers=1
)
MORE = [
    "rotary(learned=head, values=True)",
    "rotary(rule=dynamicntk, factor=2, original_length=8, length=12)",
    "tupe(relative=True, reset=True)",
    *("sinusoidal+rotary", "integer+alibi", "binary+t5", "learned+kerple"),
]
#: Those that compute otherwise in a stack that looks both ways, and attention alone.
TWO_SIDED = ["none", "cope(two_sided=True)", "t5", "fire"]

#: Every encoding, alone or in one of these; `none`, attention alone, is a part of all of them.
COVERED = {"none", *(text.partition("(")[0] for text in "+".join(MORE).split("+"))}
CAUSAL = [*MORE, *sorted(REGISTRY.keys() - COVERED)]


pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]


def model(encoding: str, causal: bool) -> LanguageModel:
    torch.manual_seed(0)
    made = build(encoding, SHAPE.stack_shape(causal=causal))
    return LanguageModel(SHAPE, made, causal=causal).eval()


def tokens(count: int) -> torch.Tensor:
    return torch.randint(0, SHAPE.vocabulary, (2, count))


@pytest.mark.parametrize("encoding", CAUSAL)
@torch.no_grad()
def test_compiled_once_for_all_lengths(encoding):
    """Of one encoding, a graph of the first length and one of all; of others, only the second."""
    torch._dynamo.reset()
    plain, counter = model(encoding, True), CompileCounter()
    fast = torch.compile(plain, backend=counter, fullgraph=True)
    for count in (7, 9, 40):
        given = tokens(count)
        if encoding != "transformer_xl":
            torch._dynamo.mark_dynamic(given, 1)
        torch.testing.assert_close(fast(given), plain(given), rtol=1e-5, atol=1e-5)
    assert counter.frame_count <= (2 if encoding == "transformer_xl" else 1)
    torch._dynamo.reset()


def test_numbers_of_blocks_share_a_few_graphs():
    """One graph for each doubling of the number of blocks; together, they are all queries."""
    torch._dynamo.reset()
    counter = CompileCounter()

    def sums(x: torch.Tensor) -> list[torch.Tensor]:
        bounds = softmax_attention._block_bounds(x.shape[0], 16)
        assert all(end - start <= 16 for start, end in pairwise(bounds))
        return [x[start:end].sum() for start, end in pairwise(bounds)]

    fast = torch.compile(sums, backend=counter, fullgraph=True)
    for count in (20, 31, 35, 50, 17, 63, 32, 33):
        given = torch.arange(count)
        torch._dynamo.mark_dynamic(given, 0)
        blocks = fast(given)
        assert len(blocks) == (2 if count <= 32 else 4)
        assert sum(blocks) == given.sum()
    assert counter.frame_count == 2


@pytest.mark.parametrize("encoding", ["alibi", "shaw"])
@torch.no_grad()
def test_lengths_that_attend_in_blocks_share_a_graph(monkeypatch, encoding):
    monkeypatch.setattr(softmax_attention, "LEAST", 16)
    monkeypatch.setattr(softmax_attention, "BLOCK", 1)  # blocks of LEAST tokens
    torch._dynamo.reset()
    plain, counter = model(encoding, True), CompileCounter()
    fast = torch.compile(plain, backend=counter, fullgraph=True)
    for count in (20, 31, 17, 32):
        given = tokens(count)
        torch._dynamo.mark_dynamic(given, 1)
        torch.testing.assert_close(fast(given), plain(given), rtol=1e-5, atol=1e-5)
    assert counter.frame_count == 1
    torch._dynamo.reset()


@pytest.mark.parametrize(  # of those that look back, compiling shows what limits a length
    ("encoding", "causal"), [*((e, True) for e in MORE), *((e, False) for e in TWO_SIDED)]
)
@torch.no_grad()
def test_exported_for_any_length(encoding, causal):
    plain = model(encoding, causal)
    lengths = {1: torch.export.Dim("S", min=2, max=500)}
    program = torch.export.export(plain, (tokens(6),), dynamic_shapes=(lengths,), strict=False)
    exported = program.module()
    for count in (3, 400):
        given = tokens(count)
        torch.testing.assert_close(exported(given), plain(given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["learned(max_positions=8)", "binary(bits=3)"])
@torch.no_grad()
def test_a_compiled_model_refuses_positions_that_have_no_row(name):
    torch._dynamo.reset()
    fast = torch.compile(model(name, True), backend="eager", fullgraph=True)
    within = tokens(8)
    torch._dynamo.mark_dynamic(within, 1)
    fast(within)
    with pytest.raises(RuntimeError, match=r"positions must lie in 0\.\.7"):
        fast(tokens(9))
    torch._dynamo.reset()
