"""Encodings that act on embeddings: sinusoids, learned vectors, the position itself, its bits.

These fail if the added numbers differ from the formula, if they change with the batch, the dtype or
the way a sequence is cut, or if a position that an encoding does not support is accepted.
"""

import dataclasses
import math
import re

import pytest
import torch
from encoding_cases import BACK, BOTH, EMBEDDED, random
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.encodings import AttentionEncoding, build, build_encoder_decoder


def added(name: str, positions: list[int], width: int) -> torch.Tensor:
    """What is added to embeddings at these positions: (S, width)."""
    encoding = build(name, dataclasses.replace(BACK, width=width))
    return encoding.embed(torch.zeros(1, len(positions), width), torch.tensor(positions))[0]


# What each adds


@given(st.integers(1, 33), st.lists(st.integers(0, 100_000), min_size=1), st.floats(10, 1e6))
def test_sinusoids_are_those_of_the_paper(width, positions, theta):
    rows = added(f"sinusoidal(theta={theta})", positions, width)
    for row, position in zip(rows.tolist(), positions, strict=True):
        for column, value in enumerate(row):
            angle = position / theta ** (2 * (column // 2) / width)
            wave = math.cos(angle) if column % 2 else math.sin(angle)
            assert abs(value - wave) < 1e-6


@given(st.integers(1, 9), st.lists(st.integers(0, 2**24), min_size=1), st.integers(1, 10_000))
def test_integer_adds_the_position_or_its_share_of_a_length(width, positions, length):
    for name, divisor in (("integer", 1), (f"integer(length={length})", length)):
        for row, position in zip(added(name, positions, width).tolist(), positions, strict=True):
            assert row == pytest.approx([position / divisor] * width, rel=1e-7)


@given(st.integers(1, 70), st.data())
def test_binary_adds_bit_i_to_column_i(width, data):
    bits = data.draw(st.integers(1, width), label="bits")
    most = 2 ** min(bits, 63) - 1
    positions = data.draw(st.lists(st.integers(0, most), min_size=1), label="positions")
    for row, position in zip(
        added(f"binary(bits={bits})", positions, width), positions, strict=True
    ):
        digits = [int(digit) for digit in reversed(format(position, "b"))]
        assert row.tolist() == digits + [0] * (width - len(digits))


def test_binary_has_as_many_positions_as_its_bits_tell_apart():
    assert build("binary(bits=6)", BACK).max_positions == 64
    assert build("binary", BACK).max_positions == 2**32
    assert build("binary", dataclasses.replace(BACK, width=256)).max_positions is None


@pytest.mark.parametrize("name", EMBEDDED)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_is_added_is_the_same_for_each_row_and_dtype(name, dtype):
    encoding, x = build(name, BACK), random(2, 5, 32).to(dtype)
    positions = torch.tensor([[0, 1, 2, 3, 4], [4, 4, 8, 0, 1]])
    rows = encoding.embed(torch.zeros(1, 9, 32, dtype=torch.float64), torch.arange(9))[0]
    for given_as in (torch.int64, torch.int32):
        result = encoding.embed(x, positions.to(given_as))
        assert result.dtype == dtype
        torch.testing.assert_close(result, x + rows[positions].to(dtype), rtol=0, atol=1e-7)
    torch.testing.assert_close(
        encoding.embed(x, positions[0]), x + rows[positions[0]].to(dtype), rtol=0, atol=1e-7
    )
    assert encoding.embed(x[:, :0], positions[:, :0]).shape == (2, 0, 32)
    assert type(encoding.for_layer(0)) is AttentionEncoding


# Unsupported positions


def check_refused(encoding, x, positions, beyond: str) -> None:
    """The last position is refused: below 0 like everywhere, else by what lies `beyond`."""
    last = positions[-1].item()
    below = f"positions must be at least 0, .* got {last}"
    with pytest.raises(ValueError, match=below if last < 0 else re.escape(beyond)):
        encoding.embed(x, positions)


@pytest.mark.parametrize("max_positions", [1, 2, 40])
def test_a_learned_table_refuses_what_it_has_not_got(max_positions):
    encoding = build(f"learned(max_positions={max_positions})", dataclasses.replace(BACK, width=2))
    for position in (-2, -1, 0, 1, 2, 39, 40, 41, 1000):
        x, positions = torch.zeros(1, 2, 2), torch.tensor([0, position])
        if 0 <= position < max_positions:
            row = encoding.table.weight[position]
            assert torch.equal(encoding.embed(x, positions)[0, 1], row)
            continue
        beyond = (
            f"must lie in 0..{max_positions - 1}, the rows of this learned table, got {position}; "
            f"train with learned(max_positions={position + 1}) or more, shorten the input, or"
        )
        check_refused(encoding, x, positions, beyond)


@pytest.mark.parametrize("bits", [1, 3, 6])
def test_binary_refuses_what_has_more_bits(bits):
    encoding = build(f"binary(bits={bits})", dataclasses.replace(BACK, width=6))
    for position in (-1, 0, 1, 2, 7, 8, 63, 64, 1000):
        x, positions = torch.zeros(1, 2, 6), torch.tensor([0, position])
        if 0 <= position < 2**bits:
            assert encoding.embed(x, positions)[0, 1].sum() == format(position, "b").count("1")
            continue
        beyond = (
            f"must lie in 0..{2**bits - 1}, which have {bits} bits, got {position}; write "
            f"binary(bits={position.bit_length()}) or more"
        )
        check_refused(encoding, x, positions, beyond)


@pytest.mark.parametrize("name", ["none", "sinusoidal", "learned", "integer", "binary"])
def test_cross_is_refused_where_nothing_acts_in_attention(name):
    with pytest.raises(ValueError, match=f"cross must be False for '{name}', got True: it does no"):
        build_encoder_decoder(f"{name}(cross=True)", BOTH, BACK)
