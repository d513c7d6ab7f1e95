"""Mistakes in keys, pairs, tables and fields of rules are named, and by what they are off.

These fail if the fault or the words of a planted mistake differ, if another fault is named beside
it, or if a field is named whose value does not explain the measured angles.
"""

import math
import re
import sys
from dataclasses import replace
from itertools import product

import pytest
import ropes_of_others as others
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ropes_of_others import by_angles, half, inverse, rotate_half
from scaling_formulas import ORIGINAL, scaled_frequencies

from ropewalk import RotaryEmbedding, RotarySpec, scaling, tools
from ropewalk.tools.verify.frequency_mistakes import apart, changed_fields, changed_rules
from ropewalk.tools.verify.measured_rotation import POSITIONS
from ropewalk.tools.verify.rotation_verdicts import check_rotation, compare

AT = torch.tensor(POSITIONS)
PLAIN, NEIGHBORS = RotarySpec(64), RotarySpec(64, pairing="interleaved")
QUARTER = RotarySpec(64, rotary_dim=16)
YARN = RotarySpec(64, scaling=scaling.YaRN(4.0, original_length=4_096))
LLAMA_3 = RotarySpec(64, theta=5e5, scaling=scaling.Llama3(8.0, 1.0, 4.0, original_length=8_192))
HALF = "half-precision-angles"


def turned(x, positions, f, amplitude=1.0):
    """x in float64, so that only frequencies differ."""
    return (by_angles(x.double(), positions[:, None].double() * f) * amplitude).to(x.dtype)


def like(spec, length=None, **changed):
    """Return f(x, positions) of a spec with other fields of its rule."""
    rule = spec.scaling if not changed else replace(spec.scaling, **changed)
    f, amplitude = (
        replace(spec, scaling=rule).inverse_frequencies(length),
        spec.amplitude_at(length),
    )
    return lambda x, m: turned(x, m, f, amplitude)


def swapped(x, m):
    angles = torch.cat((m[:, None].float() * inverse(x.shape[-1]),) * 2, -1)
    return x * angles.sin() + rotate_half(x) * angles.cos()


def partly(function, dims=16):
    return lambda x, m: torch.cat((function(x[..., :dims], m), x[..., dims:]), -1)


def keys(function):
    """Return f(q, k, positions) whose queries are right."""
    return lambda q, k, m: (half(q, m), function(k, m))


def rounded(dtype, spec=PLAIN):
    """Frequencies in half precision, under a rule or not."""
    f = spec.inverse_frequencies().to(dtype).float()
    return lambda x, m: half(x, m, f)


def bfloat16_positions(x, m):
    return half(x, m.bfloat16().float())


def float16_positions(x, m):
    return half(x, m.half().float())


def bfloat16_tables(x, m):
    return others.rounded_tables(x, m, torch.bfloat16)


def theta_tables(x, m):
    angles = torch.cat((m[:, None] * inverse(64, 5e5),) * 2, -1)
    return x * angles.cos().bfloat16().float() + rotate_half(x) * angles.sin().bfloat16().float()


def yarn_tables(x, m):
    """The amplitude is multiplied before cos and sin are rounded, as transformers does."""
    cos, sin = RotaryEmbedding(YARN).tables(m)
    cos, sin = (torch.cat((t, t), -1).half().float() for t in (cos, sin))
    return x * cos + rotate_half(x) * sin


def other_thetas_in_bfloat16(x, m):
    return half(x, m, inverse(64, 5e5).bfloat16().float())


