"""Convert a model's weights to the other pairing, into a new folder.

A plan says which tensors of a checkpoint change, and how; what is not understood is refused.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

from ropewalk.checks import check_bool, shown
from ropewalk.files import check_space, check_target, complete_folder, open_regular, shown_path
from ropewalk.rotary.layer_spec import LayerSpec
from ropewalk.rotary.spec import Pairing, RotarySpec, check_pairing
from ropewalk.tools.convert.converted_config import KeyChange, ModelToConvert, Stack, read_model
from ropewalk.tools.convert.row_permutation import Place, order_of_rows
from ropewalk.tools.convert.safetensors_folder import (
    CHUNK,
    ModelFolder,
    Reordering,
    SafetensorsFile,
    Tensor,
    copy_reordered,
    read_folder,
)


@dataclass(frozen=True)
class Conversion:
    """What a conversion changed, or would change.

    model_type: of the text model in config.json.
    before, after: the pairing of the weights.
    own: the pairing that the code of the model type uses if config.json states none.
    tensors: the tensors whose rows change places.
    files, bytes: all files of the new folder, and their size.
    key_changes: the keys of config.json that state the pairing and change.
    left_out: folders of IN that are not copied.
    written: whether the new folder was written.
    """

    source: str
    target: str
    model_type: str
    before: Pairing
    after: Pairing
    own: Pairing
    tensors: tuple[ChangedTensor, ...]
    files: tuple[str, ...]
    bytes: int
    key_changes: tuple[KeyChange, ...]
    left_out: tuple[str, ...]
    written: bool

    @property
    def config_change(self) -> str:
        """The change of config.json as text, or "" if nothing changes."""
        return " and ".join(map(str, self.key_changes))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON; the pairings are called `from` and `to`."""
        return {
            "source": self.source,
            "target": self.target,
            "model_type": self.model_type,
            "from": self.before,
            "to": self.after,
            "read_by_model_type": self.own,
            "written": self.written,
            "bytes": self.bytes,
            "config_change": self.config_change,
            "files": list(self.files),
            "left_out": list(self.left_out),
            "tensors": [asdict(tensor) for tensor in self.tensors],
        }


def convert(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    to: str,
    read_as: str | None = None,
    dry_run: bool = False,
) -> Conversion:
    """Write a copy of a model in which the dimensions of each head are paired in the other way.

    Rows of the weights, biases and norms of queries and keys change places, so that the model
    computes the same with a rope that pairs dimensions as `to` says. Names, shapes, dtypes,
    metadata and all other tensors are the same. Converting back restores every byte of the
    weights, and of config.json if it did not state a pairing before.

    source: a folder with config.json and safetensors, in one file or several with their index;
        messages call it IN.
    target: the new folder, OUT in messages. It must not exist. It appears complete or not at all.
    to: `half` or `interleaved`.
    read_as: the pairing that the weights have, if it is not the one that config.json implies.
    dry_run: check everything and return what would change, but write nothing.

    The new config.json states the new pairing by the key `rope_pairing`, or by the key of the
    model's family (`rope_interleave`). If the code of the model type uses the new pairing by
    default, no key is added.

    Other files are copied unchanged. Folders are not copied; the result lists them in `left_out`.
    In a model with vision, only the text stack changes. At most a few megabytes are in memory.

    Raises ValueError that names the file or tensor if the model is not supported: another model
    type, quantized weights, an adapter, weights in another format. Raises OSError if the folder
    cannot be written. `source` is only read.

    Example:
        >>> from ropewalk import tools
        >>> tools.convert("no-such-folder", "out", to="interleaved")
        Traceback (most recent call last):
        ValueError: IN must be a model's folder, but no-such-folder is missing
    """
    check_pairing("to", to)
    check_bool("dry_run", dry_run)
    if read_as is not None:
        check_pairing("read_as", read_as)
    source, target = _path("IN", source), _path("OUT", target)
    folder = read_folder(source)
    model = read_model(source, to=to, read_as=read_as)
    plan = make_plan(model.stack, folder.weights, model.after)
    check_target(source, target)
    if not dry_run:
        check_space(target, folder.bytes)
        _write(folder, model, plan, target)
    return Conversion(
        source=os.fspath(source),
        target=os.fspath(target),
        model_type=model.model_type,
        before=model.before,
        after=model.after,
        own=model.own,
        tensors=plan.tensors,
        files=tuple(sorted([*folder.others, *(file.path.name for file in folder.weights)])),
        bytes=folder.bytes,
        key_changes=model.key_changes,
        left_out=folder.left_out,
        written=not dry_run,
    )


