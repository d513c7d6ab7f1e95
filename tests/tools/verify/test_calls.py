"""`verify` of calls as models make them: one token, fewer key heads, rows, bfloat16, moved keys.

These fail if a fault of such a call is not named, is named by another identifier, or has another
fault beside it; and if a right function has no remark where its caller must take care.
"""

import pytest
import torch
from ropes_of_others import TransformersLlama, by_angles, half, inverse, rotate_half
from torch import nn

from ropewalk import RotaryEmbedding, RotarySpec, scaling, tools
from ropewalk.testing import assert_rope_like

PLAIN = RotarySpec(64)
YARN = RotarySpec(64, scaling=scaling.YaRN(4.0, original_length=4_096))
ROPE, STRETCHED = RotaryEmbedding(PLAIN), RotaryEmbedding(YARN)
AS_PLAIN, AS_YARN, BSHD = {"like": PLAIN}, {"like": YARN}, {"axes": "bshd"}
BFLOAT16, MOVE = inverse().bfloat16().float(), {"form": "k,old_positions,new_positions"}
AS_NEIGHBORS = {"like": RotarySpec(64, pairing="interleaved")}


def said(report, verdict="fault"):
    return " | ".join(f"{check.name}: {check.says}" for check in report.with_verdict(verdict))


def of_more(x, positions):
    """The positions in calls of several tokens, 0 in calls of one."""
    return positions if x.shape[-2] > 1 else positions * 0


def offset_of_more(x, offset=0):
    return half(x, of_more(x, torch.arange(offset, offset + x.shape[-2])))


def rows_of_more(q, k, position_ids):
    return tuple(half(x, of_more(x, position_ids)[:, None]) for x in (q, k))


def first_row_of_one(x, position_ids):
    return half(x, position_ids[: 1 if x.shape[-2] == 1 else None, None])


def bshd_of_more(x, positions):
    x = x.transpose(1, 2)
    return half(x, of_more(x, positions)).transpose(1, 2)


class TablesOfMore(TransformersLlama):
    def forward(self, x, position_ids):
        return super().forward(x, of_more(x, position_ids))


class TablesOfFirst(TransformersLlama):
    def forward(self, x, position_ids):
        return super().forward(x, position_ids[:1])


def refuses_one(x, positions):
    if x.shape[-2] == 1:
        raise IndexError("too few tokens")
    return half(x, positions)


def expanded(q, k, cos, sin):
    return tuple(x * cos.expand_as(q) + rotate_half(x) * sin.expand_as(q) for x in (q, k))


def along_heads(x):
    return half(x, torch.arange(x.shape[-2]))


def tables_in_their_dtype(x, positions):
    angles = positions[:, None].to(x.dtype) * inverse().to(x.dtype)
    return angles.cos(), angles.sin()


def twice_stretched(k, old, new):
    return STRETCHED.rotate(STRETCHED.rotate(k, -old), new)


def coarse_moves(k, old, new):
    return half(k, new.bfloat16() - old.bfloat16())


def old_row_of_all(k, old, new):
    return ROPE.shift(k, new - (old if old.ndim == 1 else old[:1]))


