"""Rotates q and k through transformers' own code: a case for every rope of every model folder."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import transformers
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from .calls import AXES, NOTES
from .configs import CONFIGS, STUBS, UNREACHABLE
from .drivers import Call, Direct, call_for
from .hollow import big_on_meta
from .tower import Layer, Tower

MODELS = Path(transformers.__file__).parent / "models"
NO_MODEL = (ImportError, AttributeError, KeyError, TypeError, ValueError)
ROTARY_CLASS = re.compile(r"^class (\w*(?:Rotary|Rope|RoPE)\w*)", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One rope of one model: where it is, and transformers' own rotation of q and k by it."""

    family: str
    rotary_class: str
    stack: str
    layer_type: str | None
    layer: int
    config: dict[str, Any]
    head_dim: int
    heads: int
    kv_heads: int
    positions: Tensor
    rotate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    note: str = ""
    part: str = ""  # path in `config` of the stack's own part: "text_config", or "" for the whole
    where: str = ""  # path of the stack in the model


@functools.cache
def scanned() -> dict[str, dict[str, list[str]]]:
    """Family → modeling module → its rotary classes, according to the sources.

    An attention class counts if its file has no class that makes the tables.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for path in sorted(MODELS.glob("*/modeling_*.py")):
        source = path.read_text(encoding="utf-8")
        if not re.search("rot|rope", source, re.IGNORECASE):
            continue
        classes = [c for c in ROTARY_CLASS.findall(source) if not c.endswith("Attention")]
        if not classes and re.search(r"def (?:apply_rot|rotate_)", source):
            classes = _rotating_attention(source)
        if classes:
            found.setdefault(path.parent.name, {})[path.stem] = classes
    return found


def _rotating_attention(source: str) -> list[str]:
    """Attention classes that call a rotation."""
    return [
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
        and re.search(r"Attention$", node.name)
        and any(
            isinstance(call, ast.Call)
            and re.search(r"\bapply_rot|\brotate_", ast.unparse(call.func))
            for call in ast.walk(node)
        )
        and any(isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in node.body)
    ]


def families() -> list[str]:
    """All model folders with a rotary class."""
    return list(scanned())


def missing() -> list[str]:
    """`family.Class` of rotary classes that yield no case and are not excused."""
    want = {f"{f}.{c}" for f, stems in scanned().items() for cs in stems.values() for c in cs}
    have = {f"{case.family}.{case.rotary_class}" for case in cases()}
    return sorted(w for w in want - have if not {w, w.split(".")[0]} & set(UNREACHABLE))


def cases() -> Iterator[Case]:
    """Yield all cases by family; a family's modeling file is imported only when it is reached."""
    for family, stems in scanned().items():
        yield from family_cases(family, stems)


def family_cases(family: str, stems: dict[str, list[str]] | None = None) -> Iterator[Case]:
    """Cases of one model folder."""
    for stem, classes in (stems or scanned()[family]).items():
        module = importlib.import_module(f"transformers.models.{family}.{stem}")
        rotaries = tuple(getattr(module, name) for name in classes)
        seen: set[tuple[str, str]] = set()  # rotary class and the class of its host
        built: set[str] = set()
        for model_class, whole, config in _models(module):
            covered = {name for name, _ in seen} >= set(classes)
            if model_class.__name__ in built or (covered and "For" in model_class.__name__):
                continue
            plain = json.loads(json.dumps(whole.to_dict()))
            try:
                with big_on_meta(), _stubbed(module):
                    model = model_class(config).eval()
            except NO_MODEL:
                continue  # a part of it may still be buildable
            built |= {type(m).__name__ for m in model.modules()}
            yield from _model_cases(family, model, whole, plain, rotaries, seen)


class _Stub:
    """Makes an empty module in place of a part, with any arguments."""

    def __new__(cls, *args: Any, **kwargs: Any) -> nn.Identity:
        return nn.Identity()


@contextlib.contextmanager
def _stubbed(module: ModuleType) -> Iterator[None]:
    """Context without the parts whose packages are not installed."""
    with contextlib.ExitStack() as stack:
        for name in STUBS:
            if hasattr(module, name):
                stack.enter_context(mock.patch.object(module, name, _Stub))
        yield


def _models(module: ModuleType) -> list[tuple[type, PretrainedConfig, PretrainedConfig]]:
    """Model classes with the full configuration and their own part of it; full models first."""
    models = [
        c
        for c in vars(module).values()
        if inspect.isclass(c)
        and issubclass(c, PreTrainedModel)
        and c.__module__ == module.__name__
        and isinstance(c.config_class, type)
        and not re.search("PreTrainedModel$|PretrainedModel$", c.__name__)
    ]
    parts = {s for c in models for s in c.config_class.sub_configs.values()}
    wholes = {
        c.config_class: _config(c.config_class) for c in models if c.config_class not in parts
    }
    found = {k: (whole, part) for whole in wholes.values() for k, part in _parts(whole).items()}
    order = sorted(
        models,
        key=lambda c: (
            c.config_class in parts,
            "For" in c.__name__,
            not c.__name__.endswith("Model"),
        ),
    )
    return [(c, *found[c.config_class]) for c in order if c.config_class in found]


def _parts(config: PretrainedConfig) -> dict[type, PretrainedConfig]:
    """A configuration and all configurations inside it, by class."""
    found = {type(config): config}
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if isinstance(part, PretrainedConfig):
            found = {**_parts(part), **found}
    return found


