"""A spec in words and in part: its repr, other code's names for its fields, the part that rotates.

Fails when a repr is of several lines, does not make the same spec again or says what need not be
said; when two specs share a name among compiled graphs; when `base` or "neox" are answered in
Python's words; and when DeepSeek's `k_pe`, rotated alone, is not what the whole head's rope makes.
"""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, reject
from hypothesis import strategies as st
from refusals import check_refused

from ropewalk import (
    LearnedRotaryEmbedding,
    RotaryEmbedding,
    RotarySpec,
    XPosEmbedding,
    axes,
    scaling,
)
from ropewalk.rotary import tables

PAIRINGS = st.sampled_from(["half", "interleaved"])
FEW = st.integers(1, 5)
RULES = st.sampled_from(
    [
        None,
        scaling.Linear(4.0),
        scaling.NTKAware(2.0),
        scaling.DynamicNTK(2.0, 16),
        scaling.YaRN(16.0, 64, beta_fast=16.0, truncate=False),
        scaling.Llama3(8.0, 1.0, 4.0, 64),
        scaling.Proportional(0.5),
    ]
)
ORDERS = st.one_of(
    st.none(),
    st.builds(axes.sectioned, st.tuples(FEW, FEW, FEW)),
    st.builds(axes.interleaved, st.tuples(FEW, FEW, FEW)),
    st.builds(axes.interleaved, st.tuples(FEW, FEW, FEW), st.integers(9, 20)),
    st.builds(axes.axial, st.tuples(FEW, FEW), st.sampled_from([None, (1, 0)])),
    st.builds(axes.pixtral, FEW.map(lambda n: 4 * n)),
    st.builds(axes.alternating, FEW, st.sampled_from([(0, 1), (1, 0)])),
    st.builds(axes.round_robin, st.integers(2, 9)),
    st.builds(lambda a, b: axes.ernie((a, a, b)), FEW, FEW),
    st.builds(lambda n: ((0, -1),) * n, st.integers(2, 9)),
    st.lists(st.fractions(-9, 9), min_size=2, max_size=5).map(
        lambda exponents: tuple((0, e) for e in exponents)
    ),
)


@st.composite
def specs(draw):
    order, start, rest = draw(ORDERS), draw(st.integers(0, 4)), draw(st.integers(0, 4))
    rotary_dim = 2 * len(order) if order else draw(st.integers(2, 9)) * 2
    try:
        return RotarySpec(
            start + rotary_dim + rest,
            rotary_dim,
            theta=draw(st.floats(1.5, 1e7)),
            pairing=draw(PAIRINGS),
            write_pairing=draw(st.none() | PAIRINGS),
            start=start,
            scaling=draw(RULES),
            amplitude=draw(st.floats(0.5, 2.0)),
            reverse=draw(st.booleans()),
            axes=order,
            continuous=draw(st.booleans()),
        )
    except ValueError as error:
        if "so that enough digits remain" not in str(error):  # of exponents below 0
            raise
        reject()


@given(specs())
def test_a_repr_makes_the_spec_again_in_one_line(spec):
    names = {"RotarySpec": RotarySpec, "axes": axes, "scaling": scaling}
    assert eval(repr(spec), names) == spec
    assert "\n" not in repr(spec)
    if spec.scaling is not None:
        assert eval(repr(spec.scaling), vars(scaling)) == spec.scaling


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        (RotarySpec(64), "RotarySpec(head_dim=64)"),
        (RotarySpec(80, 64, start=16), "RotarySpec(head_dim=80, start=16)"),
        (RotarySpec(64, 32), "RotarySpec(head_dim=64, rotary_dim=32)"),
        (
            RotarySpec(128, axes=axes.sectioned((16, 24, 24))),
            "RotarySpec(head_dim=128, axes=axes.sectioned((16, 24, 24)))",
        ),
        (
            RotarySpec(6, axes=((0, 0), (1, "1/3"), (0, "1/7"))),
            "RotarySpec(head_dim=6, axes=((0, 0), (1, '1/3'), (0, '1/7')))",
        ),
        (
            RotarySpec(8, scaling=scaling.DynamicNTK(2.0, 16)),
            "RotarySpec(head_dim=8, scaling=scaling.DynamicNTK(factor=2.0, original_length=16))",
        ),
        (
            RotarySpec(8, pairing="interleaved", write_pairing="half"),
            "RotarySpec(head_dim=8, pairing='interleaved', write_pairing='half')",
        ),
    ],
)
def test_a_repr_says_what_differs_from_the_defaults(spec, written):
    assert repr(spec) == written


