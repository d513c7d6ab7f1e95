"""Write the catalogue: `python docs/catalogue.py`, with transformers and mpmath.

It writes vectors.json from the formulas in catalogue_vectors.py, catalogue.json from the tables by
model type and transformers' own mapping of files, and the tables of docs/catalogue.md from these.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from catalogue_entries import make_entry, model_types, rules
from catalogue_tables import written

import ropewalk
from ropewalk.files import readable_json
from ropewalk.tools.catalogue import as_vectors

VERSION = 1
DATA = Path(ropewalk.__file__).parent / "tools" / "catalogue"
PAGE = Path(__file__).with_name("catalogue.md")
EXACT = re.compile(r'"(-?\d[\d.e+-]*)"')
ROW = re.compile(r"\[\s+([-\d.e+,\s]+?)\s+\]")
Facts = dict[str, Any]


def vectors_json() -> str:
    """Return the text of vectors.json; rotated numbers have all their 17 digits."""
    from catalogue_vectors import vectors  # needs mpmath

    text = EXACT.sub(r"\1", _text({"version": VERSION, "vectors": vectors()}))
    return ROW.sub(lambda found: f"[{', '.join(found[1].split())}]".replace(",,", ","), text)


def catalogue_json(vectors: str, files: Mapping[str, str], transformers: str) -> str:
    """Return the text of catalogue.json.

    vectors: the text of vectors.json. files: the modeling file of each type that this version of
    transformers has.
    """
    records = as_vectors(json.loads(vectors)["vectors"])
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

    vectors = vectors_json()
    catalogue = catalogue_json(vectors, modeling_files(model_types()), VERSION_OF_TRANSFORMERS)
    page = written(PAGE.read_text("utf-8"), json.loads(catalogue))
    files = {DATA / "vectors.json": vectors, DATA / "catalogue.json": catalogue, PAGE: page}
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        print(path, f"{len(text.encode()):,} bytes")


if __name__ == "__main__":
    main()
