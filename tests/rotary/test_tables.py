"""Tables of a rope, and what applies them: every field of the spec counts, in one call.

These fail when a field that says which dimensions rotate is passed over, when tensors that share
tables take a call each, when a copy carries rows along, or when tensors and tables that do not
match are rotated all the same.
"""

import copy
import pickle
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropewalk import RotarySpec, axes, rotate, scaling
from ropewalk.rotary.kernels import operator
from ropewalk.rotary.tables import RotaryTables, apply_tables, at_lengths, constants

SPECS = {
    "whole": RotarySpec(12),
    "interleaved": RotarySpec(12, pairing="interleaved"),
    "part": RotarySpec(12, rotary_dim=6),
    "start": RotarySpec(12, rotary_dim=6, start=3),
    "written elsewhere": RotarySpec(12, pairing="interleaved", write_pairing="half"),
    "blocks": RotarySpec(12, blocks=(8, 4)),
    "three blocks": RotarySpec(12, blocks=(4, 4, 4)),
    "blocks behind others": RotarySpec(14, rotary_dim=12, start=2, blocks=(4, 8)),
    "reverse": RotarySpec(12, reverse=True),
    "amplitude": RotarySpec(12, amplitude=1.5),
}


@dataclass(frozen=True, repr=False)
class Steps(scaling.Scaling):
    """A user's own rule with three sets of frequencies."""

    needs_length = True

    def length_key(self, length):
        return (length - 1) // 16 * 16 + 1 if length <= 32 else 33

    def possible_lengths(self):
        return 1, 17, 33

    def frequencies(self, rope, length):
        return [f / self.length_key(length) for f in rope.frequencies()]


DYNAMIC = RotarySpec(8, scaling=scaling.DynamicNTK(2.0, 16))
LONGROPE = RotarySpec(8, scaling=scaling.LongRoPE((1.0,) * 4, (1.0, 2.0, 4.0, 8.0), 16, factor=4.0))
CONTINUOUS = RotarySpec(8, continuous=True, scaling=LONGROPE.scaling)
STEPS = RotarySpec(8, scaling=Steps())
DEPENDING = [DYNAMIC, LONGROPE, CONTINUOUS, STEPS]
CPU = torch.device("cpu")


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


@pytest.mark.parametrize("spec", DEPENDING, ids=str)
@given(length=st.integers(1, 64))
def test_what_a_compiler_traces_is_what_is_computed(spec, length):
    """The traced path is plain code too, and is called here without a compiler."""
    tables, (per_pair, amplitude) = RotaryTables(spec), constants(spec, length)
    traced, factor = tables._traced(length, CPU)
    assert traced.dtype == (torch.float64 if spec.continuous else torch.int64)
    assert (traced.tolist(), factor.item()) == (list(per_pair), amplitude)
    assert factor.dtype == torch.float64
    name, of_batch = tables._registered_name, torch.tensor([length, 1, 64])
    expected = at_lengths(of_batch, spec, name)
    given_to = (name, spec.pairs, not spec.continuous)
    for found, other in zip(
        torch.ops.ropewalk.at_lengths(of_batch, *given_to), expected, strict=True
    ):
        assert torch.equal(found, other)
    shapes = torch.ops.ropewalk.at_lengths(of_batch.to("meta"), *given_to)
    for found, other in zip(shapes, expected, strict=True):
        assert found.is_meta
        assert (found.shape, found.dtype) == (other.shape, other.dtype)


@pytest.mark.parametrize("spec", [*SPECS.values(), *DEPENDING], ids=str)
def test_the_code_that_a_compiler_traces_makes_the_same_tables(spec, monkeypatch):
    """Run without a compiler; that it can be traced is tested where models are compiled."""
    lengths = [20, 9, torch.tensor([20, 9])] if spec.needs_length else [None]
    x = torch.randn(2, 1, 5, spec.head_dim)
    expected = [RotaryTables(spec).for_tensor(x, None, 3, length) for length in lengths]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    tables = RotaryTables(spec)
    for length, theirs in zip(lengths, expected, strict=True):
        ours = tables.for_tensor(x, None, 3, length)
        for table, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(table, other, rtol=0, atol=1e-6)
    assert not tables._rows  # they would become constants of the graph
    if spec.needs_length:
        with pytest.raises(ValueError, match="length must be at least 1, got 0"):
            tables.for_tensor(x, None, 3, 0)


