"""What `measure` finds in functions that rotate.

These fail when a rotation is taken for another one, when a function that is no rotation is
accepted, or when the replacement returns something else than the function that it replaces.
"""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk import rotate
from ropewalk.tools.patch.rotation_functions import (
    TABLE_FORMS,
    as_model_has_them,
    measure,
    replacement,
)

PAIRINGS = ("half", "interleaved")


def rotating(form, pairing, write, sign=1.0, trailing=False):
    """A function as models have it, of tables in a form."""

    def once(table):
        if form == "interleaved":
            return table[..., ::2]
        return table if form == "once" else table[..., : table.shape[-1] // 2]

    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        cos, sin = once(cos), sign * once(sin)
        start = q.shape[-1] - 2 * cos.shape[-1] if trailing else 0
        seq_dim = -2 if unsqueeze_dim == 1 else -3
        fields = {"pairing": pairing, "write_pairing": write, "start": start, "seq_dim": seq_dim}
        return rotate(q, cos, sin, **fields), rotate(k, cos, sin, **fields)

    return apply_rotary_pos_emb


@given(
    st.sampled_from(["half", "interleaved", "once"]),
    st.sampled_from(PAIRINGS),
    st.sampled_from(PAIRINGS),
    st.sampled_from([1.0, -1.0]),
    st.booleans(),
)
def test_a_rotation_is_recognized(form, read, write, sign, trailing):
    function = rotating(form, read, write, sign, trailing)
    found = measure(function, form)
    assert found is not None
    assert (found.pairing, found.write_pairing) == (read, write)
    assert (found.reverse, found.trailing) == (sign < 0, trailing)
    q, k = torch.randn(2, 4, 5, 12), torch.randn(2, 1, 5, 12)
    angles = torch.rand(2, 5, 4) * 9
    given = as_model_has_them((angles.cos(), angles.sin()), form)
    expected = function(q, k, *given)
    swapped = replacement(found)(*(x.transpose(1, 2) for x in (q, k)), *given, unsqueeze_dim=2)
    for made in (replacement(found)(q, k, *given), [x.transpose(1, 2) for x in swapped]):
        for mine, theirs in zip(made, expected, strict=True):
            assert torch.allclose(mine, theirs, atol=1e-6)


def test_tables_in_another_form_are_not_this_rotation():
    for form, other in itertools.permutations(["half", "interleaved", "once"], 2):
        found = measure(rotating(form, "half", "half"), other)
        assert found is None


half = rotating("half", "half", "half")
NO_ROTATION = [
    lambda q, k, cos, sin, unsqueeze_dim=1: [1.001 * x for x in half(q, k, cos, sin)],
    lambda q, k, cos, sin, unsqueeze_dim=1: (half(q, k, cos, sin)[0], k),
    lambda q, k, cos, sin, unsqueeze_dim=1: 1 / 0,
    lambda q, k, cos, sin, extra, unsqueeze_dim=1: half(q, k, cos, sin),
    lambda q, k, cos, sin, unsqueeze_dim=1: (q + cos[:, None], k + cos[:, None]),
    lambda q, k, cos, sin, unsqueeze_dim=1: (q[..., :-1], k[..., :-1]),
]


@pytest.mark.parametrize("function", NO_ROTATION)
@pytest.mark.parametrize("form", TABLE_FORMS)
def test_what_is_no_rotation(function, form):
    assert measure(function, form) is None


def test_half_precision_tables_are_widened_where_they_are_buffers():
    def apply_rotary_pos_emb(tensor, sin, cos):
        cos, sin = (t[:, :, None].repeat_interleave(2, -1) for t in (cos, sin))
        turned = torch.stack((-tensor[..., 1::2], tensor[..., ::2]), dim=-1).flatten(-2)
        return tensor * cos + turned * sin

    found = measure(apply_rotary_pos_emb, "once")
    assert found is not None
    assert (found.pairing, found.seq_dim) == ("interleaved", -3)
    angles = torch.rand(1, 5, 4)
    x = torch.randn(1, 5, 2, 8, dtype=torch.bfloat16)
    out = replacement(found)(x, angles.sin().bfloat16(), angles.cos().bfloat16())
    assert out.dtype == torch.bfloat16


def test_an_unusual_axis_of_heads_is_refused():
    found = measure(half, "half")
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="unsqueeze_dim must be 1 or 2"):
        replacement(found)(x, x, torch.ones(1, 3, 4), torch.zeros(1, 3, 4), unsqueeze_dim=0)


def test_another_default_dtype_does_not_matter():
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert measure(half, "half") is not None
    finally:
        torch.set_default_dtype(torch.float32)
