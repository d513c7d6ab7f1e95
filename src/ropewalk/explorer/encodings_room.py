"""The room Encodings: what each encoding says about itself, and the numbers that it gives.

Its pictures are drawn by the functions that reports and the docs use.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ropewalk.encodings import REGISTRY, Encoding, Placement, StackShape, build, parse
from ropewalk.encodings.parsing import split_at
from ropewalk.explorer.questions import number_of, text_of
from ropewalk.figures import Picture, position_similarity, position_vectors

MOST_TEXT, MOST_POSITIONS, MOST_PARAMETERS = 200, 96, 5_000_000
HEADS, HEAD_DIM = 4, 16
DIGITS = 4  # of each number: more cannot be seen
UNSEEN = 1e-5  # changes of scores that rounding explains
LENGTH = 32  # positions in the exported page


def encoding_answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the description and the numbers of an encoding.

    question: `encoding`, as in `--encodings`; `causal`; `length`, the number of positions. Raises
    ValueError if the encoding is unknown, or refuses such a stack or length.
    """
    text = text_of(question, "encoding", MOST_TEXT).strip()
    length = number_of(question, "length", 2, MOST_POSITIONS)
    causal = question.get("causal")
    if not isinstance(causal, bool):
        raise ValueError("causal must be true or false")
    names = [parse(part)[0] for part in split_at(text, "+")]
    told = [{"name": name, **described(name, REGISTRY[name])} for name in names]
    return {"told": told, **numbers(text, length, causal=causal)}


def encodings_data() -> dict[str, Any]:
    """Return the answers for all encodings of the registry with their usual arguments."""
    question = {"length": LENGTH, "causal": True}
    answers = {name: encoding_answer({"encoding": name, **question}) for name in REGISTRY}
    return {"encodings": {**names_answer({}), "answers": answers}}


def names_answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the names of the registry, with the first line about each. There is no question."""
    summaries = ((name, described(name, made)["paragraphs"][0]) for name, made in REGISTRY.items())
    return {"names": [{"name": name, "summary": summary} for name, summary in summaries]}


def called(name: str, made: Callable[..., Encoding]) -> str:
    """Return an encoding's name with its arguments and their defaults."""
    given = [p for p in _parameters(made) if p.kind != p.VAR_KEYWORD]
    arguments = ", ".join(
        p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in given
    )
    return f"{name}({arguments})" if arguments else name


def described(name: str, made: Callable[..., Encoding]) -> dict[str, Any]:
    """Return the docstring of an encoding: its paragraphs, and a text for each argument."""
    documented = made.func if isinstance(made, partial) else made  # its own is functools.partial's
    known = "|".join(re.escape(p.name) for p in _parameters(made)) or "$^"
    paragraphs: list[str] = []
    arguments: list[tuple[str, str]] = []
    text = inspect.cleandoc(documented.__doc__ or "No description.")
    for block in re.split(r"\n{2,}|\n(?=Source: )", text):
        items = re.split(rf"^((?:{known})(?:, (?:{known}))*): ", block, flags=re.MULTILINE)
        if items[0].strip():
            paragraphs.append(" ".join(items[0].split()))
        texts = (" ".join(each.split()) for each in items[2::2])
        arguments += zip(items[1::2], texts, strict=True)
    return {"call": called(name, made), "paragraphs": paragraphs, "arguments": arguments}


def _parameters(made: Callable[..., Encoding]) -> list[inspect.Parameter]:
    return [p for p in inspect.signature(made).parameters.values() if p.name != "shape"]


def numbers(text: str, length: int, *, causal: bool) -> dict[str, Any]:
    """Return what an encoding does to vectors of positions and to scores.

    vectors: what it adds to embeddings of zeros, `(length, width)`, or None. heads: for each head,
    or for one if all are the same, `(length, length)`: the scaled score of equal q and k, vectors
    of ones, minus their product times the same scale; None if nothing changes. parameters: how
    many; they start from seed 0. pictures: see `pictures_of`.
    """
    width = HEADS * HEAD_DIM
    shape = StackShape(1, HEADS, HEADS, HEAD_DIM, width, causal)
    with torch.device("meta"):  # counts, and allocates nothing
        count = sum(each.numel() for each in build(text, shape).parameters())
    if count > MOST_PARAMETERS:
        raise ValueError(
            f"encoding must have at most {MOST_PARAMETERS:,} parameters here, got {count:,}"
        )
    positions = torch.arange(length)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        encoding = build(text, shape)
        vectors = encoding.embed(torch.zeros(1, length, width), positions)[0]
        change = _change(encoding, Placement(positions), length)
    if torch.equal(change, change[:1].expand_as(change)):
        change = change[:1]
    if change.abs().max() <= UNSEEN:
        change = torch.zeros_like(change)
    return {
        "parameters": count,
        "vectors": _rounded(vectors) if vectors.any() else None,
        "heads": _rounded(change) if change.any() else None,
        "pictures": pictures_of(text, vectors),
    }


def _change(encoding: Encoding, placement: Placement, length: int) -> Tensor:
    """Return how the scores of equal q and k change, `(H, S, T)`."""
    site = encoding.for_layer(0).eval()
    q = k = torch.ones(1, HEADS, length, HEAD_DIM)
    scale = HEAD_DIM**-0.5 if site.scale is None else site.scale
    plain = HEAD_DIM * scale
    if site.attends:
        if not hasattr(site, "scores"):
            raise ValueError("this encoding attends by itself and has no scores to show")
        seen = torch.ones(length, length, dtype=torch.bool).tril()
        return site.scores(q, k, placement, seen)[0] - plain  # type: ignore[no-any-return,operator]
    q, turned = site.rotate(q, k, placement)
    assert turned is not None
    scores = scale * q @ turned.transpose(-1, -2) - plain
    bias = site.bias(placement)
    return (scores if bias is None else scores + bias)[0]


def _rounded(values: Tensor) -> list[Any]:
    """Return nested lists of numbers with few digits."""
    if values.ndim > 1:
        return [_rounded(each) for each in values]
    return [float(f"{each:.{DIGITS}g}") for each in values.tolist()]


def pictures_of(name: str, vectors: Tensor) -> dict[str, dict[str, str] | None]:
    """Return pictures by what they show: `vectors` and `similarity`.

    Each has `light` and `dark`, an SVG file as text, and `alt`; it is None if there is nothing to
    show.

    name: of the encoding.
    vectors: what it adds to embeddings of zeros, `(length, width)`.
    """
    drawn = {"vectors": position_vectors, "similarity": position_similarity}
    added = vectors.any().item()
    return {key: _texts(draw({name: vectors})) if added else None for key, draw in drawn.items()}


def _texts(picture: Picture) -> dict[str, str]:
    light, dark = (picture.svg(dark=dark).decode() for dark in (False, True))
    return {"light": light, "dark": dark, "alt": picture.alt}
