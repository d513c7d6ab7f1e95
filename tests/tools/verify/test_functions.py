"""`verify` of functions and modules: right code of others passes, and each fault is named.

These fail if right code has a fault, if a planted fault is not named by its identifier, or if a
fault that is not there is named beside it.
"""

import json

import pytest
import ropes_of_others as others
import torch

from ropewalk import RotaryEmbedding, RotarySpec, scaling, tools
from ropewalk.tools.verify import FAULTS, Check, Report

PLAIN, NEIGHBORS = RotarySpec(64), RotarySpec(64, pairing="interleaved")
QUARTER = RotarySpec(64, rotary_dim=16)
YARN = RotarySpec(64, scaling=scaling.YaRN(4.0, original_length=4096))

RIGHT = {
    "transformers' Llama, tables": (others.TransformersLlama(), PLAIN),
    "transformers' Llama, applied": (others.transformers_llama, PLAIN),
    "GPT-J": (others.gptj, NEIGHBORS),
    "GPT-NeoX": (others.GPTNeoX(), QUARTER),
    "torchtune": (others.Torchtune(), NEIGHBORS),
    "rotary-embedding-torch": (
        others.RotaryEmbeddingTorch().rotate_queries_or_keys,
        NEIGHBORS,
    ),
    "x-transformers": (others.x_transformers, NEIGHBORS),
    "Meta": (others.meta_llama, NEIGHBORS),
    "lucidrains": (others.lucidrains_palm, PLAIN),
    "ropewalk": (RotaryEmbedding(YARN), YARN),
}


def yarn_without(x, positions, *, amplitude=0, frequencies=1):
    """YaRN with its amplitude and its frequencies applied so many times."""
    ratio = YARN.inverse_frequencies() / PLAIN.inverse_frequencies()
    f = PLAIN.inverse_frequencies() * ratio**frequencies
    return others.half(x, positions, f.float()) * YARN.amplitude_at() ** amplitude


def ignored(x, positions):
    return yarn_without(x, positions, amplitude=1, frequencies=0)


def twice(x, positions):
    return yarn_without(x, positions, amplitude=1, frequencies=2)


def squared(x, positions):
    return yarn_without(x, positions, amplitude=2)


def missing(x, positions):
    return yarn_without(x, positions)


WRONG = {
    "alternating table": ("cos-sin-mixed", others.cos_sin_mixed, None),
    "swapped tables": ("cos-sin-mixed", others.cos_sin_mixed_swapped, None),
    "position added": ("not-a-rotation", others.not_a_rotation_added, None),
    "cosine matrix": ("not-a-rotation", others.not_a_rotation_matrix, None),
    "cosines of i·j": ("not-a-rotation", others.not_a_rotation_scaled, None),
    "pairing": ("pairing", others.pairing, NEIGHBORS),
    "q and k paired differently": ("pairing", others.mixed_pairings, None),
    "bfloat16 angles": ("half-precision-angles", others.half_precision_angles, None),
    "bfloat16 angles, specified": ("half-precision-angles", others.half_precision_angles, PLAIN),
    "bfloat16 positions": ("half-precision-angles", others.half_precision_positions, PLAIN),
    "float16 frequencies": ("half-precision-angles", others.half_precision_float16, PLAIN),
    "last row repeated": ("table-too-short", others.table_too_short_clamped, PLAIN),
    "last row repeated, no spec": ("table-too-short", others.table_too_short_clamped, None),
    "table of the first call": ("stale-table", others.StaleTable(), None),
    "bfloat16 stays": ("stale-table", others.StaleAfterBfloat16(), None),
    "dynamic NTK": ("history", others.History(), None),
    "dynamic NTK of the call": ("history", others.history_of_this_call, None),
    "offset": ("offset-ignored", others.offset_ignored, None),
    "positions": ("positions-ignored", others.positions_ignored, PLAIN),
    "partial": ("partial-ignored", others.partial_ignored, QUARTER),
    "half the exponent": ("wrong-exponent", others.wrong_exponent, PLAIN),
    "exponent by the head": ("wrong-exponent", others.wrong_exponent_of_part, QUARTER),
    "sign": ("wrong-sign", others.wrong_sign, PLAIN),
    "values": ("values-rotated", others.values_rotated, None),
    "decaying lengths": ("norm-drift", others.norm_drift, None),
    "YaRN's amplitude missing": ("amplitude", missing, YARN),
    "YaRN's amplitude squared": ("amplitude", squared, YARN),
    "random frequencies": ("uninitialised-frequencies", others.uninitialised_frequencies, PLAIN),
    "frequencies of zero": ("uninitialised-frequencies", others.uninitialised_zeros, None),
    "frequencies not numbers": ("uninitialised-frequencies", others.uninitialised_nan, None),
    "rule ignored": ("rule-ignored", ignored, YARN),
    "rule twice": ("rule-applied-twice", twice, YARN),
    "in place": ("input-mutated", others.input_mutated, None),
    "theta": ("theta", others.theta_lost, RotarySpec(64, theta=500_000.0)),
    "gradient": ("gradient", others.wrong_gradient, PLAIN),
}


