"""A model has its state again after it was verified, and a length that the user sets is kept.

These fail when a mode, a buffer or a length of an earlier call differs afterwards.
"""

import pytest
import torch

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
from ports import Block, Port
from tiny_models import tiny_model
from torch import nn

from ropewalk import LayerSpec, ModelSpec, RotarySpec
from ropewalk.tools.live_model import preserved
from ropewalk.tools.verify.verify_model import verify_model

DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}


def test_each_module_has_its_mode_again():
    model = tiny_model("llama").train()
    model.model.layers[1].eval()
    before = [module.training for module in model.modules()]
    verify_model(model)
    assert [module.training for module in model.modules()] == before
    assert not all(before)


def test_frequencies_of_longer_calls_are_not_kept():
    model = tiny_model("llama", rope_parameters=DYNAMIC, max_position_embeddings=64)
    rope = next(module for module in model.modules() if hasattr(module, "inv_freq"))
    names, buffer = set(vars(rope)), rope.inv_freq
    before, length = buffer.clone(), rope.max_seq_len_cached
    verify_model(model)
    assert rope.max_seq_len_cached == length
    assert rope.inv_freq is buffer
    assert torch.equal(rope.inv_freq, before)
    assert set(vars(rope)) == names


def test_changes_in_place_are_undone():
    module = nn.Linear(2, 2)
    module.register_buffer("table", torch.ones(3))
    module.cache, module.seen = torch.zeros(2), [1]
    with preserved(module):
        module.table.mul_(2)
        module.cache = module.cache.add_(1)
        module.seen.append(2)
        module.register_buffer("more", torch.ones(1))
    assert module.table.tolist() == [1, 1, 1]
    assert (module.cache.tolist(), module.seen) == ([0, 0], [1])
    assert not hasattr(module, "more")


def lengths_run(model, monkeypatch):
    lengths = []
    forward = Port.forward

    def watched(self, tokens, input_pos):
        lengths.append(int(input_pos.max()) + 1)
        return forward(self, tokens, input_pos)

    monkeypatch.setattr(Port, "forward", watched)
    return lengths


def test_a_length_is_not_replaced_by_a_longer_one(monkeypatch):
    config = tiny_model("llama", num_hidden_layers=2, rope_parameters=DYNAMIC).config.to_dict()
    config["max_position_embeddings"] = 512
    model = Port()
    lengths = lengths_run(model, monkeypatch)
    verify_model(model, config, length=128)
    assert set(lengths) == {3, 128}


class Counted(nn.Module):
    """A model that takes no positions."""

    def __init__(self):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(8, 64), nn.ModuleList([Block(1, 1.0)])

    def forward(self, tokens):
        LONGEST.append(tokens.shape[1])
        return self.blocks[0](self.embed(tokens), torch.arange(tokens.shape[1])[None])


LONGEST = []


def test_lengths_that_cannot_be_served_are_refused():
    spec = ModelSpec({"text": (LayerSpec(RotarySpec(16)),)})
    two = ModelSpec({"text": (LayerSpec(RotarySpec(16)),) * 2})
    with pytest.raises(ValueError, match="length must be at least 64, so that slow pairs can be"):
        verify_model(Port(), two, length=63)
    with pytest.raises(ValueError, match="length must be at most 65,537, got 65538"):
        verify_model(Port(), two, length=65_538)
    with pytest.raises(ValueError, match="at most 4,096 for a model that takes no positions"):
        verify_model(Counted(), spec, length=4_097)
    assert verify_model(Counted(), spec, length=300).right
    assert LONGEST[-1] == 300
