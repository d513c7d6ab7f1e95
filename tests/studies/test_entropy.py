"""Entropy of attention over a split.

These fail if padding or later tokens count as attended to, or if a query with a single key counts.
"""

import math

import pytest
import torch
from scripts import load_scripts

from ropewalk.lab.config_sources import make_config
from ropewalk.lab.data.batches import EncodedSplit
from ropewalk.lab.training.trainer import build_model

(entropy,) = load_scripts("studies", "entropy")
attention_entropy = entropy.attention_entropy
SIZES = {"width": 16, "heads": 2, "feed_forward": 32, "encoder_layers": 2, "decoder_layers": 1}


def model_of(encoding="rotary"):
    return build_model(make_config(settings=SIZES | {"device": "cpu"}), encoding, 1, 20)


def split_of(lengths):
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(4, 20, (n,), generator=generator).tolist() for n in lengths]
    return EncodedSplit(rows, rows[::-1])


class TestEntropy:
    def test_even_attention_has_all_there_is(self):
        """Fails if padding or later keys are counted among the keys that a query sees."""
        model = model_of()
        for layer in (*model.encoder, *model.decoder):
            for part in (layer.attention, getattr(layer, "cross", layer.attention)):
                torch.nn.init.zeros_(part.query.weight)
                torch.nn.init.zeros_(part.query.bias)
        split = split_of([3, 7, 5])
        found = attention_entropy(model, split)
        for layers in found.values():
            assert all(layer.share == pytest.approx(1, abs=1e-6) for layer in layers)
        read = [len(row) + 1 for row in split.source]
        even = sum(n * math.log2(n) for n in read) / sum(read)
        assert found["encoder"][0].bits == pytest.approx(even, abs=1e-6)
        steps = [n for row in split.target for n in range(2, len(row) + 2)]
        back = sum(map(math.log2, steps)) / len(steps)
        assert found["decoder"][0].bits == pytest.approx(back, abs=1e-6)

    def test_batches_change_nothing(self):
        """Fails if a sentence's entropy depends on the other sentences of its batch."""
        model, split = model_of(), split_of([2, 9, 4, 6])
        whole = attention_entropy(model, split)
        alone = attention_entropy(model, split, tokens=1)
        assert [len(whole[kind]) for kind in whole] == [2, 1, 1]
        for kind, layers in whole.items():
            for a, b in zip(layers, alone[kind], strict=True):
                assert a.bits == pytest.approx(b.bits, abs=1e-5)
                assert 0 < a.share < 1
