"""Encodings of the claims' experiments, beside plain loops.

These fail if rotation reaches a layer that it should not, if a clipped distance is rotated by
another than the limit, on either side, and if near distances are not those of rotary.
"""

import math

import pytest
import torch
from scripts import load_scripts

from ropewalk import RotaryEmbedding, RotarySpec
from ropewalk.encodings import REGISTRY, Placement, StackShape, build
from ropewalk.model import Attention, KeyValueCache


@pytest.fixture(autouse=True)
def _registered():
    """Register the encodings for one test; the file itself registers them when it is imported."""
    known = dict(REGISTRY)
    (module,) = load_scripts("examples", "claims_encodings")
    REGISTRY["rotary_only"] = module.RotaryOnly
    REGISTRY["rotary_clipped"] = module.RotaryClipped
    yield
    REGISTRY.clear()
    REGISTRY.update(known)


def stack(layers=3, causal=True):
    return StackShape(layers, heads=2, kv_heads=2, head_dim=8, width=16, causal=causal)


@pytest.mark.parametrize(("layer", "chosen"), [("first", 0), ("last", 2)])
def test_one_layer_alone_rotates(layer, chosen):
    encoding = build(f"rotary_only(layer={layer})", stack())
    q, placement = torch.randn(1, 2, 5, 8), Placement(torch.arange(5))
    plain = build("rotary", stack()).for_layer(0).rotate(q, q, placement)[0]
    for place in range(3):
        turned = encoding.for_layer(place).rotate(q, q, placement)[0]
        torch.testing.assert_close(turned, plain if place == chosen else q)


@pytest.mark.parametrize("name", ["rotary_only(layer=middle)", "rotary_clipped(distance=0)"])
def test_what_cannot_be_is_refused(name):
    with pytest.raises(ValueError, match=r"layer must be|distance must be"):
        build(name, stack())


@pytest.mark.parametrize("causal", [True, False])
def test_clipped_scores_are_those_of_a_loop(causal):
    torch.manual_seed(0)
    site = build("rotary_clipped(distance=2)", stack(causal=causal)).for_layer(0)
    q, k = torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    found = site.scores(q, k, Placement(torch.arange(6)), None)
    rope = RotaryEmbedding(RotarySpec(head_dim=8))
    for i in range(6):
        for j in range(6):
            away = max(-2, min(2, j - i))
            at = torch.tensor([10]), torch.tensor([10 + away])
            a, b = rope(q[:, :, i : i + 1], k[:, :, j : j + 1], *at)
            expected = (a * b).sum(-1)[..., 0] / math.sqrt(8)
            torch.testing.assert_close(found[:, :, i, j], expected)


def test_a_limit_beyond_the_text_changes_nothing():
    torch.manual_seed(0)
    x = torch.randn(2, 7, 16)
    outputs = []
    for name in ("rotary", "rotary_clipped(distance=7)"):
        torch.manual_seed(1)
        outputs.append(Attention(16, 2, encoding=build(name, stack()).for_layer(0))(x).output)
    torch.testing.assert_close(*outputs)


def test_its_cached_decode_is_the_whole():
    torch.manual_seed(0)
    x = torch.randn(2, 7, 16)
    site = build("rotary_clipped(distance=2)", stack()).for_layer(0)
    attention = Attention(16, 2, encoding=site)
    whole = attention(x, causal=True).output
    cache = KeyValueCache()
    steps = [attention(x[:, i : i + 1], causal=True, cache=cache).output for i in range(7)]
    torch.testing.assert_close(torch.cat(steps, 1), whole)
