"""The data of the page that is computed once, as JSON by name."""

from __future__ import annotations

from typing import Any


def page_data(*, served: bool = True) -> dict[str, Any]:
    """Return what goes to `data/NAME.json`, by name.

    served: whether Python answers behind the page. Without it, the data has some answers too.
    """
    if served:
        return {}
    from ropewalk.explorer.encodings import encodings_data
    from ropewalk.explorer.stretch import stretch_data

    return {**stretch_data(), **encodings_data()}
