"""The tables of docs/catalogue.md, from catalogue.json."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tables import BLOCK, as_table

Facts = dict[str, Any]
FILE = re.compile(r"models/\w+/modeling_(\w+)\.py")  # of transformers


def written(page: str, catalogue: Facts) -> str:
    """Return the text of the page with its tables written again."""
    makers: dict[str, Callable[[Facts], str]] = {
        make.__name__: make for make in (ropes, sections, not_described, no_rope, rules)
    }
    return BLOCK.sub(lambda found: f"{found[1]}{makers[found[2]](catalogue)}{found[3]}", page)


def ropes(catalogue: Facts) -> str:
    """Return the conventions of every model type with a rope, one row for all that share them."""
    entries = _of_kind(catalogue, "rope")
    files = {match[1] for each in entries.values() if (match := FILE.fullmatch(each["source"]))}
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, entry in entries.items():
        rope = entry["rope"]
        found = [pairing(rope), rotary_part(rope), axes(rope), _number(rope["theta_default"])]
        own = max((file for file in files if name.startswith(file)), key=len, default=None)
        is_own = entry["source"].endswith(f"/modeling_{own}.py")
        code = "" if is_own else f" ({source(entry['source'])})"
        groups.setdefault((*found, "; ".join(more(rope))), []).append(f"`{name}`{code}")
    lines = sorted(groups.items(), key=lambda group: (group[0][:3], -len(group[1])))
    columns = ["model types", "pairing", "rotates", "axes", "theta", "and"]
    return as_table(columns, [[", ".join(names), *key] for key, names in lines])


def pairing(rope: Facts) -> str:
    """Return the pairing, and the one of the result if it is another."""
    read, write = rope["pairing"], rope["write_pairing"]
    return read if read == write else f"{read} → {write}"


def rotary_part(rope: Facts) -> str:
    """Return which dimensions rotate, and how many by default."""
    part = rope["rotary_part_default"]
    return rope["rotary_part"] if part is None else f"{rope['rotary_part']} {part:g}"


def axes(rope: Facts) -> str:
    """Return the order of axes, and the default number of pairs of each."""
    sections = rope["mrope_section_default"]
    return rope["axes"] if sections is None else f"{rope['axes']} {', '.join(map(str, sections))}"


def more(rope: Facts) -> list[str]:
    """Return what else differs from a plain rope, in a few words each."""
    found = [name for name in ("reverse", "blocks", "continuous") if rope[name]]
    if "LAYER_TYPE" in rope["theta_key"]:
        found.append("theta by type of layer")
    elif rope["theta_key"] != "rope_theta":
        found.append(f"theta is `{rope['theta_key']}`")
    for layer_type, theta in rope["theta_by_layer_type"].items():
        found.append(f"{layer_type}: `{theta['key']}`, {_number(theta['default'])}")
    found += [f"field `{name}`" for name in rope["extra_rule_fields"]]
    found += [f"YaRN: `{key}` = {value:g}" for key, value in rope["rule_fields_of_code"].items()]
    found += [f"{layer_type}: no rule" for layer_type in rope["unscaled_layer_types"]]
    if rope["softmax_factor"] != "1":
        found.append("softmax factor")
    found += [f"{layer_type}: no rope" for layer_type in rope["nope_layer_types"]]
    if rope["nope_key"] is not None:
        found.append(f"no rope by `{rope['nope_key']}`")
    for key, switch in rope["rope_switches"].items():
        found.append(f"no rope unless `{key}` is `{_json(switch['value'])}`")
    if rope["indexer"] is not None:
        found.append(f"indexer: {pairing(rope['indexer'])}, {rope['indexer']['rotary_part']}")
    found += [f"needs `{key}`" for key in rope["required_keys"]]
    return found


def sections(catalogue: Facts) -> str:
    """Return where the config of a model of several stacks has each of them, and its type."""
    own_types: list[str] = []
    lines = []
    for name, entry in catalogue["model_types"].items():
        places = entry["sections"] or {}
        if any(place["model_type"] is None for place in places.values()):
            own_types.append(f"`{name}`")
            continue
        stacks = [
            f"{stack} at `{place['path']}`: `{place['model_type']}`".replace(" at ``", "")
            for stack, place in places.items()
        ]
        if stacks:
            lines.append([f"`{name}`", "<br>".join(stacks)])
    lines.append([", ".join(own_types), "the type that each section states"])
    return as_table(["model type", "stacks"], lines)


def not_described(catalogue: Facts) -> str:
    """Return the types that rotate otherwise, with the reason."""
    entries = _of_kind(catalogue, "not described").items()
    lines = [[f"`{name}`", entry["reason"], source(entry["source"])] for name, entry in entries]
    return as_table(["model type", "reason", "source"], lines)


def no_rope(catalogue: Facts) -> str:
    """Return the types without rope, by what they have instead."""
    by_reason: dict[str, list[str]] = {}
    for name, entry in _of_kind(catalogue, "no rope").items():
        by_reason.setdefault(entry["reason"], []).append(f"`{name}`")
    lines = [[", ".join(names), reason] for reason, names in by_reason.items()]
    return as_table(["model types", "instead"], lines)


def rules(catalogue: Facts) -> str:
    """Return the fields of each scaling rule; those that may be absent have a default."""
    lines = []
    for rope_type, rule in catalogue["rules"].items():
        fields = [
            f"`{key}`" + ("" if each["required"] else f" ({_json(each['default'])})")
            for key, each in rule["fields"].items()
        ]
        length = "yes" if rule["needs_length"] else "no"
        lines.append([f"`{rope_type}`", f"`{rule['rule']}`", ", ".join(fields), length])
    return as_table(["rope_type", "rule", "fields (default)", "depends on length"], lines)


def source(paths: str) -> str:
    """Return the files of a source, those of transformers without the folder of the family."""
    files = (path.rpartition("/")[2] if path.startswith("models/") else path
             for path in paths.split("; "))  # fmt: skip
    return "; ".join(f"`{file}`" for file in files) if "/" in paths else paths


def _of_kind(catalogue: Facts, kind: str) -> Facts:
    return {k: entry for k, entry in catalogue["model_types"].items() if entry["kind"] == kind}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.10g}"


def _json(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)
