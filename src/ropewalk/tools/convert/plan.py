"""Which tensors of a checkpoint change, and how; everything that is not understood is refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ropewalk.checks import shown
from ropewalk.files import shown_path
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.spec import Pairing, RotarySpec
from ropewalk.tools.convert.layouts import Layout
from ropewalk.tools.convert.permute import Heads, Place, order_of_rows
from ropewalk.tools.convert.safetensors_file import Reordering, SafetensorsFile, Tensor

FLOATS = ("F16", "BF16", "F32", "F64", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
# Parts of names that weights have next to them if they are quantized.
QUANTIZED = re.compile(
    r"scale|zero|qweight|g_idx|SCB|absmax|quant|codebook|lut|weight_format|packed", re.IGNORECASE
)
# Parts of names of attention, in modules where the layout does not expect it. Norms before and
# after the attention have such names too.
ATTENTION = re.compile(
    r"^(?!.*norm).*(attn|attention|mixer)|^(w?q|w?k|w?qkv|query|key|query_key_value)(_proj|_b_proj)?$",
    re.IGNORECASE,
)

UNEXPECTED = "it is part of an attention that this model type does not have"


@dataclass(frozen=True)
class ChangedTensor:
    """A tensor whose rows change places.

    what: its name within the layer, such as `self_attn.q_proj.weight`.
    rows: how many of its rows belong to dimensions that rotate.
    """

    name: str
    layer: int
    what: str
    file: str
    bytes: int
    rows: int


@dataclass(frozen=True)
class Plan:
    """The tensors that change, and the new order of rows in each file."""

    tensors: tuple[ChangedTensor, ...]
    reorderings: Mapping[str, tuple[Reordering, ...]]


@dataclass(frozen=True)
class Stack:
    """The text stack of a model: its layers, the layout of its tensors and its heads.

    drafts: how many layers the config has that predict further tokens, after the others.
    """

    layers: tuple[LayerSpec, ...]
    drafts: int
    layout: Layout
    moved: Mapping[str, Place]
    heads: Heads


def make_plan(stack: Stack, files: Iterable[SafetensorsFile], to: Pairing) -> Plan:
    """Return what changes. Raises ValueError that names the first tensor that is not understood."""
    tensors: list[ChangedTensor] = []
    reorderings: dict[str, list[Reordering]] = {}
    found: dict[int, set[str]] = {}
    prefix = _prefix(stack.layout, files := list(files))
    every = stack.layers + stack.drafts * (_draft(stack),)
    for file in files:
        file_name = file.path.name
        for tensor in file.tensors:
            in_layer = _in_layer(tensor.name, prefix, stack)
            if in_layer is None:
                if not tensor.name.startswith(stack.layout.other_stacks):
                    _check_outside(tensor, file)
                continue
            layer, what = in_layer
            place = _place(stack, tensor, what, file)
            if layer >= len(every):
                raise _refused(
                    tensor,
                    file,
                    f"it is of layer {layer}, but the config has {len(every)} layers, counted "
                    f"from 0",
                )
            found.setdefault(layer, set()).add(what)
            rope = every[layer].rope
            if place is None or rope is None:
                continue
            inner = what.removeprefix(stack.layout.attention)
            reordering = _reordering(tensor, inner, place, rope, stack.heads, to, file)
            rows = len(reordering.starts) * len(reordering.order)
            tensors.append(ChangedTensor(tensor.name, layer, what, file_name, tensor.size, rows))
            reorderings.setdefault(file_name, []).append(reordering)
    _check_complete(stack, prefix, found, every)
    tensors.sort(key=lambda tensor: (tensor.layer, tensor.what))
    return Plan(tuple(tensors), {name: tuple(each) for name, each in reorderings.items()})


def _in_layer(name: str, prefix: str, stack: Stack) -> tuple[int, str] | None:
    """Return the layer of a tensor and its name in it, or None if it is of no layer."""
    first = {prefix: 0}
    if stack.layout.drafts and stack.layout.drafts not in stack.layout.layers:
        first[stack.layout.drafts] = len(stack.layers)
    for before, number in first.items():
        found = re.fullmatch(re.escape(before) + r"(\d{1,6})\.(.+)", name, re.DOTALL)
        if found is not None:
            return number + int(found[1]), found[2]
    return None


def _draft(stack: Stack) -> LayerSpec:
    """Return the layer that those for further tokens are like: the last one with a rope."""
    return next(layer for layer in reversed(stack.layers) if layer.rope is not None)


def _prefix(layout: Layout, files: list[SafetensorsFile]) -> str:
    """Return what precedes the number of a layer in this checkpoint."""
    for prefix in layout.layers:
        if any(tensor.name.startswith(prefix) for file in files for tensor in file.tensors):
            return prefix
    raise ValueError(
        f"the weights must have tensors named {' or '.join(f'{p}N.…' for p in layout.layers)} for "
        f"this model type, got {_some_name(files)}"
    )


def _some_name(files: list[SafetensorsFile]) -> str:
    names = [tensor.name for file in files for tensor in file.tensors]
    return f"names such as {shown(names[-1])}" if names else "no tensor at all"


def _check_outside(tensor: Tensor, file: SafetensorsFile) -> None:
    """Raise if a tensor outside the layers may have queries or keys."""
    if any(ATTENTION.search(part) for part in tensor.name.split(".")):
        raise _refused(tensor, file, UNEXPECTED)


def _place(stack: Stack, tensor: Tensor, what: str, file: SafetensorsFile) -> Place | None:
    """Return where a tensor of a layer has queries and keys, or None if it has none."""
    layout = stack.layout
    if what.startswith(layout.attention):
        inner = what.removeprefix(layout.attention)
        module, _, parameter = inner.rpartition(".")
        if inner in layout.kept or (module in layout.kept and parameter in ("weight", "bias")):
            return None
        place = stack.moved.get(re.sub(r"\.\d+(?=\.|$)", ".*", module))
        if place is not None and parameter in ("weight", "bias"):
            return place
        if QUANTIZED.search(inner):
            raise _refused(
                tensor,
                file,
                "quantized weights have scales that would have to move with their rows; convert "
                "the model before it is quantized",
            )
        raise _refused(tensor, file, "it is in the attention, and this model type has no such part")
    parts = what.split(".")
    if parts[0] not in layout.without_rope and any(ATTENTION.search(part) for part in parts[:-1]):
        raise _refused(tensor, file, UNEXPECTED)
    return None


def _reordering(
    tensor: Tensor,
    inner: str,
    place: Place,
    rope: RotarySpec,
    heads: Heads,
    to: Pairing,
    file: SafetensorsFile,
) -> Reordering:
    """Return the new order of a tensor's rows; raise if its shape is not that of the config."""
    rows = place(heads, rope)
    shape = tensor.shape
    is_norm = "norm" in inner
    if is_norm and len(shape) == 2:
        fits = shape[0] * shape[1] == rows.count and shape[1] == rope.head_dim
    else:
        expected = 2 if tensor.name.endswith(".weight") and not is_norm else 1
        fits = len(shape) == expected and shape[0] == rows.count
    if not fits:
        raise _refused(
            tensor,
            file,
            f"its shape is {list(shape)}, but the config has {heads.queries} heads of queries, "
            f"{heads.keys} of keys and a head size of {rope.head_dim}, which gives {rows.count} "
            f"rows",
        )
    if tensor.dtype not in FLOATS:
        raise _refused(
            tensor,
            file,
            f"its dtype is {tensor.dtype}, not a float of whole bytes, as in quantized weights; "
            f"convert the model before it is quantized",
        )
    row_bytes = tensor.size // rows.count
    return Reordering(tensor, row_bytes, rows.starts, order_of_rows(rope.rotary_dim, to))


def _check_complete(
    stack: Stack, prefix: str, found: Mapping[int, set[str]], every: tuple[LayerSpec, ...]
) -> None:
    """Raise if a layer with a rope has no queries or keys."""
    attention = stack.layout.attention
    for layer, spec in enumerate(every):
        left_out = layer >= len(stack.layers) and layer not in found  # as transformers saves them
        if spec.rope is None or left_out:
            continue
        for module in sorted(stack.layout.required):
            ways = [f"{attention}{way}.weight" for way in module.split("|")]
            if not any(way in found.get(layer, ()) for way in ways):
                raise ValueError(
                    f"the weights must have {' or '.join(f'{prefix}{layer}.{w}' for w in ways)}, "
                    f"since layer {layer} of the config has a rope, got none"
                )


def _refused(tensor: Tensor, file: SafetensorsFile, why: str) -> ValueError:
    return ValueError(
        f"tensor {shown(tensor.name, 200)} in {shown_path(file.path)} cannot be converted: {why}"
    )