def said(report):
    return [(c.name, c.fault, c.says) for c in report.checks if c.verdict == "fault"]


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("specified", [True, False])
def test_right_code_has_no_fault(name, specified):
    function, spec = RIGHT[name]
    report = tools.verify(function, like=spec if specified else None)
    assert report.right, said(report)
    assert sum(check.verdict == "right" for check in report.checks) >= 8


@pytest.mark.parametrize("name", WRONG)
def test_each_fault_is_named_alone(name):
    fault, function, spec = WRONG[name]
    report = tools.verify(function, like=spec)
    assert report.faults == (fault,), said(report)
    assert all(check.cause for check in report.with_verdict("fault"))


def test_every_fault_is_planted():
    planted = {fault for fault, _, _ in WRONG.values()}
    elsewhere = {"layer-types-mixed", "rotary-part", "frequencies", "batch", "fails"}
    elsewhere |= {"heads", "inputs-mixed"}
    assert planted | elsewhere == FAULTS.keys()


def test_a_table_that_ends_within_the_promised_length_is_too_short():
    config = {"model_type": "llama", "head_dim": 64, "num_hidden_layers": 1}
    like = {**config, "rope_theta": 10_000.0, "max_position_embeddings": 8_192}
    report = tools.verify(others.table_too_short, like=like)
    assert report.faults == ("table-too-short",), said(report)


def test_the_rope_of_another_layer_type_is_recognised():
    config = {
        "model_type": "gemma3_text",
        "head_dim": 64,
        "num_hidden_layers": 6,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "sliding_window_pattern": 6,
    }
    report = tools.verify(others.half, like=config, layer=5)
    assert report.faults == ("layer-types-mixed",), said(report)
    assert tools.verify(others.half, like=config, layer=0).right


def test_other_dimensions_and_other_frequencies_are_faults():
    last = RotarySpec(64, rotary_dim=16, start=48)
    assert tools.verify(RotaryEmbedding(QUARTER), like=last).faults == ("rotary-part",)
    odd = RotarySpec(64, scaling=scaling.Llama3(8.0, 1.0, 4.0, 8192))
    assert "frequencies" in tools.verify(RotaryEmbedding(YARN), like=odd).faults


def test_batches_that_share_rows_and_functions_that_fail_have_faults():
    def rolled(x, positions):
        return others.half(x, positions).roll(1, 0)

    def fails_later(x, positions):
        if len(positions) > 5:
            raise RuntimeError("no more")
        return others.half(x, positions)

    assert tools.verify(rolled).faults == ("batch",)
    report = tools.verify(fails_later)
    assert "fails" in report.faults
    assert any("no more" in check.says for check in report.checks)


@pytest.mark.parametrize("name", ["half", "interleaved"])
def test_any_spec_is_like_itself_and_unlike_its_neighbors(name):
    spec = RotarySpec(48, rotary_dim=32, theta=1e6, pairing=name, start=8)
    rope = RotaryEmbedding(spec)
    assert tools.verify(rope, like=spec).right
    for other in (
        RotarySpec(48, rotary_dim=32, theta=2e6, pairing=name, start=8),
        RotarySpec(48, rotary_dim=30, theta=1e6, pairing=name, start=8),
        RotarySpec(48, rotary_dim=32, theta=1e6, pairing=name, start=8, reverse=True),
        RotarySpec(48, rotary_dim=32, theta=1e6, pairing=name, start=8, amplitude=1.1),
    ):
        assert not tools.verify(rope, like=other).right


