"""The rules of `ropewalk.scaling`, each against its own published source.

These fail when a rule's formula, its amplitude or the rounding of its frequencies departs from the
paper or the code that published it, and when a rule takes what it cannot do.
"""

import dataclasses
import math
import re

import pytest
import torch
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from refusals import check_refused

from ropewalk import RotaryEmbedding, RotarySpec, axes, scaling
from ropewalk.rotary.config.rope_fields import write_scaling
from ropewalk.rotary.scaling import RULES, Scaling

NEEDS_TRANSFORMERS = "needs transformers, an outside reference: pip install 'ropewalk[dev]'"
NEEDS_MPMATH = "needs mpmath, the outside reference for angles: pip install 'ropewalk[dev]'"

L = 64
SHORT = (1.0, 1.05, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)
LONG = (1.0, 1.5, 2.75, 5.0, 9.0, 15.0, 24.0, 36.0)
LONGROPE = scaling.LongRoPE(SHORT, LONG, original_length=L, factor=8.0)
ONE_OF_EACH = [
    scaling.Linear(factor=4.0),
    scaling.NTKAware(factor=4.0),
    scaling.MixedNTK(factor=8.0),
    scaling.MixedNTK(factor=8.0, mixed_b=0.625),
    scaling.DynamicNTK(factor=2.0, original_length=L),
    scaling.QwenNTK(original_length=L),
    scaling.YaRN(factor=16.0, original_length=4096),
    scaling.YaRN(factor=32.0, original_length=4096, truncate=False),
    LONGROPE,
    scaling.Llama3(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_length=8192),
    scaling.Proportional(fraction=0.25, factor=2.0),
]
lengths = st.integers(1, 4 * L)


def name(rule: Scaling) -> str:
    return type(rule).__name__


def ropes(rule: Scaling, **arguments) -> RotaryEmbedding:
    return RotaryEmbedding(RotarySpec(16, scaling=rule, **arguments))


def frequencies(
    rule: Scaling, rotary_dim: int = 16, theta: float = 1e4, length=None
) -> list[float]:
    return RotarySpec(rotary_dim, theta=theta, scaling=rule).inverse_frequencies(length).tolist()


def close(ours: list[float], theirs: list[float], rel: float = 1e-12) -> None:
    assert ours == pytest.approx(theirs, rel=rel, abs=0)


def exact(rule: Scaling, theta: float, rotary_dim: int, length: int | None) -> list:
    """The source's frequencies to 60 digits."""
    mpmath = pytest.importorskip("mpmath", reason=NEEDS_MPMATH)
    from scaling_formulas import scaled_frequencies

    with mpmath.workdps(60):
        return scaled_frequencies(write_scaling(rule), theta, rotary_dim, length)


factors = st.floats(1, 64)
thetas = st.sampled_from([1e4, 5e5, 1e6]) | st.floats(100, 1e8)


