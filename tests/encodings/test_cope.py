"""CoPE counts the keys that a query finds relevant; test_relative.py compares it with its formula.

These fail if counts exceed the table or do not match the gates, if an encoder gets the paper's
one-sided count, or if the result differs from code that others wrote from the paper's appendix.
"""

import warnings

import encoding_cases as cases
import pytest
import torch
from encoding_cases import BACK, BOTH, attention_with, random, transformer
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.encodings import Placement, build, build_encoder_decoder

seeds = st.integers(0, 2**32 - 1)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    cases.close(actual, expected, 1e-10)


@pytest.mark.parametrize("npos_max", [2, 5, 64])
@torch.no_grad()
def test_cope_equals_that_of_x_transformers(npos_max):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x_transformers = pytest.importorskip("x_transformers.x_transformers")
    attention, x = attention_with(f"cope(npos_max={npos_max})", 4), random(2, 9, 32)
    theirs = x_transformers.CoPE(8, 4, npos_max).double()
    theirs.pos_emb.copy_(attention.encoding.positions[0])
    q = attention.query(x).view(2, 9, 4, 8).transpose(1, 2)
    k, v = attention.key_value(x).view(2, 9, 2, 4, 8).permute(2, 0, 3, 1, 4)
    seen = torch.ones(9, 9, dtype=torch.bool).tril()
    logits = (q @ k.mT / 8**0.5).masked_fill(~seen, -torch.finfo(torch.float64).max)
    p = (logits + theirs(q, logits)).softmax(-1)
    found = attention(x, causal=True, need_probabilities=True)
    close(found.probabilities, p)
    close(found.output, attention.output((p @ v).transpose(1, 2).flatten(2)))


@given(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=9), st.integers(2, 12))
@torch.no_grad()
def test_positions_are_counts_of_the_keys_whose_gates_are_open(open_, npos_max):
    """Keys that point along the query open its gate, others close it; e[p] is p along the query."""
    site = build(f"cope(npos_max={npos_max})", BACK).for_layer(0).double()
    site.positions[..., 0] = torch.arange(npos_max, dtype=torch.float64) / 1000
    q = torch.zeros(1, 4, 1, 8, dtype=torch.float64)
    q[..., 0] = 1000
    k = torch.zeros(1, 4, len(open_), 8, dtype=torch.float64)
    k[..., 0] = torch.tensor(open_) * 2 - 1.0
    scores = site.scores(q, k, Placement(torch.tensor([0]), torch.arange(len(open_))), None)
    counts = [min(sum(open_[t:]), npos_max - 1) for t in range(len(open_))]
    close(scores[0, 0, 0] - (q @ k.mT)[0, 0, 0] / 8**0.5, torch.tensor(counts).double())


@torch.no_grad()
def test_two_sides_mirror_each_other_but_for_the_query_itself():
    """With the same vectors on both sides, a key ahead counts like one before, less the query."""
    site = build("cope(two_sided=True, npos_max=9)", BOTH).for_layer(0).double()
    site.positions.copy_(random(9, 8).expand(2, 9, 8))
    q, k = random(1, 4, 7, 8), random(1, 4, 7, 8, seed=1)
    here, itself = torch.arange(7), torch.eye(7, dtype=torch.bool)
    forth = site.scores(q, k, Placement(here), ~itself)
    back = site.scores(q.flip(-2), k.flip(-2), Placement(here), ~itself).flip(-1, -2)
    close(forth[..., ~itself], back[..., ~itself])


@pytest.mark.parametrize("text", ["cope", "cope(npos_max=5)", "cope(cross=True)"])
def test_what_looks_both_ways_is_refused_unless_asked_for(text):
    with pytest.raises(ValueError, match=r"two_sided must .*; write cope\(two_sided=True\)"):
        build_encoder_decoder(text, BOTH, BACK)


def test_each_layer_has_vectors_for_each_side_that_it_looks_to():
    model = transformer("cope(npos_max=5, two_sided=True)")
    found = {n: tuple(p.shape) for n, p in model.named_parameters() if "encoding" in n}
    assert found == {
        f"{stack}_encoding.sites.{layer}.positions": (sides, 5, 8)
        for stack, sides in (("encoder", 2), ("decoder", 1))
        for layer in range(2)
    }
    assert all((p == 0).all() for p in build("cope", BACK).parameters())