def test_arguments_that_cannot_be_used_are_refused():
    with pytest.raises(TypeError, match="target must be a function or module"):
        tools.verify(3)
    with pytest.raises(ValueError, match="the argument 'cache' of the target has no known role"):
        tools.verify(lambda x, cache: x)
    with pytest.raises(ValueError, match="form must name the role of each argument"):
        tools.verify(others.half, form="x,place")
    with pytest.raises(ValueError, match="axes must be bhsd or bshd"):
        tools.verify(others.half, axes="bdsh")
    with pytest.raises(ValueError, match="no call worked"):
        tools.verify(lambda x: x.sum())
    with pytest.raises(TypeError, match="like must be a RotarySpec"):
        tools.verify(others.half, like=3)
    with pytest.raises(ValueError, match="layer must be left out without like"):
        tools.verify(others.half, layer=0)


def test_a_stated_form_serves_unusual_names():
    def unusual(a, b):
        return others.half(a, b)

    assert tools.verify(unusual, form="x,positions", axes="bhsd", head_dim=32).right
    torch.manual_seed(0)  # the random state is the caller's
    first = torch.rand(1)
    torch.manual_seed(0)
    tools.verify(others.half)
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
        return others.half(x, positions, frequencies) * spec.amplitude_at(length)

    report = tools.verify(of_the_call, like=spec, length=given)
    assert set(report.faults) <= {"history"} if given is None else report.right, said(report)

    def never_scaled(x, positions):
        return others.half(x, positions)

    if given != 4_096:  # up to the original length the rule changes nothing
        assert not tools.verify(never_scaled, like=spec, length=given or 100_000).right


@pytest.mark.parametrize("theta", [123_457.0, 10_000.25, 10_060.0, 1e11])
def test_any_theta_is_right(theta):
    spec = RotarySpec(64, theta=theta)
    for like in (None, spec):
        report = tools.verify(RotaryEmbedding(spec), like=like)
        assert report.right, said(report)
    assert "theta" in tools.verify(RotaryEmbedding(spec), like=PLAIN).faults


@pytest.mark.parametrize("factor", [2.0, 8.0, 32.0])
def test_any_base_of_a_rule_is_right_without_a_specification(factor):
    spec = RotarySpec(64, scaling=scaling.NTKAware(factor))
    assert tools.verify(RotaryEmbedding(spec)).right


def test_positions_that_count_from_1_are_a_remark():
    def from_one(x, positions):
        return others.half(x, positions + 1)

    report = tools.verify(from_one, like=PLAIN)
    assert report.right, said(report)
    assert any(check.name == "position 0" for check in report.with_verdict("remark"))


def test_the_caller_decides_what_is_in_tables():
    report = tools.verify(others.transformers_llama, like=YARN)
    untested = {check.name for check in report.with_verdict("not tested")}
    assert {"frequencies", "amplitude"} <= untested
    assert report.right


def test_rounded_vectors_are_named_and_the_rest_is_checked():
    def rounded(x, positions):
        return others.half(x.bfloat16(), positions).float()

    report = tools.verify(rounded, like=PLAIN)
    assert report.faults == ("half-precision-angles",), said(report)
    assert len(report.checks) > 10


def test_a_function_may_return_tables():
    def tables(x, positions):
        angles = positions[:, None].float() * others.inverse(64)
        return angles.cos(), angles.sin()

    assert tools.verify(tables, like=PLAIN).right
    assert "returns cos and sin" in tools.verify(tables).form
    assert tools.verify(tables, like=RotarySpec(64, theta=5e5)).faults == ("theta",)


def test_a_layer_of_one_rope_is_refused():
    with pytest.raises(ValueError, match="layer must be left out if like is one layer's"):
        tools.verify(others.half, like=PLAIN, layer=7)


