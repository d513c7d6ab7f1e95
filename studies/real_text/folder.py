"""A real text as a folder for `--data`: written completely or not at all, and verified.

Each document is a file in train/, validation/ or test/. SHA256SUMS lists them all in the format of
`sha256sum -c`. Its own digest is recorded here, so that the text is the same wherever it was
fetched.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from real_text.catalogue import REAL_TEXTS, RealText
from real_text.obtain import FetchError, obtain
from ropewalk.checks import did_you_mean, shown
from ropewalk.files import MOST_DATA_BYTES, read_bytes, shown_path

SUMS = "SHA256SUMS"
SPLITS = ("train", "validation", "test")
MOST_SUMS = 2**22  # limit in bytes for SHA256SUMS

Files = dict[str, bytes]


def fetch(
    name: str, out: Path, given: Path | None = None, say: Callable[[str], None] = lambda _: None
) -> dict[str, int]:
    """Write the folder of a real text, or verify the folder if it exists.

    given: the source file, or a folder that contains the source files; None downloads them. say is
    called with progress messages. Returns the bytes of each split.

    Raises:
        ValueError: if name is unknown, a file is unavailable or has the wrong digest, or out exists
            and contains something else. Nothing is written then.
    """
    text = real_text(name)
    if out.is_symlink() or out.exists():
        return check_folder(text, out)
    files = make(text, given, say)
    _write(out, files)
    return _sizes({path: len(content) for path, content in files.items()})


def real_text(name: str) -> RealText:
    """Return the text of this name; the ValueError for an unknown one lists all names."""
    if name not in REAL_TEXTS:
        raise ValueError(
            f"NAME must be one of {', '.join(REAL_TEXTS)}, got {shown(name)}"
            f"{did_you_mean(name, REAL_TEXTS)}"
        )
    return REAL_TEXTS[name]


def make(text: RealText, given: Path | None, say: Callable[[str], None]) -> Files:
    """Return the files of a text's folder by path, checked against the recorded digest."""
    files: Files = {}
    notices: Files = {}
    for part in text.parts:
        if given is None:
            say(f"fetching {part.file.name}, {part.file.size / 1e6:.1f} MB")
        content = obtain(part.file, given)
        say(f"reading {part.file.name}")
        try:
            splits, notice = part.read(content)
        except ValueError as error:
            raise FetchError(f"{part.file.name} cannot be read: {error}") from None
        for split, documents in splits.items():
            for name, document in documents.items():
                files[f"{split}/{part.name}-{name}.txt"] = document.encode()
        notices[f"COPYRIGHT-{part.name}"] = notice
    sums = _sums(files)
    found = hashlib.sha256(sums).hexdigest()
    if text.digest and found != text.digest:
        raise FetchError(
            f"the text of {text.name} has SHA-256 {found[:12]}…, which must be "
            f"{text.digest[:12]}…: this version of Python parses its pages differently; fetch it "
            "with Python 3.11"
        )
    return {**files, **notices, SUMS: sums, "README.md": _readme(text, files)}


def check_folder(text: RealText, out: Path) -> dict[str, int]:
    """Verify a fetched folder and return the bytes of each split.

    Raises ValueError if it is not this text, or not complete.
    """
    way_out = "remove it, or name another with --out"
    try:
        sums = read_bytes(out / SUMS, MOST_SUMS)
    except ValueError:
        raise ValueError(
            f"--out must name a folder that does not exist yet, got {shown_path(out)}, which does "
            f"not contain {text.name}; {way_out}"
        ) from None
    if text.digest and hashlib.sha256(sums).hexdigest() != text.digest:
        raise ValueError(f"{shown_path(out)} contains another text than {text.name}; {way_out}")
    listed = dict(
        line.split("  ", 1)[::-1]
        for line in sums.decode("utf-8", "replace").split("\n")[:-1]
        if "  " in line
    )
    there = {
        path.relative_to(out).as_posix() for split in SPLITS for path in (out / split).glob("*")
    }
    if not text.digest and not _was_fetched_as(text, out):
        raise ValueError(
            f"{shown_path(out)} does not contain {text.name} according to its README.md; {way_out}"
        )
    if any(not any(path.startswith(f"{split}/") for path in listed) for split in SPLITS):
        raise ValueError(f"{shown_path(out)} is not complete: {SUMS} lacks a split; {way_out}")
    if other := sorted(there ^ listed.keys()):
        raise ValueError(
            f"{shown_path(out)} is not complete: {SUMS} and the folder differ in "
            f"{shown_path(other[0])}; {way_out}"
        )
    sizes = {}
    for path, digest in listed.items():
        content = read_bytes(out / path, MOST_DATA_BYTES)
        sizes[path] = len(content)
        if hashlib.sha256(content).hexdigest() != digest:
            raise ValueError(f"{shown_path(out / path)} was changed after the fetch; {way_out}")
    return _sizes(sizes)


def _was_fetched_as(text: RealText, out: Path) -> bool:
    """Return whether a folder's README names this text and the files it was made from."""
    try:
        said = read_bytes(out / "README.md", MOST_SUMS).decode("utf-8", "replace")
    except ValueError:
        return False
    return said.startswith(f"# {text.name}\n") and all(p.file.sha256 in said for p in text.parts)


def _sums(files: Mapping[str, bytes]) -> bytes:
    lines = (f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n" for path in sorted(files))
    return "".join(lines).encode()


def _sizes(files: Mapping[str, int]) -> dict[str, int]:
    return {
        split: sum(size for path, size in files.items() if path.startswith(f"{split}/"))
        for split in ("train", "validation", "test")
    }


def _readme(text: RealText, files: Mapping[str, bytes]) -> bytes:
    rows = [
        f"- `{part.name}`: {part.about}. From `{part.file.name}`, SHA-256 `{part.file.sha256}`. "
        f"License: {part.license}; its notice is in `COPYRIGHT-{part.name}`."
        for part in text.parts
    ]
    sizes = _sizes({path: len(content) for path, content in files.items()})
    held = ", ".join(
        f"{split} {sum(path.startswith(split) for path in files)} documents, {size:,} bytes"
        for split, size in sizes.items()
    )
    return "\n".join(
        [
            f"# {text.name}",
            "",
            f"Written by `studies/fetch_text.py {text.name}`: {held}. A file is a document, and "
            f"each is in one split. `sha256sum -c {SUMS}` verifies them.",
            "",
            *rows,
            "",
        ]
    ).encode()


def _write(out: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder completely or not at all: into a temporary folder that is then renamed."""
    out = out.absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        for path, content in files.items():
            target = part / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        part.rename(out)
    finally:
        shutil.rmtree(part, ignore_errors=True)