@st.composite
def rules(draw, rotary_dim: int):
    kind = draw(st.sampled_from(RULES))
    low = draw(st.floats(0.1, 8))
    wide = low + draw(st.floats(0.01, 40))
    original = draw(st.integers(2, 1 << 17))
    if kind is scaling.DynamicNTK:
        return kind(draw(factors), original)
    if kind is scaling.QwenNTK:
        return kind(original)
    if kind is scaling.YaRN:
        return kind(draw(factors), original, wide, low, draw(st.booleans()))
    if kind is scaling.LongRoPE:
        divisors = st.tuples(*[st.floats(0.5, 100)] * (rotary_dim // 2))
        return kind(draw(divisors), draw(divisors), original)
    if kind is scaling.Llama3:
        return kind(draw(factors), low, wide, original)
    if kind is scaling.Proportional:
        return kind(draw(st.floats(0.01, 1)), draw(factors))
    return kind(draw(factors))


def frequencies_if_any(rule, rotary_dim: int, theta: float, length: int) -> list[float]:
    """A YaRN without a band and a Proportional without a pair are no examples."""
    try:
        return frequencies(rule, rotary_dim, theta, length)
    except ValueError as error:
        if re.search("must be such that pairs|must leave at least one pair", str(error)):
            reject()
        raise


@given(st.data(), st.sampled_from([4, 16, 64]), thetas, st.integers(1, 1 << 18))
def test_every_rule_is_its_source_and_its_frequencies_are_correctly_rounded(
    data, rotary_dim, theta, length
):
    rule = data.draw(rules(rotary_dim), label="rule")
    ours = frequencies_if_any(rule, rotary_dim, theta, length)
    assert ours == [float(f) for f in exact(rule, theta, rotary_dim, length)]


FAR = [0, 1, -1, 4_095, 131_072, 10_000_000, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("rule", ONE_OF_EACH, ids=name)
@given(st.sampled_from(FAR) | st.integers(-(2**31), 2**31 - 1), thetas, lengths)
def test_angles_are_exact_at_any_position_under_every_rule(rule, position, theta, length):
    mpmath = pytest.importorskip("mpmath", reason=NEEDS_MPMATH)
    rope = ropes(rule, theta=theta)
    amplitude = rope.spec.amplitude_at(length)
    cos, sin = rope._tables.at(torch.tensor([position]), length)  # served or not
    assert cos.dtype == sin.dtype == torch.float32
    with mpmath.workdps(60):
        for i, f in enumerate(exact(rule, theta, 16, length)):
            angle = position * f
            assert abs(cos[0, i].item() - amplitude * mpmath.cos(angle)) <= 1e-7 * amplitude
            assert abs(sin[0, i].item() - amplitude * mpmath.sin(angle)) <= 1e-7 * amplitude


# What a rule must do, whatever its numbers


@pytest.mark.parametrize("low", [0.0, 1.0])
def test_yarn_with_both_betas_alike_is_a_step(low):
    """Whole pairs when truncated; without, pair i is divided as soon as it lies behind c(beta)."""
    rule = scaling.YaRN(4.0, 4096, beta_fast=4.0, beta_slow=4.0, truncate=bool(low))
    ours = [s / f for s, f in zip(frequencies(rule), frequencies(scaling.Linear(1.0)), strict=True)]
    border = 16 * math.log(4096 / (4.0 * 2 * math.pi)) / (2 * math.log(1e4))
    expected = [1.0 if i <= border else 0.25 for i in range(8)]
    assert ours == pytest.approx(expected, rel=1e-12)


def test_yarn_with_a_whole_pair_at_both_ends_blends_over_a_thousandth():
    """low = high = 0 where training saw less than a rotation: the first pair stays."""
    rule = scaling.YaRN(4.0, 6, beta_fast=0.95, beta_slow=0.95)
    close(frequencies(rule), [1.0, *(f / 4 for f in frequencies(scaling.Linear(1.0))[1:])])


def test_yarn_blends_up_to_the_last_dimension():
    """Pair 2 turns about beta_fast times within L, and high, pair 12, is clamped to R - 1 = 7."""
    rule = scaling.YaRN(4.0, round(2 * math.pi * 1e6), beta_fast=9e4)
    ours = [f * 10 ** (i / 2) for i, f in enumerate(frequencies(rule, 8, theta=100.0))]
    assert ours == pytest.approx([1.0, 1.0, 1.0, 0.8 + 0.2 / 4], rel=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 64])
def test_lengths_with_one_key_have_the_same_frequencies(size):
    """Fails if a length just before or after a border counts on the wrong side."""
    long = scaling.LongRoPE(SHORT, LONG, size + 1)
    for rule in (scaling.DynamicNTK(2.0, size), scaling.QwenNTK(size), long):
        for length in range(1, 4 * size + 3):
            key = rule.length_key(length)
            ours = frequencies(rule, length=length)
            assert ours == frequencies(rule, length=key)
            one_less = frequencies(rule, length=length - 1) if length > 1 else ours
            assert (rule.length_key(max(length - 1, 1)) == key) == (one_less == ours)


@pytest.mark.parametrize("size", [1, L])
def test_qwens_factor_doubles_behind_each_power_of_two(size):
    """`get_ntk_alpha` of modeling_qwen.py."""
    for length in range(1, 5 * size):
        alpha = max(2 ** math.ceil(math.log2(length / size) + 1) - 1, 1)
        grown = scaling.NTKAware(float(alpha))
        close(frequencies(scaling.QwenNTK(size), length=length), frequencies(grown))


def test_llama3_with_both_factors_alike_has_a_frequency_at_the_border():
    at_the_border = 2 * math.pi * 2048  # the one pair's wavelength is 2π: L / 2π rotates
    assert frequencies(scaling.Llama3(2.0, at_the_border, at_the_border, 2048), 2)[0] in (0.5, 1.0)


def test_proportional_rotates_whole_pairs_of_the_whole_width():
    """Gemma 4's full attention: 512 wide, a quarter rotates, so channels 0-63 and 256-319."""
    rope = RotaryEmbedding(RotarySpec(512, theta=1e6, scaling=scaling.Proportional(0.25)))
    x = torch.randn(1, 1, 4, 512)
    rotated = rope.rotate(x, torch.tensor([3, 77, 4_000, 10_000_000]))
    still = (rotated == x).all(dim=-2).flatten().nonzero().flatten().tolist()
    assert still == [*range(64, 256), *range(320, 512)]


# Amplitudes

YARN = {"factor": 40.0, "original_length": 4096}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (scaling.Linear(4.0), 1),
        (scaling.NTKAware(4.0), 1),
        (scaling.MixedNTK(8.0), 1),
        (scaling.Llama3(8.0, 1.0, 4.0, 8192), 1),
        (scaling.Proportional(0.25), 1),
        (scaling.YaRN(**YARN), 1.3688879454113936),
        (scaling.YaRN(**YARN, mscale=1.0), 1.3688879454113936),
        (scaling.YaRN(**YARN, mscale_all_dim=0.5), 1.3688879454113936),
        (scaling.YaRN(**YARN, mscale=0.0, mscale_all_dim=1.0), 1.3688879454113936),
        (scaling.YaRN(**YARN, mscale=1.0, mscale_all_dim=1.0), 1),
        (scaling.YaRN(**YARN, mscale=0.707, mscale_all_dim=0.707), 1),
        (scaling.YaRN(**YARN, mscale=1.0, mscale_all_dim=0.5), 1.3688879454113936 / 1.184443973),
        (scaling.YaRN(**YARN, attention_factor=1.0), 1),
        (scaling.YaRN(**YARN, attention_factor=0.5, mscale=2.0, mscale_all_dim=1.0), 0.5),
        (scaling.YaRN(32.0, 4096, truncate=False), 1.3465735902799727),
        (scaling.YaRN(0.5, 4096), 1),
        (scaling.YaRN(1.5, 4096), 1.0405465108108164),
    ],
    ids=lambda value: None if isinstance(value, float) else str(value)[:60],
)
def test_amplitude(rule, expected):
    """0.1 ln 40 + 1 and 0.1 ln 32 + 1 (gpt-oss), the ratio of DeepSeek-V2's two mscales, …"""
    assert rule.amplitude(None) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("given", "short", "long"),
    [
        ({"factor": 32.0}, 1.1902380714238083, 1.1902380714238083),
        ({"factor": 1.0}, 1, 1),
        ({"factor": 0.5}, 1, 1),
        ({"factor": 1.5}, 1.0240834316890868, 1.0240834316890868),
        ({"factor": 32.0, "attention_factor": 1.25}, 1.25, 1.25),
        ({"factor": 32.0, "short_mscale": 1.1}, 1.1, 1.1902380714238083),
        ({"attention_factor": 2.0, "long_mscale": 1.2}, 2.0, 1.2),
    ],
)
def test_amplitude_of_longrope(given, short, long):
    """Phi-3-mini-128k: sqrt(1 + ln 32 / ln 4096) = 1.1902."""
    rule = scaling.LongRoPE(SHORT, LONG, 4096, **given)
    spec = RotarySpec(16, scaling=rule)
    assert spec.amplitude_at(4096) == pytest.approx(short, rel=1e-9)
    assert spec.amplitude_at(4097) == pytest.approx(long, rel=1e-9)