ONE, OF_Q = "position 7 is rotated like position 0", "position 7 of q is rotated like position 0"
FEW, AXES = "with fewer key heads than query heads", "if its vectors are (B, H, S, D), state that"
RAISES, ROWS = "one token: a call of one token raises: IndexError", "padded: rows with positions of"
FAR = "position 131,071: frequencies are rounded to bfloat16"
IGNORED, COARSE = "positions-ignored", "half-precision-angles"
#: Fault, words of its check, function, and arguments of `verify`.
WRONG = {
    "offset of one": ("offset-ignored", ONE, offset_of_more, {}),
    "position of one": (IGNORED, ONE, lambda x, m: half(x, of_more(x, m)), AS_PLAIN),
    "row of one": (IGNORED, OF_Q, rows_of_more, {}),
    "(B, S, H, D) of one": (IGNORED, ONE, bshd_of_more, {}),
    "tables of one": (IGNORED, ONE, TablesOfMore(), AS_PLAIN),
    "one ahead": ("history", "like position 8", lambda x, m: half(x, m + (len(m) == 1)), {}),
    "one raises": ("fails", RAISES, refuses_one, {}),
    "stacked": ("fails", FEW, lambda q, k, m: half(torch.stack((q, k)), m).unbind(0), AS_PLAIN),
    "expanded": ("fails", FEW, expanded, {}),
    "few": ("heads", FEW, lambda q, k, m: (half(q, m), half(k, m) * k.shape[1] / q.shape[1]), {}),
    "along heads": ("heads", "rotates along the axis of heads", along_heads, BSHD),
    "that, with positions": ("heads", AXES, half, {**BSHD, **AS_PLAIN}),
    "no rotation": ("uninitialised-frequencies", "no dimension", lambda x, m: x, BSHD),
    "coarse tables": (COARSE, "vectors: are off by", tables_in_their_dtype, {}),
    "far bfloat16": (COARSE, FAR, lambda x, m: half(x, m, BFLOAT16), AS_PLAIN),
    "old ignored": (IGNORED, "old positions have no", lambda k, a, b: ROPE.rotate(k, b), MOVE),
    "new ignored": (IGNORED, "new positions have no", lambda k, a, b: ROPE.unrotate(k, a), MOVE),
    "both ignored": (IGNORED, "keys stay as they were", lambda k, old, new: k, {}),
    "wrong way": ("wrong-sign", "32 of 32", lambda k, old, new: ROPE.shift(k, old - new), AS_PLAIN),
    "amplitude": ("amplitude", "by 1.13863", lambda k, a, b: STRETCHED.rotate(k, b - a), MOVE),
    "twice": ("amplitude", "by 1.29648", twice_stretched, AS_YARN),
    "coarse moves": (COARSE, "positions are rounded to bfloat16", coarse_moves, AS_PLAIN),
    "pairing": ("pairing", "are half", lambda k, old, new: ROPE.shift(k, new - old), AS_NEIGHBORS),
    "one farther": ("frequencies", "7 to 7", lambda k, a, b: ROPE.shift(k, b - a + 1), MOVE),
    "up only": ("frequencies", "7 to 0", lambda k, a, b: ROPE.shift(k, (b - a).abs()), MOVE),
    "one row of one": ("batch", "wrong in calls of one token", first_row_of_one, {}),
    "tables of the first row": ("batch", ROWS, TablesOfFirst(), AS_PLAIN),
    "one old row": ("batch", ROWS, old_row_of_all, {}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_of_a_call_is_named_alone(name):
    fault, words, function, given = WRONG[name]
    report = tools.verify(function, **given)
    assert report.faults == (fault,), said(report)
    assert words in said(report)


class Rotates(TransformersLlama):
    def forward(self, x, position_ids):
        return by_angles(x, position_ids[:, None, :, None].float() * self.inv_freq.float())


class Tabled(nn.Module):
    """Rounded tables, not angles: as exact as vectors in bfloat16 are."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(2_048.0), inverse())
        self.register_buffer("both", torch.stack((angles.cos(), angles.sin())))

    def forward(self, x, positions):
        return self.both[0, positions], self.both[1, positions]


@pytest.mark.parametrize("module", [TransformersLlama, Rotates])
@pytest.mark.parametrize("like", [None, PLAIN])
def test_a_module_is_right_until_bfloat16_rounds_its_frequencies(module, like):
    before = tools.verify(module(), like=like)
    assert before.right, said(before)
    assert "module in bfloat16: after `.bfloat16()`, vectors are off by" in said(before, "remark")
    assert tools.verify(module().bfloat16(), like=like).faults == ("half-precision-angles",)


def test_exact_tables_may_be_returned_in_bfloat16_but_not_held_in_it():
    def served(x, position_ids):
        return tuple(t.bfloat16() for t in TransformersLlama()(x, position_ids))

    for like in (None, PLAIN):
        report = tools.verify(served, like=like)
        assert report.right, said(report)
        assert "tables: cos and sin are rounded to bfloat16 when" in said(report, "remark")
        assert tools.verify(Tabled().bfloat16(), like=like).faults == ("rounded-tables",)


def test_modules_that_bfloat16_does_not_spoil_have_no_remark():
    assert "`.bfloat16()` leaves vectors" in said(tools.verify(Tabled()), "right")
    for rope in (RotaryEmbedding(PLAIN), RotaryEmbedding(PLAIN).bfloat16()):
        assert "module in bfloat16" not in {check.name for check in tools.verify(rope).checks}


REMARKS = [
    ("axes: (B, H, S, D) was found by trial", along_heads),
    ("rows of positions: (B, S), a row for each sequence, raise", half),
    ("sign of moves: by old less new", lambda k, old, new: ROPE.shift(k, old - new)),
]


@pytest.mark.parametrize(("words", "function"), REMARKS)
def test_right_functions_have_remarks(words, function):
    report = tools.verify(function)
    assert report.right, said(report)
    assert words in said(report, "remark")
    stated = said(tools.verify(function, axes="bhsd"), "remark")
    assert (words in stated) == (function is not along_heads)


LONG = scaling.LongRoPE([1.0] * 32, [2.0 + i for i in range(32)], 16_384, factor=4.0)


@pytest.mark.parametrize("rule", [LONG, scaling.DynamicNTK(4.0, original_length=16_384)])
@pytest.mark.parametrize("by", ["positions", "tokens"])
def test_a_rope_that_follows_the_length_has_a_remark_on_cached_keys(rule, by):
    """The original length is beyond that of the usual long call."""
    spec = RotarySpec(64, scaling=rule)

    def of_call(x, positions):
        length = len(positions) if by == "tokens" else int(positions.max()) + 1
        f = spec.inverse_frequencies(length).float()
        return half(x, positions, f) * spec.amplitude_at(length)

    report = tools.verify(of_call, like=spec)
    (remark,) = (c for c in report.with_verdict("remark") if c.name == "two lengths")
    assert f"as {type(rule).__name__} does: when a sequence grows beyond 16,384" in remark.says
    assert "`rerotate` moves them" in remark.says


def test_a_target_that_always_raises_fails_the_assertion_by_name():
    def raises(x, positions):
        raise NotImplementedError("no kernel")

    with pytest.raises(AssertionError, match=r"fails: target must .*NotImplementedError"):
        assert_rope_like(raises, PLAIN)
    with pytest.raises(AssertionError, match=r"fails: target must .*returned 1 tensor for q and k"):
        assert_rope_like(lambda q, k: (q,), PLAIN)
    with pytest.raises(ValueError, match="has no known role"):
        assert_rope_like(lambda x, cache: x, PLAIN)


def test_old_and_new_positions_come_together():
    with pytest.raises(ValueError, match="form must have old_positions and new_positions"):
        tools.verify(lambda k, new_positions: k)
    form = "k,old_positions,new_positions"
    assert tools.verify(lambda a, b, c: ROPE.shift(a, c - b), form=form, like=PLAIN).right
