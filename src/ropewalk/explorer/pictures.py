"""Pictures of the room Encodings, drawn by the functions that reports and the docs use."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.figures import Picture, bias_by_distance, position_similarity, position_vectors

_WITHIN = 1e-3  # of the largest value: what a drawing cannot show


def pictures_of(
    name: str, vectors: Tensor, change: Tensor, *, causal: bool
) -> dict[str, dict[str, str] | None]:
    """Return pictures by what they show: `vectors`, `similarity` and `distances`.

    Each has `light` and `dark`, an SVG file as text, and `alt`; it is None if there is nothing to
    show.

    name: of the encoding.
    vectors: what it adds to embeddings of zeros, `(length, width)`.
    change: how the scores of equal q and k change, `(heads, length, length)`.
    causal: whether a query sees earlier keys only. Distances are drawn if it does, and if they
        alone matter.
    """
    added = vectors.any().item()
    distances = torch.flip(change[:, -1], (-1,)) if causal and _relative(change) else None
    drawn = {
        "vectors": position_vectors({name: vectors}) if added else None,
        "similarity": position_similarity({name: vectors}) if added else None,
        "distances": None if distances is None else bias_by_distance({name: distances}),
    }
    return {key: _texts(picture) if picture else None for key, picture in drawn.items()}


def _texts(picture: Picture) -> dict[str, str]:
    light, dark = (picture.svg(dark=dark).decode() for dark in (False, True))
    return {"light": light, "dark": dark, "alt": picture.alt}


def _relative(change: Tensor) -> bool:
    """Return whether scores change, and by the distance of earlier keys alone."""
    most = change.abs().max().item()
    moved = change[:, 1:, 1:] - change[:, :-1, :-1]
    return most > 0 and moved.tril().abs().max().item() <= _WITHIN * most