# transformers


def init_function(rule_type: str):
    utils = pytest.importorskip("transformers.modeling_rope_utils", reason=NEEDS_TRANSFORMERS)
    return utils.ROPE_INIT_FUNCTIONS[rule_type]


def theirs(rule: Scaling, theta: float, length: int | None = None) -> tuple[list[float], float]:
    fields = write_scaling(rule)
    compute = init_function(fields["rope_type"])
    from transformers import LlamaConfig

    config = LlamaConfig(
        hidden_size=64,
        num_attention_heads=1,
        max_position_embeddings=4096,
        rope_parameters={**fields, "rope_theta": theta},
    )
    computed, amplitude = compute(config, "cpu", seq_len=length)
    return computed.double().tolist(), amplitude


EVEN_32 = tuple(1 + i / 31 for i in range(32))
RISING_32 = tuple(1 + 2.0 * i for i in range(32))


@pytest.mark.parametrize("theta", [1e4, 5e5])
@pytest.mark.parametrize(
    ("rule", "length"),
    [
        (scaling.Linear(4.0), None),
        (scaling.DynamicNTK(2.0, 4096), 1000),
        (scaling.DynamicNTK(2.0, 4096), 5000),
        (scaling.DynamicNTK(4.0, 4096), 131_072),
        (scaling.YaRN(16.0, 4096), None),
        (scaling.YaRN(16.0, 131_072), None),
        (scaling.YaRN(16.0, 4096, truncate=False), None),
        (scaling.YaRN(16.0, 4096, 8.0, 2.0, attention_factor=1.5), None),
        (scaling.YaRN(16.0, 4096, 4.0, 4.0), None),
        (scaling.YaRN(40.0, 4096, mscale=1.0, mscale_all_dim=0.8), None),
        (scaling.LongRoPE(EVEN_32, RISING_32, 4096, 8.0), 4096),
        (scaling.LongRoPE(EVEN_32, RISING_32, 4096, 8.0), 4097),
        (scaling.LongRoPE(EVEN_32, RISING_32, 4096, attention_factor=1.5), 1),
        (scaling.Llama3(8.0, 1.0, 4.0, 2048), None),
        (scaling.Llama3(32.0, 1.0, 4.0, 2048), None),
        (scaling.Llama3(16.0, 1.0, 1.0, 2048), None),
        (scaling.Proportional(0.25, 2.0), None),
        (scaling.Proportional(0.3), None),
    ],
)
def test_frequencies_and_amplitude_are_those_of_transformers(rule, length, theta):
    """Up to float32. Its `truncate` is honored here since this config has no layer types: nested
    under one, it is ignored. For NTK-aware without a length it has no function; its dynamic module
    keeps the largest length seen, which a single call of the function does not show.
    """
    expected, amplitude = theirs(rule, theta, length)
    spec = RotarySpec(64, theta=theta, scaling=rule)
    close(spec.inverse_frequencies(length).tolist(), expected, rel=2e-5)
    assert spec.amplitude_at(length) == pytest.approx(amplitude, rel=1e-12)


