"""The ropes of diffusers' models, against the code of every class that has one."""

import json
import random

import pytest
import torch
from config_mutations import NONSENSE, PLAUSIBLE
from diffusers_configs import smallest
from hypothesis import given
from hypothesis import strategies as st

from ropewalk import (
    LearnedRotaryEmbedding,
    ModelSpec,
    RotaryEmbedding,
    RotarySpec,
    axes,
    positions,
)
from ropewalk.rotary.config.diffusers_types import MODELS, UNSTATED, Key

FLUX = {"_class_name": "FluxTransformer2DModel", "attention_head_dim": 128, "num_layers": 2}
FLUX |= {"num_single_layers": 3}
WAN = {"_class_name": "WanTransformer3DModel", "attention_head_dim": 128, "num_layers": 2}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is deprecated.*:FutureWarning")  # of diffusers' own imports
def test_every_class_rotates_as_its_spec_says():
    """Fails for a class that no row covers, another division, theta, order, pairing or position."""
    pytest.importorskip("diffusers", reason="needs diffusers: pip install -e '.[dev]'")
    import diffusers_walk
    from diffusers_rows import ROWS

    known = {*MODELS, *UNSTATED, *diffusers_walk.WITHOUT}
    assert set(diffusers_walk.classes()) <= known
    assert {name for row in ROWS for name in row.classes.split()} == set(MODELS)
    differ = [(f.name, f.row.stack, f) for f in diffusers_walk.walk() if not f.equal]
    assert not differ


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:In CPU autocast:UserWarning")  # of its own code
def test_mochi_is_a_learned_rope():
    """Fails if frequencies per head, or sums over axes, are not those of its code."""
    own = pytest.importorskip("diffusers.models.transformers.transformer_mochi").MochiRoPE()
    frequencies = torch.randn(3, 2, 8)  # (A, H, R/2)
    rope = LearnedRotaryEmbedding(RotarySpec(16, axes=axes.axial((3, 3, 2))), heads=2)
    rope.load_state_dict({"frequencies": frequencies})
    at = own._get_positions(2, 3, 4, dtype=torch.float32).T
    theirs = own(frequencies, 2, 3, 4, dtype=torch.float32)
    for ours, table in zip(rope.tables(at), theirs, strict=True):
        assert (ours[0].transpose(0, 1) - table).abs().max() < 1e-4  # of angles up to 300


@pytest.mark.slow
def test_ernie_image_does_not_rotate():
    """Fails once its code keeps norms, and then a spec may state it."""
    pytest.importorskip("diffusers")
    from diffusers_rows import code

    own = code("~ernie_image:ErnieImageSingleStreamAttnProcessor.__call__:apply_rotary_emb")
    angles = code("~ernie_image:ErnieImageEmbedND3")(128, 256, (32, 48, 48))
    x = torch.randn(1, 9, 2, 128)
    turned = own(x, angles(positions.video(1, 3, 3).T[None]))
    assert not torch.isclose(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-2)[:, 1:].all(-1).any()


def test_blocks_are_stacks():
    model = ModelSpec.from_config(FLUX)
    assert {name: len(layers) for name, layers in model.stacks.items()} == {
        "transformer_blocks": 2,
        "single_transformer_blocks": 3,
    }
    spec = RotarySpec(128, pairing="interleaved", axes=axes.axial((8, 28, 28)))
    assert {layer.rope for layers in model.stacks.values() for layer in layers} == {spec}
    assert model.main_stack == "transformer_blocks"
    assert model.layers == model.stacks["transformer_blocks"]
    assert RotaryEmbedding.from_config(FLUX, stack="single_transformer_blocks").spec == spec
    assert ModelSpec.from_config(WAN).layer(1, "cross_attention").rope is None


def test_origins_name_the_keys():
    origins = ModelSpec.from_config({**FLUX, "axes_dims_rope": [64, 32, 32]}).layer(0).origins
    assert origins["rotary_dim"] == "axes_dims_rope"
    assert origins["pairing"] == "_class_name"
    assert origins["theta"] == "default of the model's class"


COGVIDEO = {"_class_name": "CogVideoXTransformer3DModel", "attention_head_dim": 64, "num_layers": 1}
LTX2 = {"_class_name": "LTX2VideoTransformer3DModel", "num_layers": 1, "num_attention_heads": 4,
        "attention_head_dim": 8, "audio_num_attention_heads": 2,
        "audio_attention_head_dim": 8}  # fmt: skip


def test_a_switch_turns_the_rope_off():
    assert ModelSpec.from_config(COGVIDEO).layer(0).rope is None
    on = {**COGVIDEO, "use_rotary_positional_embeddings": True}
    assert ModelSpec.from_config(on).layer(0).rope.axes == axes.axial((8, 12, 12))


