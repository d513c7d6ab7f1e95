"""`verify` of functions and modules: each fault is named.

These fail if a planted fault is not named by its identifier, or if a fault that is not there is
named beside it.
"""

import json

import pytest
import ropes_of_others as others
import torch
from ropes_of_others import half, neighbors, xpos

from ropewalk import ModelSpec, RotaryEmbedding, RotarySpec, scaling, tools
from ropewalk.tools.verify import FAULTS, Check, Report

PLAIN, NEIGHBORS = RotarySpec(64), RotarySpec(64, pairing="interleaved")
QUARTER = RotarySpec(64, rotary_dim=16)
LAST_QUARTER = RotarySpec(64, rotary_dim=16, start=48)
YARN = RotarySpec(64, scaling=scaling.YaRN(4.0, original_length=4096))
LLAMA = {"model_type": "llama", "head_dim": 64, "num_hidden_layers": 1, "rope_theta": 10_000.0}
SERVES_8192 = {**LLAMA, "max_position_embeddings": 8_192}
GEMMA_6 = {
    "model_type": "gemma3_text",
    "head_dim": 64,
    "num_hidden_layers": 6,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "sliding_window_pattern": 6,
}
INVERSE, ZERO = others.inverse(), torch.zeros(32)
GARBAGE = torch.rand(32, generator=torch.Generator().manual_seed(1))
GEMMA = ModelSpec({"text": ModelSpec.from_config(GEMMA_6).layers[::-1]})  # the global one is first


def yarn(x, positions, amplitude, frequencies):
    """YaRN with its amplitude and its frequencies applied so many times."""
    ratio = YARN.inverse_frequencies() / PLAIN.inverse_frequencies()
    f = PLAIN.inverse_frequencies() * ratio**frequencies
    return half(x, positions, f.float()) * YARN.amplitude_at() ** amplitude


def with_frequencies(f):
    return lambda x, positions: half(x, positions, f)


def positions_as_x(x, positions):
    """The mistake shows with bfloat16 vectors alone."""
    return half(x, positions.to(x.dtype))


def clamped(x, positions):
    return half(x, positions.clamp(max=2_047))


#: Each has one fault and no other. A wrong function differs from a right one by one mistake.
WRONG = {
    "alternating table": ("cos-sin-mixed", others.cos_sin_mixed, None),
    "swapped tables": ("cos-sin-mixed", others.cos_sin_mixed_swapped, None),
    "position added": ("not-a-rotation", others.not_a_rotation_added, None),
    "cosine matrix": ("not-a-rotation", others.not_a_rotation_matrix, None),
    "cosines of i·j": ("not-a-rotation", others.not_a_rotation_scaled, None),
    "pairing": ("pairing", half, NEIGHBORS),
    "pairing, the other way": ("pairing", neighbors, PLAIN),
    "q and k paired differently": ("pairing", lambda q, k, m: (half(q, m), neighbors(k, m)), None),
    "bfloat16 angles": ("half-precision-angles", others.half_precision_angles, None),
    "bfloat16 angles, specified": ("half-precision-angles", others.half_precision_angles, PLAIN),
    "positions in x's bfloat16": ("half-precision-angles", positions_as_x, PLAIN),
    "float16 frequencies": (
        "half-precision-angles",
        with_frequencies(INVERSE.half().float()),
        PLAIN,
    ),
    "last row repeated": ("table-too-short", clamped, PLAIN),
    "last row repeated, no spec": ("table-too-short", clamped, None),
    "last rows repeated": ("table-too-short", lambda q, k, m: (clamped(q, m), clamped(k, m)), None),
    "bfloat16 stays": ("stale-table", others.StaleAfterBfloat16(), None),
    "dynamic NTK": ("history", others.History(), None),
    "dynamic NTK of the call": ("history", others.history_of_this_call, None),
    "offset": ("offset-ignored", lambda x, offset=0: half(x, torch.arange(x.shape[-2])), None),
    "positions": ("positions-ignored", lambda x, m: half(x, torch.arange(len(m))), PLAIN),
    "partial": ("partial-ignored", half, QUARTER),
    "half the exponent": ("wrong-exponent", with_frequencies(INVERSE.sqrt()), PLAIN),
    "exponent by the head": ("wrong-exponent", others.wrong_exponent_of_part, QUARTER),
    "sign": ("wrong-sign", lambda x, m: half(x, -m), PLAIN),
    "values": ("values-rotated", lambda q, k, v, m: (half(q, m), half(k, m), half(v, m)), None),
    "decaying lengths": ("norm-drift", lambda x, m: half(x, m) * 0.999 ** m[:, None].float(), None),
    "YaRN's amplitude missing": ("amplitude", lambda x, m: yarn(x, m, 0, 1), YARN),
    "YaRN's amplitude squared": ("amplitude", lambda x, m: yarn(x, m, 2, 1), YARN),
    "random frequencies": ("uninitialised-frequencies", with_frequencies(GARBAGE), PLAIN),
    "frequencies of zero": ("uninitialised-frequencies", with_frequencies(ZERO), None),
    "frequencies not numbers": ("uninitialised-frequencies", with_frequencies(ZERO / 0), None),
    "rule ignored": ("rule-ignored", lambda x, m: yarn(x, m, 1, 0), YARN),
    "rule twice": ("rule-applied-twice", lambda x, m: yarn(x, m, 1, 2), YARN),
    "in place": ("input-mutated", lambda x, m: x.copy_(half(x, m)), None),
    "theta": ("theta", half, RotarySpec(64, theta=500_000.0)),
    "gradient": ("gradient", others.wrong_gradient, PLAIN),
    "all frequencies multiplied": ("frequencies", lambda x, m: half(x, m * 1.00001), PLAIN),
    "rounded vectors": ("half-precision-angles", lambda x, m: half(x.bfloat16(), m).float(), PLAIN),
    "rows exchanged": ("batch", lambda x, positions: half(x, positions).roll(1, 0), None),
    "last layer's theta, not the first's": ("layer-types-mixed", half, GEMMA),
    "table of 2,048 rows": ("table-too-short", others.table_too_short, SERVES_8192),
    "layouts": ("layouts-mixed", others.layouts_mixed, PLAIN),
    "a half": ("overwritten-half", others.overwritten_half, PLAIN),
    "float16 tables": ("rounded-tables", others.rounded_tables, PLAIN),
    "rotated twice": ("rotated-twice", lambda x, m: half(half(x, m), m), PLAIN),
    "keys ahead": ("keys-shifted", lambda q, k, m: (half(q, m), half(k, m + 1)), None),
    "the last dimensions": ("rotary-part", RotaryEmbedding(QUARTER), LAST_QUARTER),
}


