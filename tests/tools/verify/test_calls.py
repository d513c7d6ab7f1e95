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


def said(report, verdict="fault"):
    return " | ".join(f"{check.name}: {check.says}" for check in report.with_verdict(verdict))


def of_more(count, positions):
    """The positions in calls of several tokens, 0 in calls of one."""
    return positions if count > 1 else positions * 0


def start_of_more(x, offset=0):
    start = offset if x.shape[-2] > 1 else 0
    return half(x, torch.arange(start, start + x.shape[-2]))


def rows_of_more(q, k, position_ids):
    at = of_more(q.shape[-2], position_ids)[:, None]
    return half(q, at), half(k, at)


def bshd_of_more(x, positions):
    return half(x.transpose(1, 2), of_more(len(positions), positions)).transpose(1, 2)


class TablesOfMore(TransformersLlama):
    def forward(self, x, position_ids):
        return super().forward(x, of_more(x.shape[-2], position_ids))


def one_ahead(x, positions):
    return half(x, positions + (len(positions) == 1))


def refuses_one(x, positions):
    if x.shape[-2] == 1:
        raise IndexError("too few tokens")
    return half(x, positions)


def squeezed(x, positions):
    return half(x.squeeze(), positions).reshape(x.shape[-3:])[None]


def stacked(q, k, positions):
    return half(torch.stack((q, k)), positions).unbind(0)


def expanded(q, k, cos, sin):
    cos, sin = (t.expand_as(q) for t in (cos, sin))
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def keys_of_few_stay(q, k, positions):
    return half(q, positions), half(k, positions) if q.shape == k.shape else k


def along_heads(x):
    return half(x, torch.arange(x.shape[-2]))


def tables_in_their_dtype(x, positions):
    angles = positions[:, None].to(x.dtype) * inverse().to(x.dtype)
    return angles.cos(), angles.sin()


