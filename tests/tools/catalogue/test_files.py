"""The files of the catalogue are those that its generator writes, and the schema describes them.

These fail if a file or a table of the page was edited by hand, if a table by model type or a
formula changed without the files, if the schema would let a wrong file pass, and if a record's
fields are not those of the schema.
"""

import dataclasses
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from scripts import ROOT, load_scripts

from ropewalk.rotary.config.model_types import CONVENTIONS
from ropewalk.tools.catalogue import (
    CatalogueEntry,
    IndexerOfType,
    RopeOfType,
    read_data,
)

tables, script = load_scripts("docs", "catalogue_entries", "catalogue")

DATA = ROOT / "src" / "ropewalk" / "tools" / "catalogue"
SCHEMA = read_data("catalogue.schema")
CATALOGUE = read_data("catalogue")
VALIDATOR = Draft202012Validator(SCHEMA)


def text(name: str) -> str:
    return (DATA / f"{name}.json").read_text("utf-8")


def test_the_catalogue_is_that_of_the_tables():
    sources = {name: entry["source"] for name, entry in CATALOGUE["model_types"].items()}
    files = {
        name: source.partition("; ")[0]
        for name, source in sources.items()
        if source.startswith("models/")
    }
    made = script.catalogue_json(files, CATALOGUE["transformers"])
    assert made == text("catalogue")


def test_sources_are_those_of_transformers():
    """With another version than that of the file, files may have moved."""
    transformers = pytest.importorskip("transformers")
    if transformers.__version__ != CATALOGUE["transformers"]:
        pytest.skip(f"the file is of transformers {CATALOGUE['transformers']}")
    (sources,) = load_scripts("docs", "catalogue_sources")
    files = sources.modeling_files(tables.model_types())
    for name, entry in CATALOGUE["model_types"].items():
        code = CONVENTIONS[name].code if name in CONVENTIONS else None
        read_in = filter(None, (files.get(name), code))
        assert entry["source"] == ("; ".join(read_in) or "own code of the model"), name
        assert name not in files or (sources.MODELS.parent / files[name]).is_file()


def test_tables_of_the_page_are_those_of_the_files():
    page = script.PAGE.read_text("utf-8")
    assert page.count("<!-- table:") == 5
    assert script.written(page, CATALOGUE) == page
    named = re.findall(
        r"`([\w-]+)`", page.partition("<!-- table: ropes")[2].partition("<!-- end")[0]
    )
    assert {n for n, e in CATALOGUE["model_types"].items() if e["kind"] == "rope"} <= set(named)


def test_the_schema_describes_the_files():
    VALIDATOR.check_schema(SCHEMA)
    VALIDATOR.validate(CATALOGUE)
    assert SCHEMA["version"] == CATALOGUE["version"] == script.VERSION


@pytest.mark.parametrize(
    ("record", "name"),
    [
        (CatalogueEntry, "entry"),
        (RopeOfType, "rope"),
        (IndexerOfType, "indexer"),
    ],
)
def test_the_schema_has_the_fields_of_the_records(record, name):
    fields = [field.name for field in dataclasses.fields(record)]
    fields = [field for field in fields if field not in ("model_type", "name")]  # the keys
    schema = SCHEMA["$defs"][name]
    assert schema["required"] == list(schema["properties"]) == fields
    assert schema["additionalProperties"] is False


def places(value, path=()):
    """Yield the path of every value in nested JSON."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield (*path, key)
        if isinstance(value[key], (dict, list)):
            yield from places(value[key], (*path, key))


A_FEW = ("deepseek_v32", "falcon", "gemma3_text", "llama", "qwen2_vl", "t5")
SMALL = {**CATALOGUE, "model_types": {name: CATALOGUE["model_types"][name] for name in A_FEW}}


@given(st.sampled_from(list(places(SMALL))), st.sampled_from([{}, -1, "other", [[]]]))
def test_a_value_of_another_kind_is_refused(place, wrong):
    """Free are only the names of types, keys and sections, and switches with their defaults."""
    changed = json.loads(json.dumps(SMALL))
    *outer, last = place
    inner = changed
    for key in outer:
        inner = inner[key]
    old, inner[last] = inner[last], wrong
    if not VALIDATOR.is_valid(changed):
        return
    same_kind = type(old) is type(wrong) or old is None or isinstance(old, float)
    assert same_kind or last in ("default", "value", "theta_default", "length"), (place, old)


@pytest.mark.parametrize("name", ["version", "rules", "model_types", "transformers"])
def test_a_missing_or_unknown_field_is_refused(name):
    assert not VALIDATOR.is_valid({k: v for k, v in CATALOGUE.items() if k != name})
    assert not VALIDATOR.is_valid({**CATALOGUE, f"{name}s": 1})


def test_a_pairing_of_another_name_is_refused():
    changed = json.loads(json.dumps(SMALL))
    changed["model_types"]["llama"]["rope"]["pairing"] = "neox"
    (error,) = VALIDATOR.iter_errors(changed)
    mistake = best_match([error])
    assert mistake.json_path == "$.model_types.llama.rope.pairing"
    assert "'neox' is not one of ['half', 'interleaved']" in mistake.message


def unknown_keywords(schema):
    """Keywords that the validator would pass over, anywhere in a schema."""
    if not isinstance(schema, dict):
        return set()
    inner = [*schema.get("$defs", {}).values(), *schema.get("properties", {}).values()]
    inner += [schema.get(name) for name in ("items", "additionalProperties")]
    inner += schema.get("anyOf", [])
    annotations = {"$schema", "$id", "$defs", "version", "title", "description"}
    found = schema.keys() - VALIDATOR.VALIDATORS.keys() - annotations
    return found.union(*map(unknown_keywords, inner))


def test_no_rule_of_the_schema_is_without_effect():
    assert unknown_keywords({"anyOf": [{"items": {"minimun": 2}}]}) == {"minimun"}
    assert unknown_keywords(SCHEMA) == set()
