"""The axis and the exponent of each pair, in the orders that published models use.

Each function returns the `axes` of a `RotarySpec`: an axis and an exponent e for each of the R/2
pairs, which rotates by theta^-e per step along that axis. Axes have the order of the rows of the
positions: time, height, width in the M-RoPE family; height, width in most vision towers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

from ropewalk.checks import check_int, shown
from ropewalk.rotary.frequencies import Axes, standard_exponents

__all__ = [
    "alternating",
    "axial",
    "ernie",
    "geometric",
    "interleaved",
    "pixtral",
    "round_robin",
    "sectioned",
]

MAX_PAIRS = 4_096  # many times the most published pairs; bounds the cost of frequencies


def axial(pairs: Sequence[int], order: Sequence[int] | None = None) -> Axes:
    """Return axes one after the other, each with all frequencies of a rope of its own size.

    pairs: how many pairs each axis has; pair j of n has exponent j/n. order: axes in the order of
    their pairs, if it is not 0, 1, … (Kimi's vision has width first: `order=(1, 0)`).
    Source: Heo et al. 2024, RoPE-ViT, arXiv 2403.13298, eq. 7; Qwen2-VL's vision, arXiv 2409.12191.

    Example:
        >>> from ropewalk import RotarySpec, axes
        >>> [(axis, str(exponent)) for axis, exponent in axes.axial((2, 2))]
        [(0, '0'), (0, '1/2'), (1, '0'), (1, '1/2')]
        >>> RotarySpec(head_dim=64, axes=axes.axial((16, 16))).axis_count
        2
    """
    _check_sizes("pairs", pairs)
    chosen = range(len(pairs)) if order is None else order
    if sorted(chosen) != list(range(len(pairs))):
        raise ValueError(f"order must name each of {len(pairs)} axes once, got {shown(order)}")
    return tuple((axis, Fraction(j, pairs[axis])) for axis in chosen for j in range(pairs[axis]))


def pixtral(rotary_dim: int, count: int = 2) -> Axes:
    """Return axes one after the other, which share out the frequencies of one rope in turn.

    Axis a has the exponents 2i/R of the pairs i = a, a + count, …
    Source: Pixtral, arXiv 2410.07073, section 2; transformers' modeling_pixtral.py.

    Example:
        >>> from ropewalk import axes
        >>> [(axis, str(exponent)) for axis, exponent in axes.pixtral(8)]
        [(0, '0'), (0, '1/2'), (1, '1/4'), (1, '3/4')]
    """
    check_int("count", count, 1)
    check_int("rotary_dim", rotary_dim, 2 * count)
    _check_total(rotary_dim // 2)
    if rotary_dim % (2 * count):
        raise ValueError(f"rotary_dim must be a multiple of {2 * count}, got {rotary_dim}")
    exponents = standard_exponents(rotary_dim)
    return tuple((axis, e) for axis in range(count) for e in exponents[axis::count])


def alternating(pairs: int, order: Sequence[int] = (0, 1)) -> Axes:
    """Return axes in turn, pair by pair, each with all frequencies of a rope of its own size.

    pairs: how many pairs each axis has. Source: Kimi-VL's vision (MoonViT), `Rope2DPosEmb`, which
    has width first: `order=(1, 0)`.

    Example:
        >>> from ropewalk import axes
        >>> [(axis, str(exponent)) for axis, exponent in axes.alternating(2)]
        [(0, '0'), (1, '0'), (0, '1/2'), (1, '1/2')]
    """
    check_int("pairs", pairs, 1)
    _check_total(pairs * len(order))
    return tuple((axis, Fraction(j, pairs)) for j in range(pairs) for axis in order)


def sectioned(sections: Sequence[int]) -> Axes:
    """Return M-RoPE's axes: the first section of pairs follows time, then height, then width.

    sections: pairs of each axis, `mrope_section` in config.json. Exponents are those of one rope
    of all pairs. Source: Wang et al. 2024, Qwen2-VL, arXiv 2409.12191, section 2.1.

    Example:
        >>> from ropewalk import RotarySpec, axes
        >>> spec = RotarySpec(head_dim=128, axes=axes.sectioned((16, 24, 24)))
        >>> [spec.axis_of_pair[pair] for pair in (0, 15, 16, 39, 40, 63)]
        [0, 0, 1, 1, 2, 2]
    """
    _check_sizes("sections", sections)
    owners = [axis for axis, pairs in enumerate(sections) for _ in range(pairs)]
    return tuple(zip(owners, standard_exponents(2 * len(owners)), strict=True))


def interleaved(sections: Sequence[int], pairs: int | None = None) -> Axes:
    """Return interleaved M-RoPE's axes: time, height, width in turn, until an axis has its share.

    Pair 3j + a follows axis a for j < sections[a]; the other pairs follow time. pairs: how many
    there are, if not the sections' sum, as in small versions of published models. Exponents are
    those of one rope of all pairs. Source: Huang et al. 2025, arXiv 2510.23095; Qwen3-VL
    (`mrope_interleaved`).

    Example:
        >>> from ropewalk import axes
        >>> [axis for axis, _ in axes.interleaved((4, 2, 2))]
        [0, 1, 2, 0, 1, 2, 0, 0]
    """
    _check_sizes("sections", sections)
    count, pairs = len(sections), sum(sections) if pairs is None else pairs
    check_int("pairs", pairs, 1)
    _check_total(pairs)
    owners = [0] * pairs
    for axis in range(1, count):
        for i in range(axis, min(count * sections[axis], pairs), count):
            owners[i] = axis
    return tuple(zip(owners, standard_exponents(2 * pairs), strict=True))


def round_robin(pairs: int, count: int = 2) -> Axes:
    """Return axes in turn, pair by pair; exponents are those of one rope of all pairs.

    Source: transformers' modeling_neomme.py.

    Example:
        >>> from ropewalk import axes
        >>> [(axis, str(exponent)) for axis, exponent in axes.round_robin(4)]
        [(0, '0'), (1, '1/4'), (0, '1/2'), (1, '3/4')]
    """
    check_int("pairs", pairs, 1)
    check_int("count", count, 1)
    _check_total(pairs)
    exponents = standard_exponents(2 * pairs)
    return tuple((i % count, exponent) for i, exponent in enumerate(exponents))


def ernie(sections: Sequence[int]) -> Axes:
    """Return Ernie 4.5-VL's axes: height and width in turn at high frequencies, then time.

    sections: pairs of height, width and time; the first two are equal. Axes are time 0, height 1,
    width 2. Exponents are those of one rope of all pairs. Source: transformers'
    modeling_ernie4_5_vl_moe.py.

    Example:
        >>> from ropewalk import axes
        >>> [axis for axis, _ in axes.ernie((2, 2, 1))]
        [1, 2, 1, 2, 0]
    """
    _check_sizes("sections", sections)
    if len(sections) != 3 or sections[0] != sections[1]:
        raise ValueError(
            f"sections must be the pairs of height, width and time, the first two equal, "
            f"got {tuple(sections)}"
        )
    owners = [1, 2] * sections[0] + [0] * sections[2]
    return tuple(zip(owners, standard_exponents(2 * len(owners)), strict=True))


def geometric(pairs: int, count: int = 1, idle: int = 0) -> Axes:
    """Return axes in turn, with frequencies that grow from 1 to theta; pair j of n has -j/(n - 1).

    pairs: how many pairs each axis has. idle: pairs in front of them that do not rotate.
    Source: LTX-Video, arXiv 2501.00103, section 2.2; diffusers' transformer_ltx.py. Its positions
    are `positions.fractions`, and its rope spans all heads of a token.

    Example:
        >>> from ropewalk import axes
        >>> [(axis, str(exponent)) for axis, exponent in axes.geometric(2, count=2, idle=1)]
        [(0, 'None'), (0, '0'), (1, '0'), (0, '-1'), (1, '-1')]
    """
    for name, value, least in (("pairs", pairs, 1), ("count", count, 1), ("idle", idle, 0)):
        check_int(name, value, least)
    _check_total(pairs * count + idle)
    exponents = [Fraction(-j, max(pairs - 1, 1)) for j in range(pairs)]
    return ((0, None),) * idle + tuple((axis, e) for e in exponents for axis in range(count))


def as_code(given: Axes) -> str:
    """Return axes as Python: a call of a function above if one returns them, else pair by pair."""
    pairs, count = len(given), max(axis for axis, _ in given) + 1
    owners = [axis for axis, _ in given]
    shares = tuple(owners.count(axis) for axis in range(count))
    order = tuple(dict.fromkeys(owners))
    idle = sum(e is None for _, e in given)
    candidates: list[tuple[Callable[..., Axes], tuple[object, ...]]] = [
        (sectioned, (shares,)),
        (interleaved, (shares,)),
        (axial, (shares,)),
        (axial, (shares, order)),
        (pixtral, (2 * pairs, count)),
        (alternating, (shares[0],)),
        (alternating, (shares[0], order)),
        (geometric, (sum(e is not None for _, e in given) // count, count, idle)),
    ]
    if count == 3:
        candidates.append((ernie, ((shares[1], shares[2], shares[0]),)))
    for make, arguments in candidates:
        with suppress(ValueError):
            if make(*arguments) == given:
                return f"axes.{make.__name__}({', '.join(map(repr, arguments))})"
    written = [(a, e if e is None else int(e) if e.denominator == 1 else str(e)) for a, e in given]
    return f"({written[0]},) * {pairs}" if len(set(written)) == 1 else repr(tuple(written))


def check_axes(given: object, pairs: int) -> Axes:
    """Return the axes of this number of pairs, with exponents as fractions; raise if wrong."""
    try:
        both = [(axis, exponent) for axis, exponent in given]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise TypeError(
            f"axes must have one (axis, exponent) for each pair, got {shown(given)}"
        ) from None
    if len(both) != pairs:
        raise ValueError(
            f"axes must have one (axis, exponent) for each of R/2 = {pairs} pairs, got {len(both)}"
        )
    exponents = [_exponent(i, exponent) for i, (_, exponent) in enumerate(both)]
    for axis, _ in both:
        check_int("each axis of axes", axis, 0)
    if all(e is None for e in exponents):
        raise ValueError("axes must have a pair that rotates, got None as the exponent of all")
    used = {axis for axis, _ in both}
    if used != set(range(len(used))):
        raise ValueError(f"axes must use all axes from 0 on, without a gap, got {sorted(used)[:9]}")
    return tuple((axis, exponent) for (axis, _), exponent in zip(both, exponents, strict=True))


def _exponent(pair: int, given: Any) -> Fraction | None:
    if given is None:
        return None
    rule = "each exponent of axes must be a finite number, or a fraction such as '1/3', got "
    try:
        return Fraction(given)
    except TypeError:
        raise TypeError(f"{rule}{shown(given)} for pair {pair}") from None
    except (ValueError, OverflowError, ZeroDivisionError):  # NaN, infinity, text that is no number
        raise ValueError(f"{rule}{shown(given)} for pair {pair}") from None


def _check_sizes(name: str, sizes: Sequence[int]) -> None:
    if not isinstance(sizes, (list, tuple)):
        raise TypeError(
            f"{name} must be a list or tuple of sizes, one for each axis, got {shown(sizes)}"
        )
    if not sizes:
        raise ValueError(f"{name} must have a size for each axis, got {shown(sizes)}")
    for i, size in enumerate(sizes):
        check_int(f"{name}[{i}]", size, 1)
    _check_total(sum(sizes))


def _check_total(pairs: int) -> None:
    if pairs > MAX_PAIRS:
        raise ValueError(f"axes must have at most {MAX_PAIRS:,} pairs in total, got {pairs:,}")