def said(report):
    return [(c.name, c.fault, c.says) for c in report.checks if c.verdict == "fault"]


@pytest.mark.parametrize("name", WRONG)
def test_each_fault_is_named_alone(name):
    fault, function, spec = WRONG[name]
    report = tools.verify(function, like=spec)
    assert report.faults == (fault,), said(report)
    assert all(check.cause for check in report.with_verdict("fault"))


def test_every_fault_is_planted():
    planted = {fault for fault, _, _ in WRONG.values()}
    assert planted | {fault for fault, _ in BESIDE_OTHERS.values()} == FAULTS.keys()


def test_a_layer_of_a_config_is_chosen():
    assert tools.verify(half, like=GEMMA_6, layer=5).faults == ("layer-types-mixed",)
    assert tools.verify(half, like=GEMMA_6).right


def test_arguments_that_cannot_be_used_are_refused():
    with pytest.raises(TypeError, match="target must be a function or module"):
        tools.verify(3)
    with pytest.raises(ValueError, match="the argument 'cache' of the target has no known role"):
        tools.verify(lambda x, cache: x)
    with pytest.raises(ValueError, match="form must name the role of each argument"):
        tools.verify(half, form="x,place")
    with pytest.raises(ValueError, match="axes must be bhsd or bshd"):
        tools.verify(half, axes="bdsh")
    with pytest.raises(ValueError, match="no call worked"):
        tools.verify(lambda x: x.sum())
    with pytest.raises(TypeError, match="like must be a RotarySpec"):
        tools.verify(half, like=3)
    with pytest.raises(ValueError, match="layer must be left out without like"):
        tools.verify(half, layer=0)
    with pytest.raises(ValueError, match="layer must be left out if like is one layer's"):
        tools.verify(half, like=PLAIN, layer=7)
    with pytest.raises(ValueError, match="head_dim must be at most 2,048, got 100,000,000"):
        tools.verify(half, head_dim=100_000_000)
    with pytest.raises(ValueError, match="returned complex64 for x"):
        tools.verify(lambda x, positions: torch.complex(x, x))
    with pytest.raises(ValueError, match="returned 1 tensor for q and k"):
        tools.verify(lambda q, k, positions: (q,))
    with pytest.raises(ValueError, match="wrap it in a function of x"):
        tools.verify(lambda x, positions: half(x, positions)[..., :3])


def test_a_stated_form_serves_unusual_names():
    unusual = {"form": "x,positions", "axes": "bhsd", "head_dim": 32}
    assert tools.verify(lambda a, b: half(a, b), **unusual).right
    torch.manual_seed(0)  # the random state is the caller's
    first = torch.rand(1)
    torch.manual_seed(0)
    tools.verify(half)
    assert torch.equal(torch.rand(1), first)


DYNAMIC = RotarySpec(64, scaling=scaling.DynamicNTK(4.0, original_length=4_096))
LONG = RotarySpec(
    64,
    scaling=scaling.LongRoPE(
        short_factor=[1.0] * 32,
        long_factor=[1.0 + i for i in range(32)],
        original_length=4_096,
        factor=4.0,
    ),
)


