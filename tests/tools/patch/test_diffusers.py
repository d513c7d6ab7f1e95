"""`patch` in small image and video models of diffusers, which have tables of their own.

These fail when an output moves by more than rounding, when a processor's rotation is not taken, or
when undoing leaves a trace.
"""

import copy
import pickle
from contextlib import nullcontext
from unittest import mock

import pytest
import torch
from torch import nn

pytest.importorskip("diffusers", reason="pip install diffusers")
import diffusers

import ropewalk
from ropewalk.rotary.kernels import operator
from ropewalk.scaling import YaRN

TIME = torch.tensor([500])


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[1]))


# A class, its arguments, and the inputs of a step.
HEADS = {"num_attention_heads": 2, "attention_head_dim": 16}
CHANNELS = HEADS | {"in_channels": 4, "out_channels": 4, "num_layers": 2}
VIDEO = {"hidden_states": numbers(1, 4, 2, 8, 8), "encoder_hidden_states": numbers(1, 6, 16)}
BY_ANGLE = tuple(f(numbers(32, 8)).repeat_interleave(2, 1) for f in (torch.cos, torch.sin))
# fmt: off
CASES = {
    "FluxTransformer2DModel": (
        CHANNELS | {"num_layers": 1, "num_single_layers": 1, "joint_attention_dim": 32,
                    "pooled_projection_dim": 8, "axes_dims_rope": (4, 4, 8)},
        {"hidden_states": numbers(1, 16, 4), "encoder_hidden_states": numbers(1, 6, 32),
         "pooled_projections": numbers(1, 8), "timestep": TIME / 1_000,
         "img_ids": numbers(16, 3).round() * 9, "txt_ids": torch.zeros(6, 3)},
    ),
    "WanTransformer3DModel": (
        CHANNELS | {"text_dim": 16, "freq_dim": 16, "ffn_dim": 32, "rope_max_seq_len": 32},
        VIDEO | {"timestep": TIME},
    ),
    "QwenImageTransformer2DModel": (
        CHANNELS | {"in_channels": 16, "joint_attention_dim": 16, "axes_dims_rope": (4, 4, 8)},
        {"hidden_states": numbers(1, 16, 16), "encoder_hidden_states": numbers(1, 6, 16),
         "encoder_hidden_states_mask": torch.ones(1, 6).long(), "timestep": TIME / 1_000,
         "img_shapes": [(1, 4, 4)]},
    ),
    "HunyuanVideoTransformer3DModel": (
        CHANNELS | {"num_layers": 1, "num_single_layers": 1, "num_refiner_layers": 1,
                    "text_embed_dim": 16, "pooled_projection_dim": 8, "rope_axes_dim": (4, 4, 8)},
        VIDEO | {"encoder_attention_mask": torch.ones(1, 6), "pooled_projections": numbers(1, 8),
                 "timestep": TIME, "guidance": torch.tensor([1_000.0])},
    ),
    "LTXVideoTransformer3DModel": (
        CHANNELS | {"cross_attention_dim": 32, "caption_channels": 16},
        {"hidden_states": numbers(2, 32, 4), "encoder_hidden_states": numbers(2, 6, 16),
         "encoder_attention_mask": torch.ones(2, 6), "timestep": TIME.repeat(2),
         "num_frames": 2, "height": 4, "width": 4},
    ),
    "CogVideoXTransformer3DModel": (
        CHANNELS | {"time_embed_dim": 8, "text_embed_dim": 16, "max_text_seq_length": 6,
                    "use_rotary_positional_embeddings": True},
        {"hidden_states": numbers(1, 2, 4, 8, 8), "encoder_hidden_states": numbers(1, 6, 16),
         "timestep": TIME, "image_rotary_emb": BY_ANGLE},
    ),
    "Lumina2Transformer2DModel": (
        {"in_channels": 4, "hidden_size": 32, "num_layers": 2, "num_refiner_layers": 1,
         "num_attention_heads": 2, "num_kv_heads": 1, "multiple_of": 8, "cap_feat_dim": 16,
         "axes_dim_rope": (4, 4, 8), "axes_lens": (64, 64, 64)},
        {"hidden_states": numbers(2, 4, 8, 8), "encoder_hidden_states": numbers(2, 6, 16),
         "timestep": TIME.repeat(2) / 1_000, "encoder_attention_mask": torch.ones(2, 6).bool()},
    ),
    "ZImageTransformer2DModel": (
        {"in_channels": 4, "dim": 32, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 2,
         "n_kv_heads": 2, "cap_feat_dim": 16, "axes_dims": [4, 4, 8], "axes_lens": [64] * 3},
        {"x": [numbers(4, 1, 8, 8)], "t": TIME / 1_000, "cap_feats": [numbers(6, 16)]},
    ),
}
# fmt: on
COMPILED = ["FluxTransformer2DModel", "WanTransformer3DModel", "CogVideoXTransformer3DModel"]


def small(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = getattr(diffusers, name)(**CASES[name][0]).eval()
    with torch.no_grad():  # outputs of a new model are partly zero
        for parameter in model.parameters():
            parameter.normal_(std=0.2) if parameter.ndim > 1 else parameter.uniform_(0.5, 1.0)
    return model


def as_dtype(value: object, dtype: torch.dtype) -> object:
    if isinstance(value, list):
        return [as_dtype(each, dtype) for each in value]
    floats = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.to(dtype) if floats else value


def output(model: nn.Module, name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    inputs = {n: as_dtype(value, dtype) for n, value in CASES[name][1].items()}
    with torch.no_grad():
        result = model(**inputs, return_dict=False)[0]
    return torch.stack(result) if isinstance(result, list) else result


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_equal_and_undone(name):
    model = small(name)
    before = output(model, name)
    with ropewalk.patch(model) as patched:
        assert patched.taken
        assert not patched.tables
        assert not patched.left
        with mock.patch.object(operator, "dispatch", wraps=operator.dispatch) as dispatch:
            after = output(model, name)
        assert dispatch.call_count >= 4
        same = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)
    assert torch.equal(output(model, name), before)
    for other in same:
        assert torch.equal(output(other, name), after)
        with pytest.raises(ValueError, match="patched already"):
            ropewalk.patch(other)


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # under autocast
@pytest.mark.parametrize("name", CASES)
def test_half_precision(name):
    model = small(name)
    exact = output(model, name)
    for autocast in (True, False):
        dtype, errors = torch.float32 if autocast else torch.bfloat16, []
        for patched in (False, True):
            patch = ropewalk.patch(model.to(dtype)) if patched else nullcontext()
            with patch, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                errors.append((output(model.to(dtype), name, dtype) - exact).norm())
        assert errors[1] < 1.25 * errors[0]


def test_tables_that_are_no_rotation_are_left_to_the_model():
    name = "CogVideoXTransformer3DModel"
    model, inputs = small(name), CASES[name][1]
    with mock.patch.dict(inputs, image_rotary_emb=(numbers(32, 16), numbers(32, 16))):
        before = output(model, name)
        with ropewalk.patch(model):
            assert torch.equal(output(model, name), before)


def test_scaling_is_refused():
    with pytest.raises(ValueError, match="scaling must be left out for a model of diffusers"):
        ropewalk.patch(small("WanTransformer3DModel"), scaling=YaRN(2.0, 4_096))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize("name", COMPILED)
def test_compiles_in_one_graph(name):
    model = small(name)
    before = output(model, name)
    with ropewalk.patch(model):
        compiled = torch.compile(model, fullgraph=True)
        torch.testing.assert_close(output(compiled, name), before, rtol=1e-4, atol=1e-4)