# What a rule refuses


def made(rule, *arguments, **others):
    return lambda: rule(*arguments, **others)


def scaled(rule, size: int = 16, **others):
    return lambda: RotarySpec(size, scaling=rule, **others)


@dataclasses.dataclass(frozen=True, repr=False)
class Same(Scaling):
    """A user's own rule, which gives as many frequencies as it is told."""

    count: int

    def frequencies(self, rope, length):
        return (rope.frequencies() * 2)[: self.count]


#: Rules that take any original length from 1 on, with the arguments before it.
BY_LENGTH = [
    (scaling.DynamicNTK, (2.0,)),
    (scaling.QwenNTK, ()),
    (scaling.YaRN, (2.0,)),
    (scaling.Llama3, (8.0, 1.0, 4.0)),
]


def test_the_borders_of_what_a_rule_takes():
    for rule, before in BY_LENGTH:
        assert rule(*before, 1).original_length == 1
    assert frequencies(scaling.Proportional(1.0)) == frequencies(scaling.Linear(1.0))


def test_a_rule_refuses_what_it_cannot_do_when_it_is_made():
    yarn, longrope, one = scaling.YaRN, scaling.LongRoPE, (1.0,)
    band = "otherwise the blend is reversed"
    check_refused(
        ValueError,
        (made(scaling.Linear, 0.0), "factor must be finite and above 0, got 0.0"),
        (made(scaling.NTKAware, math.inf), "factor must be finite and above 0"),
        (made(scaling.MixedNTK, 2.0, 0.0), "mixed_b must be finite and above 0"),
        *(
            (made(rule, *given, 0), "original_length must be at least 1")
            for rule, given in BY_LENGTH
        ),
        (made(yarn, 2.0, 9, 1.0, 2.0), "beta_fast must be at least beta_slow"),
        (made(yarn, 2.0, 9, mscale=-1.0), "mscale must be finite and not neg"),
        (made(yarn, 2.0, 9, attention_factor=0), "attention_factor must be f"),
        (made(longrope, one, (0.0,), 9), "long_factor[0] must be finite and above 0, got 0.0"),
        (made(longrope, one * 2, one, 9), "as many entries as short_factor, 2, got 1"),
        (made(longrope, one, one, 9, long_mscale=0.0), "long_mscale must be finite and abo"),
        (made(longrope, one, one, 1), "original_length must be at lea"),
        (made(scaling.Llama3, 2.0, 4.0, 1.0, 9), "at least low_freq_factor=4.0, got 1.0"),
        (made(scaling.Proportional, 1.5), "fraction must be at most 1, all pairs"),
        (made(scaling.Proportional, 0.0), "fraction must be finite and above 0"),
        (scaled(longrope(one * 7, one * 7, 9)), "an entry for each of 8 pairs, got 7"),
        (scaled(Same(7)), "a frequency for each of 8 pairs, got 7 from Same(count=7)"),
        (scaled(Same(9)), "a frequency for each of 8 pairs, got 9"),
        (scaled(scaling.NTKAware(2.0), 2), "must be above 2 for an NTK rule, got 2"),
        (scaled(scaling.DynamicNTK(2.0, 9), 2), "must be above 2 for an NTK rule, got 2"),
        (made(scaling.NTKAware(4.0).larger_theta, 1e4, 2), "rotary_dim must be above 2"),
        (scaled(yarn(2.0, 9), theta=1.0), "theta must not be 1 for YaRN"),
        (scaled(scaling.Proportional(0.01), 64), "one pair to rotate, got 0.01 of 32"),
        # All pairs rotate more often than beta_fast within L, or all less than beta_slow.
        (scaled(yarn(4.0, 4096), 64, theta=2.0), band),
        (scaled(yarn(4.0, 1 << 22), 64, theta=100.0), band),
        (scaled(yarn(4.0, 4), 64, theta=10_000.0), band),
        (scaled(yarn(4.0, 4096), 64, theta=0.5), band),
    )
    check_refused(
        TypeError,
        (made(scaling.Linear, "2"), "factor must be a float, got '2' of type str"),
        (made(scaling.DynamicNTK, 2.0, 9.0), "original_length must be an int, got 9."),
        (made(yarn, 2.0, 9, truncate=1), "truncate must be True or False"),
        (made(longrope, 1.0, 2.0, 9), "short_factor must be a tuple of floats"),
        (scaled("yarn"), "scaling must be a rule of ropewalk.sc"),
        (scaled(yarn), "scaling must be a rule of rope"),
    )