ONE = "in calls of one token, position 7 and position 0 have one result"
FEW = "with fewer key heads than query heads"
#: Fault, words of its check, function, and arguments of `verify`.
WRONG = {
    "offset of one": ("offset-ignored", ONE, start_of_more, {}),
    "position of one": (
        "positions-ignored",
        ONE,
        lambda x, m: half(x, of_more(len(m), m)),
        {"like": PLAIN},
    ),
    "position of one, grouped rows": ("positions-ignored", "position 7 of q and", rows_of_more, {}),
    "position of one, (B, S, H, D)": ("positions-ignored", ONE, bshd_of_more, {}),
    "position of one, tables": ("positions-ignored", ONE, TablesOfMore(), {"like": PLAIN}),
    "one is ahead": ("history", "position 7 is rotated like position 8", one_ahead, {}),
    "one raises": ("fails", "one token: a call of one token raises: IndexError", refuses_one, {}),
    "stacked": ("fails", FEW, stacked, {"like": PLAIN}),
    "expanded": ("fails", FEW, expanded, {}),
    "keys of few heads": ("heads", FEW, keys_of_few_stay, {}),
    "along heads": ("heads", "rotates along the axis of heads", along_heads, {"axes": "bshd"}),
    "along heads, with positions": (
        "heads",
        "if its vectors are (B, H, S, D), state that order",
        half,
        {"axes": "bshd", "like": PLAIN},
    ),
    "tables in bfloat16": (
        "half-precision-angles",
        "bfloat16 vectors: are off by",
        tables_in_their_dtype,
        {},
    ),
    "far bfloat16, specified": (
        "half-precision-angles",
        "position 131,071: frequencies are rounded to bfloat16",
        lambda x, m: half(x, m, inverse().bfloat16().float()),
        {"like": PLAIN},
    ),
    "new positions alone": (
        "positions-ignored",
        "old positions have no effect",
        lambda k, old, new: ROPE.rotate(k, new),
        {},
    ),
    "old positions alone": (
        "positions-ignored",
        "new positions have no effect",
        lambda k, old, new: ROPE.unrotate(k, old),
        {"like": PLAIN},
    ),
    "keys stay": ("positions-ignored", "keys stay as they were", lambda k, old, new: k, {}),
    "moved the wrong way": (
        "wrong-sign",
        "32 of 32 pairs rotate in the other direction",
        lambda k, old, new: ROPE.shift(k, old - new),
        {"like": PLAIN},
    ),
    "amplitude again": (
        "amplitude",
        "keys are multiplied by 1.13863",
        lambda k, old, new: STRETCHED.rotate(k, new - old),
        {},
    ),
    "amplitude twice": (
        "amplitude",
        "keys are multiplied by 1.29648",
        lambda k, old, new: STRETCHED.rotate(STRETCHED.rotate(k, -old), new),
        {"like": YARN},
    ),
    "moved by bfloat16": (
        "half-precision-angles",
        "positions are rounded to bfloat16",
        lambda k, old, new: half(k, (new.bfloat16() - old.bfloat16()).float()),
        {"like": PLAIN},
    ),
    "moved in other pairs": (
        "pairing",
        "pairs are half, specified is interleaved",
        lambda k, old, new: ROPE.shift(k, new - old),
        {"like": RotarySpec(64, pairing="interleaved")},
    ),
    "moved upwards alone": (
        "frequencies",
        "keys moved from position 7 to 0",
        lambda k, old, new: ROPE.shift(k, (new - old).abs()),
        {},
    ),
    "no rotation": ("uninitialised-frequencies", "no dimension", lambda x, m: x, {"axes": "bshd"}),
    "one old row for all": (
        "batch",
        "padded: rows with positions of their own",
        lambda k, old, new: ROPE.shift(k, new - (old if old.ndim == 1 else old[:1])),
        {},
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_fault_of_a_call_is_named_alone(name):
    fault, words, function, given = WRONG[name]
    report = tools.verify(function, **given)
    assert report.faults == (fault,), said(report)
    assert words in said(report)


def test_one_token_that_is_squeezed_to_another_shape_fails():
    assert "fails" in tools.verify(squeezed).faults


class Rotates(TransformersLlama):
    def forward(self, x, position_ids):
        angles = position_ids[:, None, :, None].float() * self.inv_freq.float()
        return by_angles(x, angles)


class Tabled(nn.Module):
    """Rounded tables, not angles: as exact as vectors in bfloat16 are."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(2_048.0), inverse())
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x, positions):
        return self.cos[positions], self.sin[positions]


@pytest.mark.parametrize("module", [TransformersLlama, Rotates])
@pytest.mark.parametrize("like", [None, PLAIN])
def test_a_module_is_right_until_bfloat16_rounds_its_frequencies(module, like):
    before = tools.verify(module(), like=like)
    assert before.right, said(before)
    assert "module in bfloat16: after `.bfloat16()`, vectors are off by" in said(before, "remark")
    assert tools.verify(module().bfloat16(), like=like).faults == ("half-precision-angles",)


def test_modules_that_bfloat16_does_not_spoil_have_no_remark():
    assert "`.bfloat16()` leaves vectors" in said(tools.verify(Tabled()), "right")
    for rope in (RotaryEmbedding(PLAIN), RotaryEmbedding(PLAIN).bfloat16()):
        assert "module in bfloat16" not in {check.name for check in tools.verify(rope).checks}


REMARKS = {
    "axes by trial": ("axes: (B, H, S, D) was found by trial", along_heads, {}),
    "rows": ("rows of positions: (B, S), a row for each sequence, raise", half, {}),
    "moves": ("sign of moves: by old less new", lambda k, old, new: ROPE.shift(k, old - new), {}),
}


@pytest.mark.parametrize("name", REMARKS)
def test_right_functions_have_remarks(name):
    words, function, given = REMARKS[name]
    report = tools.verify(function, **given)
    assert report.right, said(report)
    assert words in said(report, "remark")
    if name == "axes by trial":
        assert words not in said(tools.verify(function, axes="bhsd"), "remark")


LONG = scaling.LongRoPE([1.0] * 32, [2.0 + i for i in range(32)], 16_384, factor=4.0)


@pytest.mark.parametrize("rule", [LONG, scaling.DynamicNTK(4.0, original_length=16_384)])
@pytest.mark.parametrize("by", ["positions", "tokens"])
def test_a_rope_that_follows_the_length_has_a_remark_on_cached_keys(rule, by):
    """The original length is beyond that of the usual long call."""
    spec = RotarySpec(64, scaling=rule)

    def of_call(x, positions):
        length = len(positions) if by == "tokens" else int(positions.max()) + 1
        return half(x, positions, spec.inverse_frequencies(length).float()) * spec.amplitude_at(
            length
        )

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
    named = tools.verify(
        lambda a, b, c: ROPE.shift(a, c - b), form="k,old_positions,new_positions", like=PLAIN
    )
    assert named.right, said(named)
