"""Context parallelism: several processes compute what one computes from the complete sequence.

These fail if positions are those of the part, if a query sees keys after it or of another document,
if keys are gathered in another order than the mask has, or if a gradient does not reach the process
that computed the keys.
"""

import itertools

import pytest
import torch
from in_processes import run, run_each
from parallel_context import LENGTH, new_model

from ropewalk.encodings import Encoding
from ropewalk.model import ContextPart, DecoderCache, LanguageModel, TransformerShape

# Rotated keys, raw keys, a bias by distance with and without parameters, content and distance,
# embeddings, and none.
ENCODINGS = ("rotary", "alibi", "t5", "shaw", "deberta", "sinusoidal", "none")
CASES = [
    *itertools.product(ENCODINGS, ("contiguous", "zigzag"), (False, True), (True,)),
    ("rotary", "round-robin", True, True),
    *itertools.product(("rotary", "t5"), ("zigzag",), (False, True), (False,)),
]


FAULTS = {  # whether outputs differ
    "keys are not gathered": True,
    "gradients stay where they are": False,
    "gathered keys have no gradients": False,
}


@pytest.fixture(scope="module")
def of_two():
    """What two processes computed, without and with faults."""
    cases = [("rotary", "zigzag", False, True), ("t5", "contiguous", True, True)]
    calls = {fault: ("parallel_context:differences_with", fault, cases) for fault in FAULTS}
    return run_each(2, {"no fault": ("parallel_context:differences", CASES), **calls})


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_a_step_equals_that_of_the_complete_sequence(world, of_two):
    """Four processes compute a third of the cases, every encoding and scheme, packed and not."""
    cases = CASES[1::3] if world == 4 else CASES
    four = run(4, "parallel_context:differences", cases) if world == 4 else None
    for found in four or of_two["no fault"]:
        for case, (output, gradient) in zip(cases, found, strict=True):
            assert output < 1e-12, case
            assert gradient < 1e-10, case


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "outputs_differ"), FAULTS.items())
def test_a_fault_is_noticed(fault, outputs_differ, of_two):
    """The planted faults are larger than what the test above allows."""
    for found in of_two[fault]:
        for output, gradient in found:
            assert (output > 1e-3) == outputs_differ
            assert gradient > 1e-3


def test_a_process_by_itself_has_the_complete_sequence():
    model, tokens = new_model("rotary", causal=True), torch.arange(LENGTH)[None]
    part = ContextPart(LENGTH)
    with part:
        assert torch.equal(part.cut(tokens), tokens)
        torch.testing.assert_close(model(tokens, context=part), model(tokens))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"cu_seqlens": [0, 3, 7]}, "cu_seqlens must end at length=8, got 7"),
        ({"scheme": "diagonal"}, "scheme must be"),
        ({"engine": "ring"}, 'engine must be "gather" or "torch", got \'ring\''),
        ({"engine": "torch"}, 'engine must be "gather" on cpu, got "torch"'),
    ],
)
def test_wrong_arguments_are_named(arguments, said):
    with pytest.raises(ValueError, match=said):
        ContextPart(8, **arguments)


def test_what_cannot_be_divided_is_refused():
    model, part = new_model("rotary", causal=True), ContextPart(8)
    with pytest.raises(ValueError, match=r"tokens must be \(B, 8\), .*got \(1, 5\)"):
        model(torch.zeros(1, 5, dtype=torch.int64), context=part)
    tokens = torch.zeros(1, 8, dtype=torch.int64)
    with pytest.raises(ValueError, match="mask and cache must be None with context"):
        model(tokens, cache=DecoderCache(2), context=part)
    with pytest.raises(ValueError, match="x must have length=8 tokens along dim 1, got 9"):
        part.cut(torch.zeros(1, 9))
    with pytest.raises(ValueError, match="dim must be one of x's 1 dimensions, got 1"):
        part.cut(torch.zeros(8))
    shape = TransformerShape(50, 32, 4, 64, 0, 1, attention="elu")
    linear = LanguageModel(shape, Encoding(), causal=True)
    with pytest.raises(ValueError, match="attention must be softmax with context"):
        linear(tokens, context=part)
