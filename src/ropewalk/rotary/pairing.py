"""Which two dimensions make a pair."""

from __future__ import annotations

from typing import Literal, get_args

from ropewalk.checks import shown

Pairing = Literal["half", "interleaved"]
"""Which two of the R rotated dimensions make pair i.

`half`: i and i + R/2 (GPT-NeoX, Llama as transformers has it). `interleaved`: 2i and 2i + 1
(RoFormer, GPT-J, Llama as Meta published it).
"""

PAIRINGS: tuple[Pairing, Pairing] = get_args(Pairing)

#: What other code calls them.
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


def _pairing_elsewhere(word: object) -> str:
    for pairing, words in ELSEWHERE.items():
        if isinstance(word, str) and word.lower().replace("-", "_") in words:
            return f"; what is called {shown(word)} elsewhere is {pairing!r} here"
    return ""