def _path(name: str, value: object) -> Path:
    if not isinstance(value, (str, PathLike)):
        raise TypeError(f"{name} must be a path, got {shown(value)}")
    path = Path(value)
    if "\0" in os.fspath(path):
        raise ValueError(f"{name} must be a path, got {shown(os.fspath(path))}")
    if not path.name:  # "." or ".."
        path = path.resolve()
    return path


def _write(folder: ModelFolder, model: ModelToConvert, plan: Plan, target: Path) -> None:
    with complete_folder(target) as part:
        for name in folder.others:
            with _new_file(part / name) as written:
                if name == "config.json":
                    written.write(model.config)
                    continue
                with open_regular(folder.path / name) as file:
                    shutil.copyfileobj(file, written, CHUNK)
        for weights in folder.weights:
            with _new_file(part / weights.path.name) as written:
                copy_reordered(weights, written, plan.reorderings.get(weights.path.name, ()))


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file, which is on the disk afterwards: OUT never appears before its content."""
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


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


def make_plan(stack: Stack, files: Iterable[SafetensorsFile], to: Pairing) -> Plan:
    """Return what changes. Raises ValueError that names the first tensor that is not understood."""
    tensors = [tensor for file in files for tensor in file.tensors]
    prefix = _prefix(stack, tensors)
    # Layers for further tokens are like the last one with a rope.
    draft = next(layer for layer in reversed(stack.layers) if layer.rope is not None)
    layers = stack.layers + stack.drafts * (draft,)
    changed: list[ChangedTensor] = []
    reorderings: dict[str, list[Reordering]] = {}
    names_in: dict[int, set[str]] = {}
    for tensor in tensors:
        in_layer = _in_layer(tensor.name, prefix, stack)
        if in_layer is None:
            of_other = tensor.name.startswith(stack.layout.other_stacks)
            if not of_other and any(ATTENTION.search(part) for part in tensor.name.split(".")):
                raise _refused(tensor, UNEXPECTED)
            continue
        layer, what = in_layer
        place = _place(stack, tensor, what)
        if layer >= len(layers):
            raise _refused(
                tensor,
                f"it is of layer {layer}, but the config has {len(layers)} layers, counted from 0",
            )
        names_in.setdefault(layer, set()).add(what)
        rope = layers[layer].rope
        if place is None or rope is None:
            continue
        is_norm = "norm" in what.removeprefix(stack.layout.attention)
        reordering = _reordering(stack, tensor, place, rope, to, is_norm=is_norm)
        rows = len(reordering.starts) * len(reordering.order)
        file = tensor.file.name
        changed.append(ChangedTensor(tensor.name, layer, what, file, tensor.size, rows))
        reorderings.setdefault(file, []).append(reordering)
    _check_complete(stack, prefix, names_in, layers)
    changed.sort(key=lambda tensor: (tensor.layer, tensor.what))
    return Plan(tuple(changed), {file: tuple(parts) for file, parts in reorderings.items()})


def _prefix(stack: Stack, tensors: list[Tensor]) -> str:
    """Return what precedes the number of a layer in this checkpoint."""
    prefixes = stack.layout.layers
    for prefix in prefixes:
        if any(tensor.name.startswith(prefix) for tensor in tensors):
            return prefix
    some = f"names such as {shown(tensors[-1].name)}" if tensors else "no tensor at all"
    raise ValueError(
        f"the weights must have tensors named {' or '.join(f'{p}N.…' for p in prefixes)} for "
        f"this model type, got {some}"
    )


def _in_layer(name: str, prefix: str, stack: Stack) -> tuple[int, str] | None:
    """Return the layer of a tensor and its name in it, or None if it is of no layer."""
    first = {prefix: 0}
    if stack.layout.drafts and stack.layout.drafts not in stack.layout.layers:
        first[stack.layout.drafts] = len(stack.layers)
    for before, number in first.items():
        match = re.fullmatch(re.escape(before) + r"(\d{1,6})\.(.+)", name, re.DOTALL)
        if match is not None:
            return number + int(match[1]), match[2]
    return None


def _place(stack: Stack, tensor: Tensor, what: str) -> Place | None:
    """Return where a tensor of a layer has queries and keys, or None if it has none."""
    layout = stack.layout
    if not what.startswith(layout.attention):
        parts = what.split(".")
        if parts[0] in layout.without_rope or not any(map(ATTENTION.search, parts[:-1])):
            return None
        raise _refused(tensor, UNEXPECTED)
    inner = what.removeprefix(layout.attention)
    module, _, parameter = inner.rpartition(".")
    is_plain = parameter in ("weight", "bias")
    if inner in layout.kept or (module in layout.kept and is_plain):
        return None
    place = stack.moved.get(re.sub(r"\.\d+(?=\.|$)", ".*", module))
    if place is not None and is_plain:
        return place
    if QUANTIZED.search(inner):
        raise _refused(
            tensor,
            "quantized weights have scales that would have to move with their rows; convert the "
            "model before it is quantized",
        )
    raise _refused(tensor, "it is in the attention, and this model type has no such part")


def _reordering(
    stack: Stack, tensor: Tensor, place: Place, rope: RotarySpec, to: Pairing, *, is_norm: bool
) -> Reordering:
    """Return the new order of a tensor's rows; raise if its shape is not that of the config."""
    heads, shape = stack.heads, tensor.shape
    rows = place(heads, rope)
    if is_norm and len(shape) == 2:
        fits = shape[0] * shape[1] == rows.count and shape[1] == rope.head_dim
    else:
        expected = 2 if tensor.name.endswith(".weight") and not is_norm else 1
        fits = len(shape) == expected and shape[0] == rows.count
    if not fits:
        raise _refused(
            tensor,
            f"its shape is {list(shape)}, but the config has {heads.queries} heads of queries, "
            f"{heads.keys} of keys and a head size of {rope.head_dim}, which gives {rows.count} "
            f"rows",
        )
    if tensor.dtype not in FLOATS:
        raise _refused(
            tensor,
            f"its dtype is {tensor.dtype}, not a float of whole bytes, as in quantized weights; "
            f"convert the model before it is quantized",
        )
    row_bytes = tensor.size // rows.count
    return Reordering(tensor, row_bytes, rows.starts, order_of_rows(rope.rotary_dim, to))


def _check_complete(
    stack: Stack, prefix: str, names_in: Mapping[int, set[str]], layers: tuple[LayerSpec, ...]
) -> None:
    """Raise if a layer with a rope has no queries or keys."""
    for layer, spec in enumerate(layers):
        left_out = layer >= len(stack.layers) and layer not in names_in  # as transformers saves
        if spec.rope is None or left_out:
            continue
        for module in sorted(stack.layout.required):
            ways = [f"{stack.layout.attention}{way}.weight" for way in module.split("|")]
            if names_in.get(layer, set()).isdisjoint(ways):
                raise ValueError(
                    f"the weights must have {' or '.join(f'{prefix}{layer}.{w}' for w in ways)}, "
                    f"since layer {layer} of the config has a rope, got none"
                )


def _refused(tensor: Tensor, why: str) -> ValueError:
    where = f"tensor {shown(tensor.name, 200)} in {shown_path(tensor.file)}"
    return ValueError(f"{where} cannot be converted: {why}")
