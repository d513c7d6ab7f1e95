"""Mistakes that were reported in public threads, planted in small code of our own.

Each test is named by its thread. It fails if `verify` does not name that mistake.
"""

import torch
from ropes_of_others import first, half, inverse, rotate_half
from torch import nn

from ropewalk import ModelSpec, tools

LLAMA = {"model_type": "llama", "head_dim": 128, "num_hidden_layers": 2, "rope_theta": 10_000.0}


def faults(target, like=None, **options):
    return tools.verify(target, like=like, **options).faults


def test_mlx_vlm_2323_pairs_of_another_layout():
    """A model of interleaved pairs is served with halves."""
    config = {"model_type": "glm4", "head_dim": 128, "num_hidden_layers": 1}
    config |= {"partial_rotary_factor": 0.5, "rope_theta": 10_000.0}

    assert faults(lambda x, positions: first(x, 64, positions), config) == ("pairing",)


def test_mlx_vlm_1478_yarn_is_dropped_under_m_rope():
    config = {"model_type": "qwen2_vl", "hidden_size": 256, "num_attention_heads": 2}
    config |= {"num_hidden_layers": 1, "rope_theta": 10_000.0, "vision_config": {}}
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
    scaling |= {"mrope_section": [16, 24, 24]}
    config |= {"rope_scaling": scaling, "max_position_embeddings": 131_072}
    model = ModelSpec.from_config(config)
    assert set(faults(half, model)) == {"rule-ignored", "amplitude"}


def test_cascadia_69_tables_agree_and_applied_dimensions_do_not():
    """Of 128 dimensions, 16 are as in the reference; cos and sin are equal everywhere."""

    def port(x, positions):
        angles = (positions[..., None].float() * inverse(128)).repeat(1, 2)
        turned = torch.cat([rotate_half(block) for block in x.split(16, -1)], -1)
        return x * angles.cos() + turned * angles.sin()

    assert {"pairing", "not-a-rotation"} & set(faults(port, LLAMA))


def test_transformers_44873_a_delta_of_the_first_call_stays():
    class Deltas(nn.Module):
        def __init__(self):
            super().__init__()
            self.delta = None

        def forward(self, x, positions):
            if self.delta is None:
                self.delta = int(positions[0])
            return half(x, positions - int(positions[0]) + self.delta)

    port = Deltas()
    assert faults(port) == ("stale-table",)
    assert port.delta is None  # the user's module was never called


def test_transformers_43952_packed_documents_get_one_run_of_positions():
    assert "positions-ignored" in faults(lambda x, m: half(x, m[0] + torch.arange(len(m))))


def test_left_padding_takes_the_positions_of_the_first_row():
    assert faults(lambda q, k, ids: (half(q, ids[0]), half(k, ids[0]))) == ("batch",)


def test_pegainfer_220_a_table_that_is_shorter_than_the_context():
    like = {**LLAMA, "max_position_embeddings": 32_768}
    report = tools.verify(lambda x, m: half(x, m.clamp(max=4_095)), like=like)
    assert report.faults == ("table-too-short",)
    (check,) = report.with_verdict("fault")
    assert "all positions from 4,096 on rotate like position 4,095" in check.says
    assert "promises 32,768" in check.says