EXTREME = st.sampled_from(
    [5e-324, 1e-308, 1e-100, 1e-18, 1e-9, 0.5, 1.0, 1e9, 1e18, 1e19, 1e38, 1e60, 1e200, 1e308]
)
LENGTHS = st.sampled_from([1, 2, 8, 4096, 2**31, 2**63 - 1])
FOUR = st.lists(EXTREME, min_size=4, max_size=4)
EXTREME_RULES = st.one_of(
    st.tuples(st.sampled_from([scaling.Linear, scaling.NTKAware]), st.tuples(EXTREME)),
    st.tuples(
        st.sampled_from([scaling.Proportional, scaling.MixedNTK]), st.tuples(EXTREME, EXTREME)
    ),
    st.tuples(st.just(scaling.DynamicNTK), st.tuples(EXTREME, LENGTHS)),
    st.tuples(st.just(scaling.Llama3), st.tuples(EXTREME, EXTREME, EXTREME, LENGTHS)),
    st.tuples(
        st.just(scaling.YaRN),
        st.tuples(EXTREME, LENGTHS, EXTREME, EXTREME, st.booleans(), *[st.none() | EXTREME] * 3),
    ),
    st.tuples(
        st.just(scaling.LongRoPE),
        st.tuples(FOUR, FOUR, LENGTHS, EXTREME, *[st.none() | EXTREME] * 3),
    ),
)
EXTREME_THETAS = st.sampled_from([5e-324, 1e-300, 1e-20, 0.5, 1.0, 1e4, 1e100, 1e300, 1e308])


