"""Encodings: their names, how they are built, and how long their computed values are cached.

These fail if a mistyped name or argument is accepted or its message gives no way out, if
cross-attention is encoded without a request, and if a placement computes a value twice. What each
encoding computes is tested in the other files here. They also fail if a part of encodings joined by
+ is left out or counted twice, or if two that act in attention are accepted.
"""

import contextlib
import inspect
import re
import warnings

import pytest
import torch
from encoding_cases import BACK as STACK
from encoding_cases import BOTH, random
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.encodings import (
    REGISTRY,
    Placement,
    build,
    build_encoder_decoder,
    parse,
    split_names,
)
from ropewalk.encodings.rotary import RotarySite
from ropewalk.model import LanguageModel, TransformerShape

# Names


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "theta": st.floats(1e-3, 1e9) | st.integers(1, 10**9),
            "rotary_dim": st.none() | st.integers(2, 64),
            "pairing": st.sampled_from(["half", "interleaved"]),
            "cross": st.booleans(),
        },
    ),
    st.booleans(),
    st.sampled_from(["", " ", "\n"]),
)
def test_parse_reads_what_is_written(arguments, quoted, space):
    def written(value: object) -> str:
        return str(value) if isinstance(value, str) and not quoted else repr(value)

    inside = f",{space}".join(f"{key}{space}={written(v)}" for key, v in arguments.items())
    assert parse(f"{space}rotary{space}({inside}){space}") == ("rotary", arguments)


@pytest.mark.parametrize("name", REGISTRY)
def test_a_bare_name_has_no_arguments(name):
    assert parse(name) == parse(f"{name}()") == (name, {})


