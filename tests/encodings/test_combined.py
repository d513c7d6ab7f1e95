"""Encodings joined by +: all of them act on embeddings, at most one acts in attention.

These fail if a part is left out or counted twice, if two that act in attention are accepted, or if
the combination accepts what one part refuses.
"""

import pytest
import torch

from ropewalk.encodings import StackShape, build, build_encoder_decoder
from ropewalk.encodings.rotary import RotarySite

SHAPE = StackShape(layers=2, heads=2, kv_heads=2, head_dim=4, width=8, causal=True)


def test_each_part_adds_and_the_one_that_rotates_rotates():
    both = build("sinusoidal + integer + rotary(theta=1e+2)", SHAPE)
    x, positions = torch.randn(2, 5, 8), torch.arange(5)
    added = build("integer", SHAPE).embed(build("sinusoidal", SHAPE).embed(x, positions), positions)
    assert torch.equal(both.embed(x, positions), added)
    site = both.for_layer(1)
    assert isinstance(site, RotarySite)
    assert site.rope.spec.theta == 100


def test_parameters_are_named_once():
    both = build("learned(max_positions=9)+t5", SHAPE)
    assert len(dict(both.named_parameters())) == 2
    assert both.max_positions == 9


def test_two_that_act_in_attention_are_refused():
    with pytest.raises(ValueError, match="at most one that acts in attention, got rotary and t5"):
        build("rotary+t5", SHAPE)


@pytest.mark.parametrize("name", ["sinusoidal+rotory", "rotary+", "+", "none++rotary"])
def test_a_wrong_or_missing_part_is_refused(name):
    with pytest.raises(ValueError, match="encoding must"):
        build(name, SHAPE)


def test_cross_attention_takes_the_part_that_asks_for_it():
    found = build_encoder_decoder("sinusoidal+rotary(cross=True)", SHAPE, SHAPE)
    assert isinstance(found.cross.for_layer(0), RotarySite)
    assert build_encoder_decoder("sinusoidal+rotary", SHAPE, SHAPE).cross is None
    with pytest.raises(ValueError, match="cross must be False for 'sinusoidal'"):
        build_encoder_decoder("sinusoidal(cross=True)+rotary", SHAPE, SHAPE)