@settings(max_examples=100)
@given(st.none() | EXTREME_RULES, EXTREME_THETAS, st.sampled_from([8, 64]), LENGTHS)
@example(None, 5e-324, 64, 1)
@example((scaling.DynamicNTK, (1e308, 8)), 1e4, 8, 100)
@example((scaling.DynamicNTK, (1e200, 8)), 1e4, 8, 1)
@example((scaling.Linear, (1e308,)), 1e4, 8, 1)
@example((scaling.LongRoPE, ((1.0,) * 4, (1e308,) * 4, 8)), 1e4, 8, 9)
@example((scaling.LongRoPE, ((1.0,) * 4, (1.0,) * 4, 8, 1.0, None, 1.0, 1e30)), 1e4, 8, 9)
def test_a_spec_that_is_accepted_has_facts_that_are_numbers(rule, theta, rotary_dim, length):
    try:
        made = None if rule is None else rule[0](*rule[1])
        spec = RotarySpec(rotary_dim, theta=theta, scaling=made)
    except ValueError as error:
        if not re.search(r"must (lie between|give|leave|be|have|not)", str(error)):
            raise
        return
    moving = spec.inverse_frequencies(length) != 0
    assert moving.all() or isinstance(made, scaling.Proportional)
    for fact in (spec.inverse_frequencies(length), spec.wavelengths(length)):
        assert fact[moving].isfinite().all()
        assert (fact[moving] > 0).all()
    assert 1e-18 <= spec.amplitude_at(length) <= 1e18
    assert len(spec.fixed_point_frequencies(length)) == spec.pairs


@pytest.mark.parametrize("rule", [r for r in ONE_OF_EACH if hasattr(r, "factor")], ids=name)
def test_a_factor_beyond_all_models_is_refused_by_name(rule):
    for value in (1e308, 1e200, 5e-324):
        with pytest.raises(ValueError, match="factor must lie between 1e-18 and 1e18, got"):
            dataclasses.replace(rule, factor=value)


@pytest.mark.slow
@pytest.mark.parametrize(("head_dim", "theta"), [(64, 5e-324), (1024, 1.7e308)])
def test_a_theta_whose_wavelengths_are_no_numbers_is_refused(head_dim, theta):
    with pytest.raises(ValueError, match="theta must give frequencies between 1e-307 and 1e307"):
        RotarySpec(head_dim, theta=theta)