ALL = (  # what it is called here, the function, what it should be, the faults, words of the report
    ("bfloat16 tables alone", bfloat16_tables, None, "rounded-tables", "rounded to bfloat16"),
    ("tables and theta", theta_tables, PLAIN, "theta rounded-tables", "theta is 500000"),
    ("with an amplitude", yarn_tables, YARN, "rounded-tables", "rounded to float16"),
    ("tables of keys", keys(bfloat16_tables), PLAIN, "rounded-tables", "cos and sin of keys"),
    ("bfloat16 positions", bfloat16_positions, PLAIN, HALF, "positions are rounded to bfloat16"),
    ("float16 positions", float16_positions, PLAIN, HALF, "positions are rounded to float16"),
    ("float16 alone", float16_positions, None, HALF, "numbers of float16 end at 65,504"),
    ("of keys", keys(bfloat16_positions), None, HALF, "of keys, positions are rounded to bfloat16"),
    ("keys twice", keys(lambda k, m: half(half(k, m), m)), None, "rotated-twice", "twice"),
    ("both twice", lambda x, m: half(half(x, m), m), PLAIN, "rotated-twice", "doubled"),
    ("ahead", keys(lambda k, m: half(k, m + 1)), None, "keys-shifted", "1 position ahead of"),
    ("behind", keys(lambda k, m: half(k, m - 30)), PLAIN, "keys-shifted", "30 positions behind"),
    ("queries ahead", lambda q, k, m: (half(q, m + 2), half(k, m)), None, "keys-shifted", "2 pos"),
    ("keys swapped", keys(swapped), None, "cos-sin-mixed", "cos and sin are exchanged in keys"),
    ("keys back", keys(lambda k, m: half(k, -m)), PLAIN, "wrong-sign", "opposite directions"),
    ("keys scaled", keys(lambda k, m: half(k, m / 4)), None, "frequencies", "0.25 times as far"),
    ("far keys", keys(lambda k, m: half(k, m.clamp(max=9_000))), None, "table-too-short", "16,384"),
    ("keys long", keys(lambda k, m: 2 * half(k, m)), None, "amplitude", "multiplied by 2"),
    ("keys mixed", keys(others.layouts_mixed), None, "layouts-mixed", "keys: cos and sin repeat"),
    ("keys partly", keys(partly(half)), None, "rotary-part", "16 dimensions of keys rotate"),
    (
        "theta of keys",
        keys(lambda k, m: half(k, m, inverse(64, 5e5))),
        None,
        "theta",
        "theta of keys is 500000, of queries 10000",
    ),
    ("truncate", like(YARN, truncate=False), YARN, "frequencies", "as if truncate were False"),
    ("length", like(YARN, original_length=16_384), YARN, "frequencies", "length were 16384"),
    ("beta", like(YARN, beta_fast=64.0), YARN, "frequencies", "as if beta_fast were 64.0"),
    ("Llama 3", like(LLAMA_3, factor=32.0), LLAMA_3, "frequencies", "as if factor were 32.0"),
    (
        "bfloat16 without its rule",
        rounded(torch.bfloat16, replace(LLAMA_3, scaling=None)),
        LLAMA_3,
        f"rule-ignored {HALF}",
        "those without Llama3",
    ),
    ("theta and bfloat16", other_thetas_in_bfloat16, PLAIN, f"theta {HALF}", "theta is 500000"),
    ("mixed, like the tables", others.layouts_mixed, NEIGHBORS, "layouts-mixed", "for neighbors"),
    ("mixed otherwise", others.layouts_mixed_otherwise, None, "layouts-mixed", "in the other half"),
    ("mixed in part", partly(others.layouts_mixed), QUARTER, "layouts-mixed", "for neighbors"),
    (
        "mixed, any theta",
        lambda x, m: others.layouts_mixed(x, m, inverse(64, 3e6)),
        None,
        "layouts-mixed",
        "for neighbors",
    ),
    ("no minus", lambda x, m: others.with_signs(x, m, 1, 1), None, "wrong-sign", "no minus"),
    ("two", lambda x, m: others.with_signs(x, m, -1, -1), PLAIN, "wrong-sign", "in both halves"),
    ("overwritten", others.overwritten_half, PLAIN, "overwritten-half", "the first dimension of"),
    (
        "overwritten, in part",
        partly(lambda x, m: others.overwritten_half(x, m, second_first=True)),
        None,
        "overwritten-half",
        "the second dimension of each pair is overwritten",
    ),
)


@pytest.mark.parametrize(
    ("function", "spec", "faults", "words"), [row[1:] for row in ALL], ids=[row[0] for row in ALL]
)
def test_a_mistake_is_named(function, spec, faults, words):
    report = tools.verify(function, like=spec)
    said = [check.says for check in report.with_verdict("fault")]
    assert set(report.faults) == set(faults.split()), said
    assert any(words in each for each in said), said


