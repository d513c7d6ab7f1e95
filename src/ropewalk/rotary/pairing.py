"""Which two dimensions make a pair."""

from __future__ import annotations

from typing import Literal, get_args

from ropewalk.checks import check_int, shown

Pairing = Literal["half", "interleaved"]
"""Which two of the R rotated dimensions make pair i.

`half`: i and i + R/2 (GPT-NeoX, Llama as transformers has it). `interleaved`: 2i and 2i + 1
(RoFormer, GPT-J, Llama as Meta published it).
"""

PAIRINGS: tuple[Pairing, Pairing] = get_args(Pairing)

#: The names that other code has for them.
ELSEWHERE: dict[Pairing, tuple[str, ...]] = {
    "half": ("neox", "gpt_neox", "gptneox", "neox_style", "rotate_half"),
    "interleaved": ("gptj", "gpt_j", "gptj_style", "interleave", "rotate_every_two"),
}


def check_pairing(name: str, value: object) -> None:
    """Raise unless value is a `Pairing`."""
    if value not in PAIRINGS:
        raise ValueError(
            f'{name} must be "half" (dimensions i and i + R/2 rotate together) or "interleaved" '
            f"(2i and 2i + 1), got {shown(value)}{_pairing_elsewhere(value)}"
        )


def check_blocks(blocks: object, rotary_dim: int, pairing: Pairing, write_pairing: Pairing) -> None:
    """Raise unless blocks are even sizes that sum to the number of rotated dimensions."""
    if not isinstance(blocks, (list, tuple)):
        raise TypeError(f"blocks must be a tuple of ints, got {shown(blocks)}")
    for size in blocks:
        check_int("each size of blocks", size, 2, ", one pair of dimensions")
    if sum(blocks) != rotary_dim:
        raise ValueError(
            f"blocks must be sizes that sum to rotary_dim={rotary_dim}, got {shown(blocks)}"
        )
    if any(size % 2 for size in blocks):
        raise ValueError(f"blocks must be even sizes, got {shown(blocks)}")
    if write_pairing != pairing:
        raise ValueError(
            f"write_pairing must be pairing={pairing!r} if there are blocks, "
            f"got {shown(write_pairing)}"
        )


def _pairing_elsewhere(word: object) -> str:
    for pairing, words in ELSEWHERE.items():
        if isinstance(word, str) and word.lower().replace("-", "_") in words:
            return f"; {shown(word)} of other code is called {pairing!r} here"
    return ""