@pytest.mark.parametrize("exponent", [10**6, -(10**6), 10**400])
def test_exponents_beyond_decimal_arithmetic_are_refused(exponent):
    with pytest.raises(ValueError, match="theta and axes must give frequencies"):
        RotarySpec(4, axes=((0, exponent), (0, 0)))


def test_rules_are_values():
    """Lists become tuples, so that equal rules are equal, hashable and share what is cached."""
    assert scaling.LongRoPE(list(SHORT), list(LONG), L) == scaling.LongRoPE(SHORT, LONG, L)
    for rule in ONE_OF_EACH:
        assert rule == type(rule)(**vars(rule))
        assert hash(rule) == hash(type(rule)(**vars(rule)))
        with pytest.raises(AttributeError):
            rule.factor = 3.0
    assert scaling.Linear(2.0) != scaling.NTKAware(2.0)
    assert hash(scaling.Linear(2.0)) != hash(scaling.NTKAware(2.0))
    assert len({hash(rule) for rule in ONE_OF_EACH}) == len(ONE_OF_EACH)


@given(st.floats(100.0, 1e7), st.floats(1.1, 64.0), st.integers(2, 64))
def test_the_larger_theta_of_ntk_is_the_same_rope(theta, factor, pairs):
    """Fails if configs, which have no such rule, get another theta than the rule means."""
    rule = scaling.NTKAware(factor)
    rope = RotarySpec(head_dim=2 * pairs, theta=theta, scaling=rule)
    plain = RotarySpec(head_dim=2 * pairs, theta=rule.larger_theta(theta, 2 * pairs))
    expected = rope.inverse_frequencies()
    assert ((plain.inverse_frequencies() - expected).abs() <= 1e-13 * expected).all()


# A rule for each axis

AXIS_RULES = st.sampled_from(
    [
        None,
        scaling.Linear(2.0),
        scaling.NTKAware(20.0),
        scaling.YaRN(4.0, original_length=64, attention_factor=1.0),
        scaling.Llama3(8.0, 1.0, 4.0, original_length=64),
    ]
)


@given(st.lists(st.tuples(st.integers(2, 12), AXIS_RULES), min_size=1, max_size=4))
def test_rules_per_axis_are_ropes_of_their_own(parts):
    """Each axis has the frequencies of a rope of only its pairs under its rule."""
    pairs, rules = zip(*parts, strict=True)
    both = RotarySpec(2 * sum(pairs), axes=axes.axial(pairs), scaling=scaling.PerAxis(rules))
    alone = [RotarySpec(2 * n, scaling=rule) for n, rule in zip(pairs, rules, strict=True)]
    assert torch.equal(
        both.inverse_frequencies(), torch.cat([spec.inverse_frequencies() for spec in alone])
    )
    assert both.amplitude_at() == 1
    names = {"RotarySpec": RotarySpec, "axes": axes, "scaling": scaling}
    assert eval(repr(both), names) == both


def test_rules_per_axis_must_fit():
    plane = axes.axial((2, 2))
    sharper = scaling.YaRN(4.0, original_length=64)
    rule = scaling.PerAxis([sharper, sharper])  # one amplitude, which is not 1
    assert RotarySpec(8, axes=plane, scaling=rule).amplitude_at() == sharper.amplitude(None)
    with pytest.raises(ValueError, match="one rule for each of 2 axes, got 1"):
        RotarySpec(8, axes=plane, scaling=scaling.PerAxis((None,)))
    with pytest.raises(TypeError, match="does not depend on the length"):
        scaling.PerAxis((scaling.DynamicNTK(2.0, original_length=64),))
    with pytest.raises(ValueError, match="rules must have one amplitude"):
        scaling.PerAxis((None, sharper))
    for wrong in (scaling.Linear(2.0), (), "yarn"):
        with pytest.raises(TypeError, match="rules must be a tuple"):
            scaling.PerAxis(wrong)
    for wrong in (rule, scaling.Linear, 2.0):
        with pytest.raises(TypeError, match="rules must each be None or a rule"):
            scaling.PerAxis((None, wrong))
