"""Folders of cells: each encoding has its own.

These fail if two encodings share a folder, so that one would take the other's checkpoint for its
own, or if a name is one that no file system takes.
"""

import pytest

from ropewalk.lab.config import slug

DIFFERING = [
    "xpos",
    "xpos(center=3)",
    "xpos(center=-3)",
    "xpos(center=-.3)",
    "rotary(theta=1e6)",
    "rotary(theta=1e-6)",
    "rotary(rotary_dim=16)",
    "transformer_xl",
    *(f"rotary(rule=longrope,short_factor={[1.0] * 64},long_factor={[n] * 64})" for n in (2, 3)),
]


def test_no_two_encodings_share_a_folder():
    assert len({slug(name) for name in DIFFERING}) == len(DIFFERING)


@pytest.mark.parametrize("name", DIFFERING)
def test_a_folder_can_be_named_so(name):
    assert len(slug(name)) < 200
    assert not set(slug(name)) & set("()=,/ '\"[]")


def test_a_short_name_reads_as_the_encoding():
    assert slug("rotary(theta=1e6)") == "rotary-theta-1e6"
