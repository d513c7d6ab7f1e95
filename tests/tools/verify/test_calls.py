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
MOVE = {"form": "k,old_positions,new_positions"}
AS_NEIGHBORS = {"like": RotarySpec(64, pairing="interleaved")}


def said(report, verdict="fault"):
    return " | ".join(f"{check.name}: {check.says}" for check in report.with_verdict(verdict))


def of_more(x, positions):
    """The positions in calls of several tokens, 0 in calls of one."""
    return positions if x.shape[-2] > 1 else positions * 0


def offset_of_more(x, offset=0):
    return half(x, of_more(x, torch.arange(offset, offset + x.shape[-2])))


def bshd_of_more(x, positions):
    x = x.transpose(1, 2)
    return half(x, of_more(x, positions)).transpose(1, 2)


class TablesOfMore(TransformersLlama):
    def forward(self, x, position_ids):
        return super().forward(x, of_more(x, position_ids))


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


def old_row_of_all(k, old, new):
    return ROPE.shift(k, new - (old if old.ndim == 1 else old[:1]))


ONE, OF_Q = ("position 7 and position 0 have one result", "position 7 of q and position 0 have one")
FEW, AXES = "with fewer key heads than query heads", "if its vectors are (B, H, S, D), state that"
RAISES, ROWS = "one token: a call of one token raises: IndexError", "padded: rows with positions of"
FAR, UNDONE = (
    "position 131,071: frequencies are rounded to bfloat16",
    "old positions have no effect",
)
#: Fault, words of its check, function, and arguments of `verify`.
WRONG = {
    "offset of one": ("offset-ignored", ONE, offset_of_more, {}),
    "position of one": ("positions-ignored", ONE, lambda x, m: half(x, of_more(x, m)), AS_PLAIN),
    "row of one": (
        "positions-ignored",
        OF_Q,
        lambda q, k, pos: tuple(half(x, of_more(x, pos)[:, None]) for x in (q, k)),
        {},
    ),
    "(B, S, H, D) of one": ("positions-ignored", ONE, bshd_of_more, {}),
    "tables of one": ("positions-ignored", ONE, TablesOfMore(), AS_PLAIN),
    "one ahead": ("history", "like position 8", lambda x, m: half(x, m + (len(m) == 1)), {}),
    "one raises": ("fails", RAISES, refuses_one, {}),
    "stacked": ("fails", FEW, lambda q, k, m: half(torch.stack((q, k)), m).unbind(0), AS_PLAIN),
    "expanded": ("fails", FEW, expanded, {}),
    "few keys": ("heads", FEW, lambda q, k, m: (half(q, m), half(k, m) * k.shape[1] / q.shape[1])),
    "along heads": ("heads", "rotates along the axis of heads", along_heads, BSHD),
    "that, with positions": ("heads", AXES, half, {**BSHD, **AS_PLAIN}),
    "no rotation": ("uninitialised-frequencies", "no dimension", lambda x, m: x, BSHD),
    "coarse tables": ("half-precision-angles", "vectors: are off by", tables_in_their_dtype, {}),
    "far bfloat16": (
        "half-precision-angles",
        FAR,
        lambda x, m: half(x, m, inverse().bfloat16().float()),
        AS_PLAIN,
    ),
    "old ignored": ("positions-ignored", UNDONE, lambda k, old, new: ROPE.rotate(k, new), {}),
    "new ignored": (
        "positions-ignored",
        "new positions have no effect",
        lambda k, old, new: ROPE.unrotate(k, old),
        AS_PLAIN,
    ),
    "both ignored": ("positions-ignored", "keys stay as they were", lambda k, old, new: k, {}),
    "wrong way": ("wrong-sign", "32 of 32", lambda k, old, new: ROPE.shift(k, old - new), AS_PLAIN),
    "amplitude": (
        "amplitude",
        "by 1.13863",
        lambda k, old, new: STRETCHED.rotate(k, new - old),
        {},
    ),
    "amplitude twice": (
        "amplitude",
        "keys are multiplied by 1.29648",
        lambda k, old, new: STRETCHED.rotate(STRETCHED.rotate(k, -old), new),
        AS_YARN,
    ),
    "moved by bfloat16": (
        "half-precision-angles",
        "positions are rounded to bfloat16",
        lambda k, old, new: half(k, (new.bfloat16() - old.bfloat16()).float()),
        AS_PLAIN,
    ),
    "pairing": ("pairing", "are half", lambda k, old, new: ROPE.shift(k, new - old), AS_NEIGHBORS),
    "one farther": ("frequencies", "7 to 7", lambda k, a, b: ROPE.shift(k, b - a + 1), MOVE),
    "up only": ("frequencies", "7 to 0", lambda k, old, new: ROPE.shift(k, (new - old).abs()), {}),
    "one old row": ("batch", ROWS, old_row_of_all, {}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_of_a_call_is_named_alone(name):
    fault, words, function, *given = WRONG[name]
    report = tools.verify(function, **(given[0] if given else {}))
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


BACK = "sign of moves: by old less new"
REMARKS = [
    ("axes: (B, H, S, D) was found by trial", along_heads, True),
    ("rows of positions: (B, S), a row for each sequence, raise", half, False),
    (BACK, lambda k, old, new: ROPE.shift(k, old - new), False),
]


@pytest.mark.parametrize(("words", "function", "ends"), REMARKS)
def test_right_functions_have_remarks(words, function, ends):
    report = tools.verify(function)
    assert report.right, said(report)
    assert words in said(report, "remark")
    assert ends == (words not in said(tools.verify(function, axes="bhsd"), "remark"))


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