@pytest.mark.parametrize("spec", [DYNAMIC, LONG], ids=["dynamic", "longrope"])
@pytest.mark.parametrize("given", [None, 4_096, 100_000])
def test_a_rule_that_depends_on_the_length_is_compared_at_a_length(spec, given):
    """Fails if the length of the test calls, or a given one, is not that of the specification."""

    def of_the_call(x, positions):
        length = given or int(positions.max()) + 1
        frequencies = spec.inverse_frequencies(length).float()
        return half(x, positions, frequencies) * spec.amplitude_at(length)

    report = tools.verify(of_the_call, like=spec, length=given)
    assert set(report.faults) <= {"history"} if given is None else report.right, said(report)

    if given != 4_096:  # up to the original length the rule changes nothing
        assert not tools.verify(half, like=spec, length=given or 100_000).right


@pytest.mark.parametrize("theta", [123_457.0, 10_000.25, 10_060.0, 1e11])
def test_any_theta_is_right(theta):
    spec = RotarySpec(64, theta=theta)
    for like in (None, spec):
        report = tools.verify(RotaryEmbedding(spec), like=like)
        assert report.right, said(report)
    assert "theta" in tools.verify(RotaryEmbedding(spec), like=PLAIN).faults
    rule = scaling.NTKAware(theta / 10_000)  # a rule that makes a theta
    assert tools.verify(RotaryEmbedding(RotarySpec(64, scaling=rule))).right


def test_positions_that_count_from_1_are_a_remark():
    report = tools.verify(lambda x, m: half(x, m + 1), like=PLAIN)
    assert report.right, said(report)
    assert any(check.name == "position 0" for check in report.with_verdict("remark"))


def test_the_caller_decides_what_is_in_tables():
    report = tools.verify(others.transformers_llama, like=YARN)
    untested = {check.name for check in report.with_verdict("not tested")}
    assert {"frequencies", "amplitude"} <= untested
    assert report.right


def test_a_function_may_return_tables():
    def tables(x, positions):
        angles = positions[:, None].float() * others.inverse(64)
        return angles.cos(), angles.sin()

    assert tools.verify(tables, like=PLAIN).right
    assert "returns cos and sin" in tools.verify(tables).form
    assert tools.verify(tables, like=RotarySpec(64, theta=5e5)).faults == ("theta",)


def test_partial_rotation_is_ignored_under_a_rule_with_a_number_for_each_pair():
    rule = scaling.LongRoPE([1.0] * 24, [2.0] * 24, original_length=4_096, factor=4.0)
    partial = RotarySpec(64, rotary_dim=48, scaling=rule)
    assert "partial-ignored" in tools.verify(half, like=partial, length=4_096).faults


def theta_by_head(x, positions):
    f = torch.stack([others.inverse(64, 1e4 * (i + 1)) for i in range(x.shape[1])])
    return others.by_angles(x, positions[:, None] * f[:, None])


def as_float16(x, positions):
    return half(x, positions.half().float())


def leaves(x, positions):
    if len(positions) > 5:
        raise SystemExit(0)
    return half(x, positions)


#: Faults that may have others beside them.
BESIDE_OTHERS = {
    "one head": ("heads", lambda x, m: torch.cat((half(x[:, :1], m), x[:, 1:]), 1)),
    "heads exchanged": ("heads", lambda x, m: half(x, m).flip(1)),
    "theta by head": ("heads", theta_by_head),
    "few heads": ("heads", lambda x, m: half(x, m) if x.shape[1] <= 8 else x),
    "inputs exchanged": ("inputs-mixed", lambda q, k, m: (half(k, m), half(q, m))),
    "q twice": ("inputs-mixed", lambda q, k, m: (half(q, m), half(q, m))),
    "keys clamped": ("table-too-short", lambda q, k, m: (half(q, m), half(k, m.clamp(max=10**5)))),
    "keys detached": ("gradient", lambda q, k, m: (half(q, m), half(k.detach(), m))),
    "keys not rotated": ("not-a-rotation", lambda q, k, m: (half(q, m), k)),
    "keys in float16": ("half-precision-angles", lambda q, k, m: (half(q, m), as_float16(k, m))),
    "float16": ("half-precision-angles", lambda q, k, m: (as_float16(q, m), as_float16(k, m))),
    "exits": ("fails", leaves),
}


@pytest.mark.parametrize("name", BESIDE_OTHERS)
def test_every_head_and_both_inputs_are_checked(name):
    fault, function = BESIDE_OTHERS[name]
    assert fault in tools.verify(function).faults


def test_xpos_is_right_and_half_of_it_is_not():
    report = tools.verify(xpos)
    assert report.right, said(report)
    assert any("as in xPos" in check.says for check in report.with_verdict("remark"))
    without_keys = tools.verify(lambda q, k, m: (xpos(q, k, m)[0], half(k, m)))
    assert "norm-drift" in without_keys.faults


def test_numbers_that_json_lacks_are_none():
    report = Report(
        "f", "f(x)", (Check("norms", "fault", "", "norm-drift", {"drift": float("nan")}),)
    )
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["checks"][0]["numbers"] == {"drift": None}