@given(specs(), specs())
def test_a_name_among_graphs_is_one_specs_own(one, other):
    assert (tables.register(one) == tables.register(other)) == (one == other)


def called(make, *arguments, **others):
    return lambda: make(*arguments, **others)


def test_other_names_for_arguments_are_told_ours():
    rope, learned = RotaryEmbedding, LearnedRotaryEmbedding
    original = {"original_max_position_embeddings": 64}
    ours = "has no argument 'original_max_position_embeddings'; it"
    check_refused(
        TypeError,
        (called(RotarySpec, 64, base=1e4), "has no argument 'base'; it is called theta here"),
        (called(RotarySpec, 64, rope_theta=1e4), "no argument 'rope_theta'; it is called theta"),
        (called(RotarySpec, 64, thetta=1e4), "no argument 'thetta'; did you mean 'theta'"),
        (called(scaling.YaRN, factor=4.0, **original), f"YaRN {ours} is called original_length"),
        (
            called(scaling.YaRN, 4.0, 4096, attn_factor=1.0),
            "write RotarySpec(…, amplitude=…), a fac",
        ),
        (called(scaling.Linear, scale=2), "Linear has no argument 'scale'; it is called factor"),
        (called(scaling.NTKAware, alpha=2), "NTKAware has no argument 'alpha'; it is called fac"),
        (called(scaling.Linear, 2.0, **original), f"Linear {ours} has factor"),
        (called(scaling.YaRN, 4.0, 64, beta_fats=9), "'beta_fats'; did you mean 'beta_fast'?"),
        (called(scaling.Proportional, partial_rotary_factor=0.5), "it is called fraction here"),
        (
            called(rope, head_dim=64),
            "RotaryEmbedding has no argument 'head_dim'; "
            "write RotaryEmbedding(RotarySpec(head_dim=…)); it has spec",
        ),
        (called(rope, RotarySpec(64), base=1e4), "write RotaryEmbedding(RotarySpec(theta=…))"),
        (
            called(learned, head_dim=64),
            "write LearnedRotaryEmbedding(RotarySpec(head_dim=…)); it has spec, heads, mixed",
        ),
        (called(XPosEmbedding, head_dim=64), "write XPosEmbedding(RotarySpec(head_dim=…))"),
        *(
            (called(rule, nonsense=1), f"{rule.__name__} has no argument 'nonsense'; it has")
            for rule in scaling.RULES
        ),
    )


@pytest.mark.parametrize(
    ("word", "ours"), [("neox", "half"), ("GPT-NeoX", "half"), ("gptj", "interleaved")]
)
def test_other_words_for_a_pairing_are_told_ours(word, ours):
    message = re.escape(f"{word!r} of other code is called {ours!r} here")
    for field in ("pairing", "write_pairing"):
        with pytest.raises(ValueError, match=message):
            RotarySpec(64, **{field: word})


@given(specs())
def test_the_part_that_rotates_has_the_rope_of_the_whole(spec):
    part, end = spec.for_rotary_part(), spec.start + spec.rotary_dim
    assert (part.head_dim, part.rotary_dim, part.start) == (spec.rotary_dim, spec.rotary_dim, 0)
    x = torch.randn(2, 3, 7, spec.head_dim)
    where = torch.randint(0, 99, (spec.axis_count, 7)[spec.axis_count == 1 :])
    whole = RotaryEmbedding(spec).rotate(x, where, length=99)
    alone = RotaryEmbedding(part).rotate(x[..., spec.start : end], where, length=99)
    assert torch.equal(whole[..., spec.start : end], alone)