def of_formula(**fields):
    """Frequencies of YARN's formula with other fields, also those that the class refuses."""
    rule = {"rope_type": "yarn", "factor": 4.0, ORIGINAL: 4_096, **fields}
    return torch.tensor([float(f) for f in scaled_frequencies(rule, 1e4, 64, None)]).double()


def blended(other):
    """YARN's frequencies with others in place of interpolated ones."""
    plain, yarn = PLAIN.inverse_frequencies(), of_formula()
    slow = (1 - yarn / plain) / (1 - 1 / 4.0)
    return plain * (1 - slow) + other * slow


LISTS = scaling.LongRoPE(
    tuple(1.0 + i / 32 for i in range(32)), tuple(2.0 + i for i in range(32)), 4_096, factor=4.0
)
LONG = RotarySpec(64, scaling=LISTS)
DYNAMIC = RotarySpec(64, scaling=scaling.DynamicNTK(4.0, original_length=4_096))
NTK = RotarySpec(64, scaling=scaling.NTKAware(4.0)).inverse_frequencies()
FREQUENCIES = (
    (of_formula(beta_fast=1.0, beta_slow=32.0), YARN, "beta_fast and beta_slow were exchanged"),
    (of_formula(truncate=False), YARN, "as if truncate were False"),
    (of_formula(**{ORIGINAL: 1_024}), YARN, "as if original_length were 1024"),
    (blended(NTK), YARN, "slow pairs have the base of NTKAware"),
    (replace(YARN, theta=5e5).inverse_frequencies(), YARN, "theta is 500000, specified is 10000"),
    (PLAIN.inverse_frequencies() / torch.tensor(LISTS.long_factor), LONG, "long_factor were exch"),
    (
        replace(DYNAMIC, scaling=replace(DYNAMIC.scaling, factor=2.0)).inverse_frequencies(32_768),
        DYNAMIC,
        "as if factor were 2.0",
    ),
)


@pytest.mark.parametrize(("frequencies", "spec", "words"), FREQUENCIES)
def test_the_field_of_a_rule_is_named(frequencies, spec, words):
    """For a rule that depends on the length, up to the original length or beyond it."""
    length = None if not spec.needs_length else 4_096 if spec is LONG else 32_768

    def function(x, positions):
        return turned(x, positions, frequencies, spec.amplitude_at(length))

    report = tools.verify(function, like=spec, length=length)
    assert len(report.faults) == 1, report.faults
    assert words in next(report.with_verdict("fault")).says


def test_pairs_that_do_not_rotate_visibly_have_the_amplitude_all_the_same():
    """Other dimensions have not."""
    still = RotarySpec(64, scaling=scaling.Proportional(0.5), amplitude=1.3)
    slow = RotarySpec(128, theta=1e8, scaling=scaling.YaRN(40.0, original_length=4_096))
    for spec, like_ in product((still, slow), (True, False)):
        report = tools.verify(RotaryEmbedding(spec).rotate, like=spec if like_ else None)
        assert report.right, report.faults
    quarter = replace(QUARTER, amplitude=1.3)
    assert tools.verify(RotaryEmbedding(quarter), like=quarter).right
    report = tools.verify(lambda x, m: 1.3 * partly(half)(x, m), like=quarter)
    assert report.faults == ("amplitude",)


@pytest.mark.parametrize("pairs", [1, 2])
def test_few_pairs_have_a_verdict_too(pairs):
    """No theta can be fitted to one."""
    f = torch.tensor([0.3, 0.2])[:pairs]
    report = tools.verify(
        lambda q, k, m: (half(q, m, f), half(k, m, 2 * f)), like=RotarySpec(2 * pairs)
    )
    assert report.faults == ("frequencies", "rotated-twice")


def verdicts(made: RotarySpec, specified: RotarySpec):
    """The checks of a rope in float32 against a specification."""
    basis = torch.eye(64).view(1, 64, 1, 64).expand(-1, -1, len(AT), -1)
    matrices = RotaryEmbedding(made).rotate(basis, AT)[0].double().permute(1, 2, 0)
    return compare(check_rotation(matrices, AT)[1], specified)


