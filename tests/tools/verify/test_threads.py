"""Mistakes that were reported in public threads, planted in small code of our own.

Each test is named by its thread. It fails if `verify` does not name that mistake.
"""

import torch
from ropes_of_others import half, inverse, rotate_half
from torch import nn

from ropewalk import tools

LLAMA = {"model_type": "llama", "head_dim": 128, "num_hidden_layers": 2, "rope_theta": 10_000.0}


def faults(target, like=None, **options):
    return tools.verify(target, like=like, **options).faults


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


def test_left_padding_takes_the_positions_of_the_first_row():
    assert faults(lambda q, k, ids: (half(q, ids[0]), half(k, ids[0]))) == ("batch",)