@given(st.sampled_from(["", "rotary", "rotary("]), st.text("rotay()=,*1'{[]}: \0+-"))
def test_parse_answers_nonsense_with_value_error_alone(start, text):
    with contextlib.suppress(ValueError):
        parse(start + text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "encoding must have the form name or name(key=value, ...), got ''"),
        (
            "rotary theta=1",
            "encoding must have the form name or name(key=value, ...), got 'rotary theta=1'",
        ),
        ("rotery", f"must be one of {', '.join(REGISTRY)}, got 'rotery'; did you mean 'rotary'?"),
        ("Sinusoidal", "did you mean 'sinusoidal'?"),
        ("xyz", f"encoding must be one of {', '.join(REGISTRY)}, got 'xyz'"),
        (
            "rotary(thetta=1)",
            "'rotary' has no argument 'thetta'; it has theta, rotary_dim, pairing",
        ),
        ("rotary(thetta=1)", "did you mean 'theta'?"),
        ("none(theta=1)", "encoding 'none' has no argument 'theta'; it has cross"),
        ("rotary(shape=1)", "has no argument 'shape'"),
        ("rotary(self=1)", "has no argument 'self'"),
        (
            "rotary(1e6)",
            "'rotary' must have the form key=value, ..., each key once, got '1e6'",
        ),
        ("rotary(**a)", "must have the form key=value, ..., each key once, got '**a'"),
        ("rotary(theta=)", "must have the form key=value, ..., each key once, got 'theta='"),
        (
            "rotary(theta=1, theta=2)",
            "must have the form key=value, ..., each key once, got 'theta=1, theta=2'",
        ),
        ("rotary(theta=1/3)", "must have the form key=value, ..., each key once, got 'theta=1/3'"),
        ("rotary(theta={[]: 1})", "must have the form key=value"),
        (
            "rotary(theta=1) + f(2)",
            "must have the form key=value, ..., each key once, got 'theta=1) + f(2'",
        ),
        (
            "rotary(theta=1)(theta=2)",
            "must have the form key=value, ..., each key once, got 'theta=1)(theta=2'",
        ),
        ("rotary(cross=no)", "cross must be True or False, got 'no' for encoding 'rotary'"),
        ("rotary(cross=1)", "cross must be True or False, got 1"),
    ],
)
def test_a_mistyped_encoding_is_named_with_what_would_do(text, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse(text)


@given(
    st.lists(
        st.sampled_from(
            ["none", "rotary", "rotary()", "rotary(theta=1e6, cross=True)", "x(a=(1, (2, 3)), b=4)"]
        ),
        max_size=5,
    ),
    st.sampled_from([",", ", ", " ,"]),
)
def test_names_are_split_at_outer_commas_alone(names, comma):
    assert split_names(comma.join(names)) == names


# Building


def test_cross_is_no_argument_of_one_stack():
    with pytest.raises(ValueError, match="cross belongs to an encoder-decoder, not to one stack"):
        build("rotary(cross=True)", STACK)


def test_cross_attention_gets_an_encoding_only_when_asked():
    for name in ("rotary", "rotary(cross=False)", "sinusoidal+rotary"):
        assert build_encoder_decoder(name, BOTH, STACK).cross is None
    for name in ("rotary(cross=True, theta=7)", "sinusoidal+rotary(cross=True, theta=7)"):
        assert build_encoder_decoder(name, BOTH, STACK).cross.for_layer(0).rope.spec.theta == 7
    with pytest.raises(ValueError, match="cross must be False for 'sinusoidal'"):
        build_encoder_decoder("sinusoidal(cross=True)+rotary", BOTH, STACK)


def test_none_does_nothing():
    encoding = build("none", STACK)
    x, q, k = random(1, 3, 32), random(1, 4, 3, 8), random(1, 2, 3, 8)
    placement, site = Placement(torch.arange(3)), encoding.for_layer(0)
    assert encoding.embed(x, placement.queries) is x
    assert site.rotate(q, k, placement) == (q, k)
    assert site.bias(placement) is None
    assert site.scale is None
    with pytest.raises(RuntimeError, match="its attends is False"):
        site.attend(q, k, k, placement, None)


# A placement lasts for one forward pass


def test_once_computes_once_under_each_key():
    placement, calls = Placement(torch.arange(3)), []

    def compute() -> int:
        calls.append(len(calls))
        return calls[-1]

    assert [placement.memoize(key, compute) for key in ("a", "a", ("b", 1), "a")] == [0, 0, 1, 0]
    assert Placement(torch.arange(3)).memoize("a", compute) == 2


def test_a_placement_stands_for_keys_like_queries_unless_told():
    one, two, three = (torch.arange(n) for n in (1, 2, 3))
    assert Placement(one).keys is one
    assert Placement(one).new_keys is one
    assert Placement(one, two).new_keys is two
    assert Placement(one, two, three).new_keys is three


def test_python_has_no_word_of_its_own_on_an_argument():
    """Fails if a typing mistake gives Python's warning in addition to our error."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="must have the form key=value"):
            parse("rotary(theta=1if)")
    assert not warned


ARGUMENTS = [
    (n, p) for n, make in REGISTRY.items() for p in [*inspect.signature(make).parameters][1:]
]


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS)
@torch.no_grad()
def test_a_number_of_many_digits_is_used_or_refused_by_its_name(name, argument):
    """Fails if it reaches torch or Python, whose integers and floats are too small for it."""
    shape = TransformerShape(
        vocabulary=20, width=16, heads=2, feed_forward=16, encoder_layers=0, decoder_layers=1
    )
    for digits in ("9" * 22, "1e22", "-" + "9" * 22, "9" * 400):
        try:
            encoding = build(f"{name}({argument}={digits})", shape.stack_shape(causal=True))
        except (ValueError, TypeError) as error:
            assert argument in str(error)  # noqa: PT017
        else:
            model = LanguageModel(shape, encoding, causal=True).eval()
            try:
                assert model(torch.arange(7)[None]).isfinite().all()
            except ValueError as error:
                assert f"{argument}=" in str(error)  # noqa: PT017


def test_each_part_adds_and_the_one_that_rotates_rotates():
    both = build("sinusoidal + integer + rotary(theta=1e+2)", STACK)
    x, positions = torch.randn(2, 5, 32), torch.arange(5)
    added = build("integer", STACK).embed(build("sinusoidal", STACK).embed(x, positions), positions)
    assert torch.equal(both.embed(x, positions), added)
    site = both.for_layer(1)
    assert isinstance(site, RotarySite)
    assert site.rope.spec.theta == 100


def test_parameters_are_named_once():
    both = build("learned(max_positions=9)+t5", STACK)
    assert len(dict(both.named_parameters())) == 2
    assert both.max_positions == 9


def test_two_that_act_in_attention_are_refused():
    with pytest.raises(ValueError, match="at most one that acts in attention, got rotary and t5"):
        build("rotary+t5", STACK)


@pytest.mark.parametrize("name", ["sinusoidal+rotory", "rotary+", "+", "none++rotary"])
def test_a_wrong_or_missing_part_is_refused(name):
    with pytest.raises(ValueError, match="encoding must"):
        build(name, STACK)
