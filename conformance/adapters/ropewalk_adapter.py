"""ropewalk itself, all levels."""

import torch
from offered import Result, Vector, heads, joined

from ropewalk import ModelSpec, RotaryEmbedding, RotarySpec
from ropewalk.tools.catalogue.entries import rotary_spec


def spec_of(vector: Vector) -> RotarySpec:
    """Return the rope of a vector, of a model by its config.json."""
    if vector["config"] is None:
        return rotary_spec(vector["rope"])
    rope = ModelSpec.from_config(vector["config"]).layer(vector["layer"], "text").rope
    assert rope is not None
    return rope


def frequencies(vector: Vector) -> Result:
    """Level 1."""
    spec, length = spec_of(vector), vector["length"]
    return spec.inverse_frequencies(length), spec.amplitude_at(length)


def tables(vector: Vector) -> Result:
    """Level 2."""
    rope, at = RotaryEmbedding(spec_of(vector)), torch.tensor(vector["positions"])
    return rope.tables(at, length=vector["length"])


def rotate(vector: Vector) -> Result:
    """Level 3."""
    rope, at = RotaryEmbedding(spec_of(vector)), torch.tensor(vector["positions"])
    x, length = heads(vector), vector["length"]
    if vector["cached"] is not None:
        old = RotaryEmbedding(rotary_spec(vector["cached"]["rope"]))
        before = torch.tensor(vector["cached"]["positions"])
        x = [old.unrotate(each, before, length=length) for each in x]
    return joined(vector, [rope.rotate(each, at, length=length) for each in x])
