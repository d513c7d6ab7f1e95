"""What public reports of image and video models describe, which ropewalk must not do.

docs/image-and-video.md names the reports.
"""

import pytest
import torch
from diffusers_configs import smallest

from ropewalk import ModelSpec, RotaryEmbedding, positions
from ropewalk.rotary.config.diffusers_types import MODELS, Key

FLUX = {"_class_name": "FluxTransformer2DModel", "attention_head_dim": 128, "num_layers": 1}
FLUX |= {"num_single_layers": 0}
FAR = 65_536  # bfloat16 has one number for 512 positions there


def rope_and_picture(start=FAR):
    rope = RotaryEmbedding.from_config(FLUX)
    return rope, positions.video(1, 16, 16, start=(start, start, start))


def rotated(rope, at, dtype=torch.float32):
    q = torch.ones(1, 2, at.shape[-1], 128, dtype=dtype)
    return rope.rotate(q, at)


@pytest.mark.parametrize("convert", ["bfloat16", "half", "float"])
def test_a_cast_model_keeps_its_positions_apart(convert):
    """OneTrainer 1177; the complex buffer. Fails if a cast reaches frequencies or positions."""
    rope, at = rope_and_picture()
    before = rope.tables(at)
    cast = getattr(torch.nn.Sequential(rope), convert)()[0]
    after = cast.tables(at)
    assert all(map(torch.equal, before, after))
    assert not [*rope.buffers(), *rope.parameters()]
    turned = rotated(cast, at, torch.bfloat16)[0, 0]
    assert len(turned.unique(dim=0)) == at.shape[-1]


def test_autocast_does_not_round_positions():
    """diffusers 13920. Fails if an operation that autocast converts takes part."""
    rope, at = rope_and_picture()
    plain = rotated(rope, at)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(rotated(RotaryEmbedding(rope.spec), at), plain)


def test_theta_is_handed_on():
    """diffusers 10111. Fails for a class whose key of theta is not read."""
    for name, kinds in MODELS.items():
        keys = {rope.theta for _, rope, _ in kinds.values() if rope and isinstance(rope.theta, Key)}
        config = smallest(name) | {key.name: 777.0 for key in keys}
        stacks = ModelSpec.from_config(config).stacks
        ropes = [layers[0].rope for layers in stacks.values() if layers[0].rope]
        assert all((rope.theta == 777.0) == bool(keys) for rope in ropes), name


@pytest.mark.slow
def test_the_rope_is_one_graph():
    """diffusers 14821, vllm-omni 5808. Fails for a break, a complex number or float of a tensor."""
    rope, at = rope_and_picture()

    def step(q, at):
        tables = rope.tables(at)  # once, for all layers
        return [rope.rotate(q, at) for _ in range(2)], tables

    graphs = []

    def record(graph, _):
        graphs.append(graph)
        return graph.forward

    q = torch.ones(1, 2, at.shape[-1], 128)
    (turned, _), tables = torch.compile(step, fullgraph=True, backend=record)(q, at)
    assert torch.equal(turned, rotated(rope, at))
    made = [node.meta["example_value"] for node in graphs[0].graph.nodes if node.op != "output"]
    assert not any(isinstance(x, torch.Tensor) and x.is_complex() for x in made)
    assert all(map(torch.equal, tables, rope.tables(at)))


def test_ids_for_more_tokens_than_there_are():
    """diffusion-4k 17. Fails if positions of other tokens are cut off or broadcast."""
    rope, at = rope_and_picture()
    with pytest.raises(ValueError, match="positions"):
        rope.rotate(torch.ones(1, 2, 64, 128), at)


def test_without_float64_on_the_device():
    """diffusers 11643. Fails if tables of integer positions need float64 there."""
    rope, at = rope_and_picture(0)
    cos, sin = rope.tables(at)
    assert cos.dtype == sin.dtype == torch.float32
    units = at.movedim(0, -1)[:, list(rope.spec.axis_of_pair)] * torch.tensor(
        rope.spec.fixed_point_frequencies()
    )
    angles = (units >> 40).float() * (torch.pi / 2**23)  # 24 bits of a turn are enough for float32
    assert (angles.cos() - cos).abs().max() < 1e-6
