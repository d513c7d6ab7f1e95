"""Write the catalogue: `python docs/catalogue.py`, with transformers.

It writes catalogue.json from the tables by model type, the conformance vectors and transformers'
own mapping of files, and the tables of docs/catalogue.md from these.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from catalogue_entries import make_entry, model_types, rules
from catalogue_tables import written

import ropewalk
from ropewalk.files import readable_json
from ropewalk.tools.catalogue import catalogue_vectors

VERSION = 1
DATA = Path(ropewalk.__file__).parent / "tools" / "catalogue"
PAGE = Path(__file__).with_name("catalogue.md")
Facts = dict[str, Any]


def catalogue_json(files: Mapping[str, str], transformers: str) -> str:
    """Return the text of catalogue.json.

    files: the modeling file of each type that this version of transformers has.
    """
    records = catalogue_vectors()
    entries = {}
    for model_type in model_types():
        facts = dataclasses.asdict(make_entry(model_type, files.get(model_type), records))
        entries[facts.pop("model_type")] = facts
    return _text(
        {
            "version": VERSION,
            "transformers": transformers,
            "rules": rules(),
            "model_types": entries,
        }
    )


def _text(facts: Facts) -> str:
    return readable_json(json.loads(json.dumps(facts))) + "\n"


def main() -> None:
    """Write the files, each from those before it."""
    from catalogue_sources import VERSION_OF_TRANSFORMERS, modeling_files

    catalogue = catalogue_json(modeling_files(model_types()), VERSION_OF_TRANSFORMERS)
    page = written(PAGE.read_text("utf-8"), json.loads(catalogue))
    files = {DATA / "catalogue.json": catalogue, PAGE: page}
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        print(path, f"{len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()
