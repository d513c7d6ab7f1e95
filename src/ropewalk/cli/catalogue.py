"""`ropewalk catalogue`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from ropewalk.cli.messages import errors, print_json, print_rows
from ropewalk.cli.options import AsJson, argument

if TYPE_CHECKING:
    from ropewalk.tools.catalogue import CatalogueEntry


def catalogue(
    model_type: Annotated[
        str | None, argument("MODEL_TYPE", "A model_type of config.json.  [default: list all]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how the code of a model type rotates queries and keys.

    The pairing, the part of a head that rotates, the default theta, and what else config.json does
    not state, with the names of the test vectors that fit. docs/catalogue.md explains the fields.
    """
    with errors(as_json=as_json):
        from ropewalk.tools.catalogue import catalogue as entries_of
        from ropewalk.tools.catalogue import read_data

        if model_type is None and as_json:
            print_json(read_data("catalogue"))
        elif model_type is None:
            print_rows(_listing(entries_of()))
        elif as_json:
            print_json(dataclasses.asdict(entries_of(model_type)))
        else:
            entry = entries_of(model_type)
            print_rows(_lines("", dataclasses.asdict(entry)))
            for section in (entry.sections or {}).values():
                if section.model_type not in (None, model_type):
                    print()
                    print_rows(_lines("", dataclasses.asdict(entries_of(section.model_type))))


def _listing(entries: tuple[CatalogueEntry, ...]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each model type."""
    yield "MODEL TYPE", "PAIRING", "ROTATES", "THETA", "AXES"
    for entry in entries:
        rope = entry.rope
        if rope is not None:
            both = dict.fromkeys((rope.pairing, rope.write_pairing))
            part = "" if rope.rotary_part_default is None else f" {rope.rotary_part_default:g}"
            theta = "-" if rope.theta_default is None else f"{rope.theta_default:.10g}"
            yield entry.model_type, "→".join(both), rope.rotary_part + part, theta, rope.axes
        else:
            yield entry.model_type, "-", "-", "-", entry.kind


def _lines(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield a row for each value of nested facts, with dotted names; "-" is null or empty."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _lines(f"{name}.{key}".lstrip("."), inner)
    elif isinstance(value, (list, tuple)) and value:
        yield name, ", ".join(map(str, value))
    elif isinstance(value, bool):
        yield name, json.dumps(value)
    elif isinstance(value, float):
        yield name, f"{value:.10g}"
    else:
        yield name, str(value) if value or value == 0 else "-"