def test_partial_rotation_is_ignored_under_a_rule_with_a_number_for_each_pair():
    rule = scaling.LongRoPE([1.0] * 24, [2.0] * 24, original_length=4_096, factor=4.0)
    partial = RotarySpec(64, rotary_dim=48, scaling=rule)
    assert "partial-ignored" in tools.verify(others.half, like=partial, length=4_096).faults


def one_head(x, positions):
    return torch.cat((others.half(x[:, :1], positions), x[:, 1:]), 1)


def swapped_heads(x, positions):
    return others.half(x, positions).flip(1)


def theta_by_head(x, positions):
    f = torch.stack([others.inverse(64, 1e4 * (i + 1)) for i in range(x.shape[1])])
    angles = positions[:, None] * f[:, None]
    angles = torch.cat((angles, angles), -1)
    return x * angles.cos() + others.rotate_half(x) * angles.sin()


def few_heads(x, positions):
    return others.half(x, positions) if x.shape[1] <= 8 else x


def swapped_inputs(q, k, positions):
    return others.half(k, positions), others.half(q, positions)


def twice_q(q, k, positions):
    return others.half(q, positions), others.half(q, positions)


def keys_clamped(q, k, positions):
    return others.half(q, positions), others.half(k, positions.clamp(max=100_000))


def keys_detached(q, k, positions):
    return others.half(q, positions), others.half(k.detach(), positions)


def keys_unrotated(q, k, positions):
    return others.half(q, positions), k


def keys_overflow(q, k, positions):
    return others.half(q, positions), others.half(k, positions.half().float())


def nudged(x, positions):
    return others.half(x, positions * 1.00001)


def leaves(x, positions):
    if len(positions) > 5:
        raise SystemExit(0)
    return others.half(x, positions)


@pytest.mark.parametrize(
    ("fault", "function"),
    [
        ("heads", one_head),
        ("heads", swapped_heads),
        ("heads", theta_by_head),
        ("heads", few_heads),
        ("inputs-mixed", swapped_inputs),
        ("inputs-mixed", twice_q),
        ("table-too-short", keys_clamped),
        ("gradient", keys_detached),
        ("not-a-rotation", keys_unrotated),
        ("half-precision-angles", keys_overflow),
        ("fails", leaves),
    ],
)
def test_every_head_and_both_inputs_are_checked(fault, function):
    assert fault in tools.verify(function).faults


def test_frequencies_that_are_all_multiplied_are_no_rounding():
    assert tools.verify(nudged, like=PLAIN).faults == ("frequencies",)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x, positions: torch.complex(x, x), "returned complex64 for x"),
        (lambda q, k, positions: (q,), "returned 1 tensor for q and k"),
        (lambda x, positions: others.half(x, positions)[..., :3], "wrap it in a function of x"),
    ],
)
def test_what_is_no_rotated_vector_is_refused(function, message):
    with pytest.raises(ValueError, match=message):
        tools.verify(function)


def test_a_size_of_heads_is_bounded():
    with pytest.raises(ValueError, match="head_dim must be at most 2,048, got 100,000,000"):
        tools.verify(others.half, head_dim=100_000_000)


def xpos(q, k, positions, base=512.0):
    """Queries grow as keys shrink, by a factor of each pair."""
    pairs = torch.arange(0, 64, 2).float()
    zeta = ((pairs / 64 + 0.4) / 1.4) ** (positions[:, None].float() / base)
    zeta = torch.cat((zeta, zeta), -1)
    return others.half(q, positions) * zeta, others.half(k, positions) / zeta


def test_xpos_is_right_and_half_of_it_is_not():
    report = tools.verify(xpos)
    assert report.right, said(report)
    assert any("as in xPos" in check.says for check in report.with_verdict("remark"))

    def without_keys(q, k, positions):
        return xpos(q, k, positions)[0], others.half(k, positions)

    assert "norm-drift" in tools.verify(without_keys).faults


def test_numbers_that_json_lacks_are_none():
    report = Report(
        "f", "f(x)", (Check("norms", "fault", "", "norm-drift", {"drift": float("nan")}),)
    )
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["checks"][0]["numbers"] == {"drift": None}
