"""Names that earlier versions used in results, and the present ones."""

import pytest

from ropewalk.lab.former_names import (
    current_command,
    current_encoding,
    current_results,
    former_encoding,
)


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ("learned(longest=512)", "learned(max_positions=512)"),
        ("tupe(relative=True,longest=8)", "tupe(relative=True,max_positions=8)"),
        ("learned(longest=9)+t5", "learned(max_positions=9)+t5"),
        ("rotary+learned(longest=9)", "rotary+learned(max_positions=9)"),
    ],
)
def test_arguments_of_encodings(former, present):
    assert current_encoding(former) == present == current_encoding(present)
    assert former_encoding(present) == former


@pytest.mark.parametrize("name", ["fire(length=64)", "mine(longest=3)", "unlearned(longest=3)"])
def test_arguments_of_others_are_left_alone(name):
    assert current_encoding(name) == former_encoding(name) == name


def test_a_command_under_present_names():
    former = "ropewalk compare --encodings 'fire(length=64),tupe(longest=9)' multiples=1,2 length=8"
    present = (
        "ropewalk compare --encodings 'fire(length=64),tupe(max_positions=9)' "
        "length_multiples=1,2 train_length=8"
    )
    assert current_command(former) == present == current_command(present)


def test_results_keep_every_other_key():
    results = {"tested": "loss", "lengths": {"trained": 8}, "corpus": {"longest_in_training": 3}}
    assert current_results(results) == {
        "tested_metric": "loss",
        "lengths": {"trained": 8},
        "corpus": {"longest_in_training": 3},
    }