def _config(config_class: type[PretrainedConfig]) -> PretrainedConfig:
    """The default configuration, with the values from `CONFIGS` that it needs to be built."""

    def lacks(part_class: type[PretrainedConfig]) -> dict[str, Any]:
        kwargs = dict(CONFIGS.get(part_class.__name__, {}))
        for name, part in getattr(part_class, "sub_configs", {}).items():
            inner = lacks(part) if part.__name__ != part_class.__name__ else {}
            if inner:
                kwargs.setdefault(name, inner)
        return kwargs

    config = config_class(**lacks(config_class))
    _eager(config)
    return config


def _eager(config: PretrainedConfig) -> None:
    config._attn_implementation = "eager"
    for name in config.sub_configs:
        part = getattr(config, name, None)
        if isinstance(part, PretrainedConfig):
            _eager(part)


def _part(config: PretrainedConfig, whole: PretrainedConfig, path: str = "") -> str | None:
    """The path of a stack's own configuration in the full one, or None if it is not in it."""
    if config is whole:
        return path
    for name in whole.sub_configs:
        inner = getattr(whole, name, None)
        if isinstance(inner, PretrainedConfig):
            found = _part(config, inner, f"{path}.{name}" if path else name)
            if found is not None:
                return found
    return None


STACKS = {
    "vision": "vision|vit|image|visual|video|dinov3|sapiens|loftr|pixtral|mlcd",
    "audio": "audio|speech|wav|codec|code2wav|token2wav|conformer|codec|glmasr|lasr",
    "decoder": "decoder",
    "encoder": "encoder",
}


def _stack(part: str, host: nn.Module) -> str:
    """The kind of tower: by its configuration's name, or else by its own."""
    for words in (part.rpartition(".")[2], type(host).__name__):
        for stack, marks in STACKS.items():
            if re.search(marks, words, re.IGNORECASE):
                return stack
        if words.startswith("text"):
            return "text"
    return "text"


@functools.cache
def _source(rotary: type) -> str:
    """The source of a class; `inspect.getsource` would parse the whole file for each."""
    text = Path(inspect.getfile(rotary)).read_text(encoding="utf-8")
    found = re.search(
        rf"^class {rotary.__name__}\b.*?(?=^[^\s)]|\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert found is not None, rotary
    return found[0]


def _model_cases(
    family: str,
    model: nn.Module,
    whole: PretrainedConfig,
    config: dict[str, Any],
    rotaries: tuple[type, ...],
    seen: set[tuple[str, str]],
) -> Iterator[Case]:
    modules = dict(model.named_modules())
    hosts: dict[str, tuple[str, Call | Direct]] = {}
    for path, module in modules.items():
        if not isinstance(module, rotaries):
            continue
        name = type(module).__name__
        axes = AXES.get(name) or (3 if "mrope_section" in _source(type(module)) else 1)
        up = path
        while up and up not in hosts:
            up = up.rpartition(".")[0]
            host = type(modules[up]).__name__
            if (name, host) in seen:
                break
            call = call_for(modules[up], axes)
            if call is not None:
                hosts[up] = name, call
                seen.add((name, host))
    for path, (name, call) in sorted(hosts.items(), key=lambda x: -x[0].count(".")):
        part = _part(getattr(modules[path], "config", None), whole) or ""
        if isinstance(call, Direct):
            yield Case(
                family=family,
                rotary_class=name,
                stack=_stack(part, modules[path]),
                part=part,
                layer_type=None,
                layer=0,
                config=config,
                where=path,
                **vars(call),
            )
            continue
        tower = Tower(modules[path], call, rotaries)
        yield from _tower_cases(family, tower, config, path, part)


def _tower_cases(
    family: str, tower: Tower, config: dict[str, Any], path: str, part: str
) -> Iterator[Case]:
    types = getattr(getattr(tower.host, "config", None), "layer_types", None) or []
    shapes: dict[tuple[int, ...], list[Layer]] = {}
    for x in tower.layers:
        if x.length:
            shapes.setdefault((x.heads, x.kv_heads, x.length, x.head_dim), []).append(x)
    groups: dict[Any, Layer] = {}
    for (H, K, S, D), layers in shapes.items():
        generator = torch.Generator().manual_seed(0)
        q = torch.randn(1, H, S, D, generator=generator)
        k = torch.randn(1, K, S, D, generator=generator)
        for layer, outs in tower.rotated(q, k, layers).items():
            kind = types[layer.index] if layer.index < len(types) else None
            mark = tuple(round(float((x * x.flip(-1)).sum()), 0) for x in outs)
            groups.setdefault((kind, type(layer.attention), H, K, S, D, mark), layer)
    for (kind, _, H, K, S, D, _), layer in groups.items():
        q, k = torch.ones(1, H, S, D), torch.ones(1, K, S, D)
        q_out, k_out = tower.rotated(q, k, [layer])[layer]
        same = torch.equal(q_out, q) and torch.equal(k_out, k)
        yield Case(
            family=family,
            rotary_class=tower.rotary() if tower.calls else type(layer.attention).__name__,
            stack=_stack(part, tower.host),
            part=part,
            layer_type=kind,
            layer=layer.index,
            config=config,
            head_dim=D,
            heads=H,
            kv_heads=K,
            positions=tower.positions(S),
            rotate=tower.rotation(layer),
            note=NOTES.get(type(tower.host).__name__, "no rotation" if same else ""),
            where=path,
        )


__all__ = ["UNREACHABLE", "Case", "cases", "families", "missing"]