RULES = (
    YARN.scaling,
    LLAMA_3.scaling,
    scaling.YaRN(8.0, original_length=32_768, truncate=False),
    scaling.NTKAware(8.0),
    scaling.MixedNTK(8.0),
    scaling.Linear(8.0),
)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_only_a_field_that_explains_the_angles_is_named(data):
    """Whether its value is a usual one or not."""
    rule = data.draw(st.sampled_from(RULES))
    theta = data.draw(st.sampled_from([1e4, 5e5]))
    spec = RotarySpec(64, theta=theta, scaling=rule)
    others_of = [made for _, made in changed_rules(rule)]
    unusual = st.builds(lambda factor: replace(rule, factor=factor), st.floats(1.1, 70.0))
    made = replace(spec, scaling=data.draw(st.sampled_from(others_of) | unusual))
    checks = [check for check in verdicts(made, spec) if check.name == "frequencies"]
    off = (made.inverse_frequencies() / spec.inverse_frequencies() - 1).abs().max()
    assert (checks[0].fault is None) == bool(off < 1e-6) or off < 1e-4
    measured = made.inverse_frequencies()
    for hypothesis in changed_fields(spec, None):
        if hypothesis.says == checks[0].mistake:
            torch.testing.assert_close(hypothesis.frequencies, measured, rtol=1e-5, atol=1e-9)
    if made.scaling in others_of and off > 1e-4:
        assert checks[0].mistake, made


@given(st.floats(100.0, 1e9), st.floats(-1e-4, 1e-4))
def test_a_theta_never_reads_as_the_specified_one(theta, off):
    for specified in (theta * (1 + off), float(f"{theta:.3g}")):
        text = apart(theta, specified)
        assert text is None or text != f"{specified:.12g}"
        assert text is not None or math.isclose(theta, specified, rel_tol=2e-8)


def test_a_theta_that_is_almost_right_is_printed_with_enough_digits():
    theta = 10_000.2
    report = tools.verify(like(RotarySpec(64, theta=theta)), like=PLAIN)
    says = " ".join(check.says for check in report.with_verdict("fault"))
    assert re.search(r"theta is 10000\.\d+, specified is 10000", says), says


@pytest.mark.parametrize("kind", ["field", "mixed", "shifted"])
def test_a_model_gets_the_same_verdicts(monkeypatch, kind):
    pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
    from tiny_models import YARN as RULE
    from tiny_models import tiny_model

    rope = {"rope_theta": 1e6, **RULE}
    made = {**rope, "truncate": not rope.get("truncate", True)} if kind == "field" else rope
    model = tiny_model("qwen3", rope_parameters=made)
    source = sys.modules[type(model).__module__]
    apply = source.apply_rotary_pos_emb

    def mixed(q, k, cos, sin, *rest):
        n = cos.shape[-1] // 2
        cos, sin = (t[..., :n].repeat_interleave(2, -1) for t in (cos, sin))
        return apply(q, k, cos, sin, *rest)

    def shifted(q, k, cos, sin, *rest):
        """Keys are rotated as if each were one position later."""
        (step, step_sin), size = (t[:, 1:2] for t in (cos, sin)), cos[:, :1]
        ahead = cos * step - sin * step_sin, sin * step + cos * step_sin
        return apply(q, k, cos, sin, *rest)[0], apply(q, k, *(t / size for t in ahead), *rest)[1]

    if kind != "field":
        monkeypatch.setattr(
            source, "apply_rotary_pos_emb", {"mixed": mixed, "shifted": shifted}[kind]
        )
    report = tools.verify_model(model, tiny_model("qwen3", rope_parameters=rope).config)
    named = {"field": "frequencies", "mixed": "layouts-mixed", "shifted": "keys-shifted"}[kind]
    words = {"field": "as if truncate", "mixed": "neighbors", "shifted": "1 position ahead"}[kind]
    assert report.faults == (named,)
    assert all(words in check.says for check in report.with_verdict("fault"))
