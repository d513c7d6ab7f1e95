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
from torch.utils._pytree import tree_map_only

pytest.importorskip("diffusers", reason="pip install diffusers")
import diffusers

import ropewalk
from ropewalk.rotary.kernels import operator
from ropewalk.scaling import YaRN
from ropewalk.tools.patch import own_tables


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + shape[1]))


DIMS = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "num_layers": 2}
AXES, POOLED = {"axes_dims_rope": (4, 4, 8)}, {"pooled_projection_dim": 8}
TEXT = {"encoder_hidden_states": numbers(1, 6, 16), "timestep": torch.tensor([0.5])}
VIDEO = TEXT | {"hidden_states": numbers(1, 4, 2, 8, 8)}
BY_ANGLE = tuple(f(numbers(32, 8)).repeat_interleave(2, 1) for f in (torch.cos, torch.sin))
# fmt: off
CASES = {  # classes, their arguments, and the inputs of a step
    "FluxTransformer2DModel": (
        DIMS | AXES | POOLED | {"num_single_layers": 1, "joint_attention_dim": 16},
        TEXT | {"hidden_states": numbers(1, 16, 4), "pooled_projections": numbers(1, 8),
                "img_ids": numbers(16, 3).round() * 9, "txt_ids": torch.zeros(6, 3)}),
    "WanTransformer3DModel": (DIMS | {"text_dim": 16, "freq_dim": 16, "ffn_dim": 32}, VIDEO),
    "QwenImageTransformer2DModel": (
        DIMS | AXES | {"out_channels": 1, "joint_attention_dim": 16},
        TEXT | {"hidden_states": numbers(1, 16, 4), "img_shapes": [(1, 4, 4)],
                "encoder_hidden_states_mask": torch.ones(1, 6).long()}),
    "HunyuanVideoTransformer3DModel": (
        DIMS | POOLED | {"num_single_layers": 1, "text_embed_dim": 16,
                "rope_axes_dim": (4, 4, 8)},
        VIDEO | {"encoder_attention_mask": torch.ones(1, 6), "pooled_projections": numbers(1, 8),
                 "guidance": torch.tensor([1_000.0])}),
    "LTXVideoTransformer3DModel": (
        DIMS | {"cross_attention_dim": 32, "caption_channels": 16},
        TEXT | {"hidden_states": numbers(1, 32, 4), "encoder_attention_mask": torch.ones(1, 6),
                "num_frames": 2, "height": 4, "width": 4}),
    "CogVideoXTransformer3DModel": (
        DIMS | {"time_embed_dim": 8, "text_embed_dim": 16, "max_text_seq_length": 6,
                "use_rotary_positional_embeddings": True},
        TEXT | {"hidden_states": numbers(1, 2, 4, 8, 8), "image_rotary_emb": BY_ANGLE}),
    "Lumina2Transformer2DModel": (
        {"in_channels": 4, "hidden_size": 32, "num_layers": 2, "num_attention_heads": 2,
         "num_kv_heads": 1, "cap_feat_dim": 16, "axes_dim_rope": (4, 4, 8), "axes_lens": [64] * 3},
        TEXT | {"hidden_states": numbers(1, 4, 8, 8),
                "encoder_attention_mask": torch.ones(1, 6).bool()}),
    "ZImageTransformer2DModel": (
        {"in_channels": 4, "dim": 32, "n_layers": 2, "n_heads": 2, "n_kv_heads": 2,
         "cap_feat_dim": 16, "axes_dims": [4, 4, 8], "axes_lens": [64] * 3},
        {"x": [numbers(4, 1, 8, 8)], "t": torch.ones(1) / 2, "cap_feats": [numbers(6, 16)]}),
}
# fmt: on
FLUX, WAN, QWEN, *_, COG, _, _ = CASES


def small(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = getattr(diffusers, name)(**CASES[name][0]).eval()
    with torch.no_grad():  # outputs of a new model are partly zero
        for parameter in model.parameters():
            parameter.normal_(std=0.2) if parameter.ndim > 1 else parameter.uniform_(0.5, 1.0)
    return model


def output(model: nn.Module, name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    inputs = tree_map_only(
        torch.Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, CASES[name][1]
    )
    result = model(**inputs, return_dict=False)[0]
    return torch.stack(result) if isinstance(result, list) else result


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_outputs_are_equal_and_undone(name):
    model = small(name)
    before = output(model, name)
    with ropewalk.patch(model) as patched:
        assert patched.taken
        assert not patched.tables
        assert not patched.left
        with (
            mock.patch.object(operator, "dispatch", wraps=operator.dispatch) as dispatch,
            mock.patch.object(own_tables, "_find", wraps=own_tables._find) as find,
        ):
            after = output(model, name)
        assert find.call_count < dispatch.call_count
        same = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)
    assert torch.equal(output(model, name), before)
    for other in same:
        assert torch.equal(output(other, name), after)
        with pytest.raises(ValueError, match="patched already"):
            ropewalk.patch(other)


@torch.no_grad()
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


@torch.no_grad()
def test_tables_that_are_no_rotation_are_left_to_the_model():
    model = small(COG)
    with mock.patch.dict(CASES[COG][1], image_rotary_emb=(numbers(32, 16), numbers(32, 16))):
        before = output(model, COG)
        with ropewalk.patch(model):
            assert torch.equal(output(model, COG), before)
    with pytest.raises(ValueError, match="scaling must be left out for a model of diffusers"):
        ropewalk.patch(model, scaling=YaRN(2.0, 4_096))


def test_gradients_after_inference_are_equal():
    model, gradients = small(QWEN), []  # it keeps its tables
    for patched in (False, True):
        with ropewalk.patch(model) if patched else nullcontext():
            with torch.inference_mode():
                output(model, QWEN)
            output(model, QWEN).square().sum().backward()
            gradients.append([p.grad for p in model.parameters() if p.grad is not None])
            model.zero_grad()
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-3)


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
@pytest.mark.parametrize(
    "name", [FLUX, *(pytest.param(name, marks=pytest.mark.longer) for name in (WAN, COG))]
)
def test_compiles_in_one_graph(name):
    model = small(name)
    before = output(model, name)
    with ropewalk.patch(model):
        compiled = torch.compile(model, fullgraph=True)
        torch.testing.assert_close(output(compiled, name), before, rtol=1e-4, atol=1e-4)
