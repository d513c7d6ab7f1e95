"""User-defined encodings: of installed packages, and of files named by `--import`.

An installed package offers one by the entry-point group `ropewalk.encodings`; a file or module
that is imported registers its own by `REGISTRY["name"] = callable(shape, **arguments)`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from ropewalk.encodings.interface import AttentionEncoding, Encoding, StackShape
from ropewalk.encodings.registry import REGISTRY
from ropewalk.files import read_bytes

GROUP = "ropewalk.encodings"
MOST = 2**20  # largest size of an imported file, in bytes
_SHOWN = 200  # characters of a user's error in a message


@dataclass(frozen=True)
class ImportedSource:
    """What was imported: a file's full path or a module's name, and the SHA-256 of its bytes.

    Example:
        >>> from ropewalk.encodings import ImportedSource
        >>> ImportedSource("mypackage.encodings", digest="5891b5b5…").source
        'mypackage.encodings'
    """

    source: str
    digest: str


_imported: dict[str, str] = {}  # source -> digest, of this process
_brought: dict[str, str] = {}  # name of an encoding -> where it came from


def installed_names() -> list[str]:
    """Return the names of the encodings that installed packages offer."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def add_installed(name: str) -> None:
    """Load the encoding of this name from an installed package, if one offers it.

    Raises ValueError if it cannot be loaded, or if two packages offer the same name.
    """
    points = list(entry_points(group=GROUP, name=name))
    if not points:
        return
    if len({point.value for point in points}) > 1:
        owners = ", ".join(sorted(map(_owner, points)))
        raise ValueError(f"encoding {name!r} is offered by {owners}; uninstall all but one")
    what = f"encoding {name!r} of the installed {_owner(points[0])}"
    with foreign_code(what, "fix or uninstall it"):
        made = points[0].load()
    if not callable(made):
        raise ValueError(
            f"{what} must be callable(shape, **arguments), got {type(made).__name__} at "
            f"{points[0].value}"
        )
    REGISTRY[name] = made
    _brought[name] = f"the installed {_owner(points[0])}"


def make_foreign(name: str, shape: StackShape, arguments: dict[str, Any]) -> Encoding:
    """Build a user-defined encoding; anything wrong with it is a ValueError of one line.

    It also requests every site, so that a mistake shows before the model is built.
    """
    what = f"encoding {name!r} of {_brought.get(name, 'REGISTRY')}"
    with foreign_code(what, "fix it", "built"):
        made: object = REGISTRY[name](shape, **arguments)
        if not isinstance(made, Encoding):
            raise TypeError(f"callable(shape) must return an Encoding, got {type(made).__name__}")
        list(made.parameters())  # fails if it has not called super().__init__()
        for layer in range(shape.layers):
            if not isinstance(site := made.for_layer(layer), AttentionEncoding):
                raise TypeError(
                    f"for_layer({layer}) must return an AttentionEncoding, got "
                    f"{type(site).__name__}"
                )
    return made


def import_encodings(source: str, digest: str | None = None) -> ImportedSource:
    """Import `FILE.py` or `installed.module`, which adds to `REGISTRY`; return what was imported.

    Raises ValueError of one line if the source fails, or if it no longer has the SHA-256 in
    `digest`.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from ropewalk.encodings import REGISTRY, import_encodings
        >>> file = Path(tempfile.mkdtemp(), "mine.py")
        >>> code = "import ropewalk.encodings as e; e.REGISTRY['mine'] = lambda shape: e.Encoding()"
        >>> _ = file.write_text(code)
        >>> imported = import_encodings(str(file))
        >>> "mine" in REGISTRY, len(imported.digest)
        (True, 64)
        >>> _ = REGISTRY.pop("mine")  # undo it
    """
    is_file = source.endswith(".py") or "/" in source or "\\" in source
    path = Path(source).resolve() if is_file else _file_of_module(source)
    try:
        content = read_bytes(path, MOST)
    except ValueError as error:
        raise ValueError(f"--import {error}") from None
    name = str(path) if is_file else source
    imported = ImportedSource(name, hashlib.sha256(content).hexdigest())
    if digest is not None and digest != imported.digest:
        raise ValueError(changed(name))
    if _imported.get(name) == imported.digest:
        return imported
    known = dict(REGISTRY)
    with foreign_code(f"--import {source}", "fix it, or leave it out"):
        _run_file(path, content, imported.digest) if is_file else importlib.import_module(source)
    mistake, new = _mistake(known), REGISTRY.keys() - known.keys()
    if mistake is not None:
        _restore(known)
        raise ValueError(f"--import {source}: {mistake}")
    _brought.update(dict.fromkeys(new, f"--import {source}"))
    _imported[name] = imported.digest
    return imported


def import_error(source: str, digest: str) -> str | None:
    """Return why this process lacks what a run imported, or None if it has it."""
    if digest in _imported.values():
        return None
    if any(Path(name).name == Path(source).name for name in _imported):
        return changed(source)
    return f"encodings of {source} are not known here; name it with --import {source}"


def changed(source: str) -> str:
    """Return the message that an import has changed since the run began."""
    return f"{source} has changed since this run imported it; restore it, or start a new run"


def _mistake(known: dict[str, Callable[..., Encoding]]) -> str | None:
    """Return what is wrong with the registry, which was `known` before an import, or None."""
    for name, made in known.items():
        if REGISTRY.get(name) is not made:
            return f"it must not replace the encoding {name!r}; give its own another name"
    for name in REGISTRY.keys() - known.keys():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name):
            return f"an encoding's name must be letters, digits and _, got {name!r}"
        if not callable(REGISTRY[name]):
            return f"REGISTRY[{name!r}] must be callable(shape, **arguments)"
    if len(REGISTRY) == len(known):
        return 'it registers no encoding; it must say REGISTRY["name"] = callable'
    return None


def _restore(known: dict[str, Callable[..., Encoding]]) -> None:
    REGISTRY.clear()
    REGISTRY.update(known)


def _owner(point: EntryPoint) -> str:
    return f"package {point.dist.name if point.dist else 'of unknown name'} ({point.value})"


def _file_of_module(name: str) -> Path:
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        raise ValueError(f"--import must be a FILE.py or an installed.module, got {name[:80]!r}")
    with foreign_code(f"--import {name}", "fix it, or leave it out"):
        spec = importlib.util.find_spec(name)
    if spec is None:
        raise ValueError(f"--import {name}: no such module is installed; a file is named FILE.py")
    if spec.origin is None or not spec.has_location:
        raise ValueError(f"--import {name}: it has no file; name the module that registers")
    return Path(spec.origin)


def _run_file(path: Path, content: bytes, digest: str) -> None:
    """Run these bytes, which match the digest, as a module; its folder is not searched."""
    name = f"ropewalk_imported_{digest[:16]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up
    try:
        exec(compile(content, str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise


@contextmanager
def foreign_code(what: str, way_out: str, done: str = "loaded") -> Iterator[None]:
    """Turn any error of user code into one line, and restore the registry."""
    known = dict(REGISTRY)
    try:
        yield
    except KeyboardInterrupt:  # the user's own
        raise
    except BaseException as error:
        _restore(known)
        try:
            text = str(error)
        except KeyboardInterrupt:
            raise
        except BaseException:  # the text of user code's error may itself raise one
            text = "its text can't be made"
        says = " ".join(f"{type(error).__name__}: {text}".split())[:_SHOWN]
        raise ValueError(f"{what} can't be {done}, {says}; {way_out}") from error