def test_the_pairs_of_each_head_in_ltx2():
    """32 dimensions have 5 pairs for each axis, and one that does not rotate, in the first head."""
    split = ModelSpec.from_config({**LTX2, "rope_type": "split"}).layer(0).rope
    assert split.blocks == (8,) * 4
    assert split.axes == axes.geometric(5, 3, idle=1)
    assert split.inverse_frequencies()[0] == 0
    assert split.wavelengths()[0] == torch.inf
    q = torch.randn(1, 1, 7, 32)
    turned = RotaryEmbedding(split).rotate(q, torch.linspace(-1, 1, 7).expand(3, -1))
    assert torch.equal(turned[..., [0, 4]], q[..., [0, 4]])
    assert not torch.isclose(turned, q).all(-2)[..., 5:8].any()


PIPELINE = {"_class_name": "FluxPipeline", "_diffusers_version": "0.42.1",
            "transformer": ["diffusers", "FluxTransformer2DModel"],
            "vae": ["diffusers", "AutoencoderKL"]}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (PIPELINE, "got the index of a pipeline, 'FluxPipeline'; the folder with a rope is transf"),
        ({**FLUX, "rope_theta": 500.0}, "rope_theta must be absent for FluxTransformer2DModel"),
        ({**FLUX, "axes_dims_rope": [16, 56, 58]}, "axes_dims_rope must divide the 128 dimensions"),
        ({**FLUX, "axes_dims_rope": [15, 57, 56]}, "axes_dims_rope must divide the 128 dimensions"),
        ({**FLUX, "axes_dims_rope": 3}, "axes_dims_rope must be a list, got 3"),
        ({**FLUX, "num_layers": -1}, "num_layers must be an integer above 0, got -1"),
        ({**FLUX, "num_layers": 10**9}, "num_layers must be at most 10,000"),
        ({"_class_name": "FluxTransformer2DModle"}, r"did you mean 'FluxTransformer2DModel'\?"),
        ({"_class_name": "FluxTransformer2DModel"}, "num_layers must be given"),
        ({"_class_name": 3}, "_class_name must be a class of diffusers"),
        ({"_class_name": "MochiTransformer3DModel"}, "LearnedRotaryEmbedding"),
        ({"_class_name": "ErnieImageTransformer2DModel"}, "it is not a rotation"),
        ({**LTX2, "rope_type": "both"}, 'rope_type must be "interleaved" or "split"'),
        ({"_class_name": "CosmosTransformer3DModel", "attention_head_dim": 128, "num_layers": 1,
          "rope_scale": [2.0, 0, 1.0]}, "rope_scale must give a scaling rule"),
    ],
)  # fmt: skip
def test_bad_input(config, says):
    with pytest.raises(ValueError, match=says) as error:
        ModelSpec.from_config(config)
    assert "\n" not in str(error.value)


@given(st.sampled_from(sorted(MODELS)), st.integers(0, 2**32), st.integers(1, 2))
def test_damaged_configs(name, seed, changes):
    """Fails for an error of another type, one of several lines, and, by its time, endless work."""
    rng, config = random.Random(seed), smallest(name)
    ropes = [rope for _, rope, _ in MODELS[name].values() if rope is not None]
    keys = [key for rope in ropes for key in (rope.dims, rope.rotary, rope.theta, *rope.rule_keys)]
    names = [key.name.partition("|")[0] for key in keys if isinstance(key, Key)]
    for _ in range(changes):
        config[rng.choice([*config, *names])] = rng.choice((*NONSENSE, *PLAUSIBLE))(rng)
    said, stacks = "", {}
    try:
        stacks = ModelSpec.from_config(config).stacks
    except ValueError as error:
        said = str(error)
    assert len(said) < 1_500
    assert "\n" not in said
    for rope in (layers[0].rope for layers in stacks.values()):
        if rope is not None:
            assert rope.inverse_frequencies(9 if rope.needs_length else None).isfinite().all()


def test_a_folder_of_a_pipeline_names_the_folder(tmp_path):
    (tmp_path / "model_index.json").write_text(json.dumps(PIPELINE), "utf-8")
    with pytest.raises(ValueError, match="the folder with a rope is transformer"):
        ModelSpec.from_config(tmp_path)
    (tmp_path / "transformer").mkdir()
    (tmp_path / "transformer" / "config.json").write_text(json.dumps(FLUX), "utf-8")
    assert ModelSpec.from_config(tmp_path / "transformer") == ModelSpec.from_config(FLUX)


def test_positions_on_the_wrong_number_of_axes():
    rope = RotaryEmbedding.from_config(WAN)
    with pytest.raises(ValueError, match="positions must have a first axis of size 3"):
        rope.rotate(torch.ones(1, 1, 4, 128), positions.grid(2, 2))
