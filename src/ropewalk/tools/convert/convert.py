"""Convert a model's weights to the other pairing, into a new folder."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ropewalk.checks import check_bool, shown
from ropewalk.rotary.spec import Pairing, check_pairing
from ropewalk.tools.convert.folder import ModelFolder, read_folder
from ropewalk.tools.convert.model import ModelToConvert, read_model
from ropewalk.tools.convert.plan import ChangedTensor, Plan, make_plan
from ropewalk.tools.convert.safetensors_file import copy_reordered, open_regular
from ropewalk.tools.convert.target import check_space, check_target, complete_folder

CHUNK = 2**22


@dataclass(frozen=True)
class Conversion:
    """What a conversion changed, or would change.

    model_type: of the text model in config.json.
    before, after: the pairing of the weights.
    own: the pairing that the code of the model type uses if config.json states none.
    tensors: the tensors whose rows change places.
    files, bytes: all files of the new folder, and their size.
    config_change: the change of config.json as text, or "" if nothing changes.
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
    config_change: str
    left_out: tuple[str, ...]
    written: bool

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
            "tensors": [
                {
                    "name": tensor.name,
                    "layer": tensor.layer,
                    "what": tensor.what,
                    "file": tensor.file,
                    "bytes": tensor.bytes,
                    "rows": tensor.rows,
                }
                for tensor in self.tensors
            ],
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
        config_change=model.config_change,
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
    try:
        with complete_folder(target) as part:
            for name in folder.others:
                if name == "config.json":
                    _write_bytes(part / name, model.config)
                else:
                    _copy(folder.path / name, part / name)
            for file in folder.weights:
                with (part / file.path.name).open("xb") as written:
                    copy_reordered(file, written, plan.reorderings.get(file.path.name, ()))
                    _finish(written)
    except OSError as error:  # the error of a failed write does not name its file
        full = error.errno == errno.ENOSPC
        reason = "the disk is full" if full else error.strerror or str(error)
        raise OSError(error.errno, f"{reason}; OUT was not written", os.fspath(target)) from error


def _write_bytes(path: Path, content: bytes) -> None:
    with path.open("xb") as file:
        file.write(content)
        _finish(file)


def _copy(source: Path, target: Path) -> None:
    with open_regular(source) as file, target.open("xb") as written:
        while chunk := file.read(CHUNK):
            written.write(chunk)
        _finish(written)


def _finish(file: Any) -> None:
    """Write the buffers to the disk, so that OUT never appears before its content."""
    file.flush()
    os.fsync(file.fileno())