def test_a_rope_of_another_process_is_made_there_too():
    with pytest.raises(ValueError, match="rope must be one that this process has made, got none"):
        torch.ops.ropewalk.at_lengths(torch.tensor([3]), "unknown", 4, True)
    tables = pickle.loads(pickle.dumps(RotaryTables(DYNAMIC)))
    torch.ops.ropewalk.at_lengths(torch.tensor([3]), tables._registered_name, 4, True)


@pytest.mark.parametrize(
    "spec", [*SPECS.values(), *DEPENDING, RotarySpec(8, axes=axes.axial((2, 2)))], ids=str
)
def test_tables_are_where_their_tensor_is(spec):
    """Fails if something is made on torch's default device instead."""
    length = 20 if spec.needs_length else None
    lengths = None if length is None else torch.tensor([20, 9])
    x = torch.randn(2, 1, 5, spec.head_dim)
    where = torch.arange(5).expand(*[2] * (spec.axis_count > 1), 5).clone()
    calls = [(x, None, 3, length), (x, where, 0, length), (x, None, 0, lengths)]
    expected = [RotaryTables(spec).for_tensor(*call) for call in calls]
    factor = RotaryTables(spec).amplitude(length, CPU), RotaryTables(spec).amplitude(lengths, CPU)
    with torch.device("meta"):
        tables = RotaryTables(spec)
        found = [tables.for_tensor(*call) for call in calls]
        assert tables.amplitude(length, CPU) == factor[0]
        traced = length is not None and tables._traced(length, CPU)
        assert not traced or not (traced[0].is_meta or traced[1].is_meta)
        assert torch.equal(
            *(torch.as_tensor(f, device=CPU) for f in (tables.amplitude(lengths, CPU), factor[1]))
        )
    for ours, theirs in zip(found, expected, strict=True):
        assert all(map(torch.equal, ours, theirs))
    there = tables.for_tensor(x.to("meta"), None, 3, length)
    assert all(table.is_meta for table in there)


def test_rows_of_two_devices_are_kept_apart():
    tables, x = RotaryTables(LONGROPE), torch.randn(1, 1, 5, 8)
    for length in (9, 20, 9):
        for each in (x, x.to("meta")):
            tables.for_tensor(each, None, 0, length)
    assert {(device.type, key) for device, key in tables._rows} == {
        (device, LONGROPE.length_key(length)) for device in ("cpu", "meta") for length in (9, 20)
    }


def test_the_two_latest_sets_of_rows_are_kept():
    """LongRoPE alternates between two, for short and for long sequences."""
    tables, x = RotaryTables(STEPS), torch.randn(1, 1, 5, 8)
    for length, kept in ((9, {1}), (20, {1, 17}), (40, {17, 33}), (9, {33, 1}), (40, {33, 1})):
        tables.for_tensor(x.to("meta"), None, 0, 9)
        tables.for_tensor(x, None, 0, length)
        of_cpu = {key for device, key in tables._rows if device == CPU}
        assert (of_cpu, len(tables._rows)) == (kept, len(kept) + 1)


def test_rows_serve_until_a_later_position_is_asked():
    tables = RotaryTables(SPECS["whole"])
    first = tables.for_tensor(torch.randn(1, 1, 8, 12), None)
    assert all(map(torch.equal, first, tables.at(torch.arange(8))))
    rows = tables.cached_rows(None)
    tables.for_tensor(torch.randn(1, 1, 3, 12), None, 5)
    assert tables.cached_rows(None) is rows
    tables.for_tensor(torch.randn(1, 1, 3, 12), None, 6)
    assert len(tables.cached_rows(None)[0]) == 16


def test_a_tensor_of_another_class_has_tables_of_its_length():
    class Own(torch.Tensor):
        pass

    x = torch.randn(1, 1, 5, 8)
    for length in (9, 20):
        ours = RotaryTables(LONGROPE).for_tensor(x.as_subclass(Own), None, 0, length)
        assert all(map(torch.equal, ours, RotaryTables(LONGROPE).for_tensor(x, None, 0, length)))


@pytest.mark.parametrize("count", [2, 5])
def test_a_tensor_without_a_batch_has_one_length(count):
    with pytest.raises(ValueError, match=r"length must be an int, or integers of shape \(1,\)"):
        RotaryTables(DYNAMIC).for_tensor(torch.randn(5, 8), None, 0, torch.full((count,), 9))
