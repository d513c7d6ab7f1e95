"""Tables of a rope, and what applies them: every field of the spec counts, in one call.

These fail when a field that says which dimensions rotate is passed over, when tensors that share
tables take a call each, when a copy carries rows along, or when tensors and tables that do not
match are rotated all the same.
"""

import copy
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk import RotarySpec, rotate, scaling
from ropewalk.rotary.kernels import operator
from ropewalk.rotary.tables import RotaryTables, apply_tables

SPECS = {
    "whole": RotarySpec(12),
    "interleaved": RotarySpec(12, pairing="interleaved"),
    "part": RotarySpec(12, rotary_dim=6),
    "start": RotarySpec(12, rotary_dim=6, start=3),
    "written elsewhere": RotarySpec(12, pairing="interleaved", write_pairing="half"),
    "blocks": RotarySpec(12, blocks=(8, 4)),
    "blocks behind others": RotarySpec(14, rotary_dim=12, start=2, blocks=(4, 8)),
    "reverse": RotarySpec(12, reverse=True),
    "amplitude": RotarySpec(12, amplitude=1.5),
}
DYNAMIC = RotarySpec(8, scaling=scaling.DynamicNTK(2.0, 16))


def by_blocks(spec: RotarySpec, x, cos, sin, adjoint=False):
    """Each block of pairs rotated alone by `rotate`, from the spec's fields."""
    start, first = spec.start, 0
    for size in spec.blocks or (spec.rotary_dim,):
        part = slice(first, first + size // 2)
        x = rotate(
            x, cos[..., part], sin[..., part], pairing=spec.pairing,
            write_pairing=spec.write_pairing, start=start, adjoint=adjoint,
        )  # fmt: skip
        start, first = start + size, first + size // 2
    return x


@pytest.mark.parametrize("name", SPECS)
@given(st.integers(0, 2**31 - 9), st.booleans(), st.sampled_from([-2, -3]))
@settings(max_examples=10)
def test_tensors_rotate_as_the_spec_says(name, first, adjoint, seq_dim):
    spec = SPECS[name]
    tables = RotaryTables(spec).at(torch.arange(first, first + 5))
    q, k = torch.randn(2, 4, 5, spec.head_dim), torch.randn(2, 2, 5, spec.head_dim)
    expected = [by_blocks(spec, x, *tables, adjoint) for x in (q, k)]
    if seq_dim == -3:
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    found = apply_tables(spec, tables, q, k, seq_dim=seq_dim, adjoint=adjoint)
    for x, y in zip(found, expected, strict=True):
        assert torch.equal(x if seq_dim == -2 else x.transpose(1, 2), y)


@pytest.mark.parametrize("name", SPECS)
def test_tensors_that_share_tables_share_a_call(name, monkeypatch):
    spec, calls, dispatch = SPECS[name], [], operator.dispatch

    def counted(xs, *arguments):
        calls.append(len(xs))
        return dispatch(xs, *arguments)

    monkeypatch.setattr(operator, "dispatch", counted)
    tables = RotaryTables(spec).at(torch.arange(5))
    xs = [torch.randn(1, heads, 5, spec.head_dim) for heads in (4, 2, 1)]
    assert len(apply_tables(spec, tables, *xs)) == 3
    assert calls == [3] * len(spec.blocks or (1,))


@pytest.mark.parametrize(
    ("x", "error", "said"),
    [
        (torch.randn(1, 2, 5, 10), ValueError, "x's last axis must be head_dim=12, got shape (1"),
        (torch.randn(1, 2, 4, 12), ValueError, "cos and sin must have a row for each position of"),
        (torch.ones(1, 2, 5, 12).long(), TypeError, "x must have a floating point dtype, got"),
    ],
)
def test_what_does_not_match_is_named(x, error, said):
    tables = RotaryTables(SPECS["whole"]).at(torch.arange(5))
    with pytest.raises(error) as caught:
        apply_tables(SPECS["whole"], tables, torch.randn(1, 1, 5, 12), x)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("spec", [*SPECS.values(), DYNAMIC], ids=str)
def test_contiguous_positions_have_the_rows_of_given_ones(spec):
    tables, length = RotaryTables(spec), 2**31 if spec.needs_length else None
    x = torch.randn(1, 1, 5, spec.head_dim)
    for offset in (0, 3, 2**14 - 2, 2**31 - 9, -4):
        found = tables.for_tensor(x, None, offset, length)
        expected = tables.at(torch.arange(offset, offset + 5), length)
        for table, other in zip(found, expected, strict=True):
            assert torch.equal(table, other)


def test_copies_leave_the_rows_behind():
    tables = RotaryTables(SPECS["whole"])
    assert tables.cached_rows(None) is None
    tables.for_tensor(torch.randn(1, 1, 5, 12), None)
    assert len(tables.cached_rows(None)[0]) == 8
    for copied in (copy.deepcopy(tables), pickle.loads(pickle.dumps(tables))):
        assert copied.cached_rows(None) is None
        assert torch.equal(copied.at(torch.arange(5))[0], tables.at(torch.arange(5))[0])
