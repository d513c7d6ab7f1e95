"""Files pinned by SHA-256: obtained from a folder, from apt-get or from a URL."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from ropewalk.files import read_bytes, shown_path

SECONDS = 30.0  # time within which a server must answer
APT_SECONDS = 600.0
POOL = "https://deb.debian.org/debian/pool/main/"
SNAPSHOT = "https://snapshot.debian.org/file/"  # every file Debian ever had, by its SHA-1


class FetchError(ValueError):
    """A file is unavailable, or is not the expected one."""


@dataclass(frozen=True)
class Pinned:
    """A file, identified by its content.

    size: in bytes. package, version: for `apt-get download`, or "" if Debian does not have it.
    """

    name: str
    size: int
    sha256: str
    urls: tuple[str, ...]
    package: str = ""
    version: str = ""


def debian(package: str, version: str, folder: str, size: int, sha1: str, sha256: str) -> Pinned:
    """Return the pinned file of a Debian package; folder: its path below pool/main."""
    name = f"{package}_{version}_all.deb"
    urls = (f"{POOL}{folder}/{name}", SNAPSHOT + sha1)
    return Pinned(name, size, sha256, urls, package, version)


def obtain(file: Pinned, given: Path | None) -> bytes:
    """Return the bytes of a file: only from `given` (a file or folder) unless it is None.

    Otherwise apt-get and the file's URLs are tried in turn. Raises FetchError, in one line with
    the way out, if no place has the file or its digest differs.
    """
    if given is not None:
        return _given(file, given)
    reasons = []
    for origin, content in _elsewhere(file):
        reason = content if isinstance(content, str) else _difference(file, content)
        if isinstance(content, bytes) and not reason:
            return content
        reasons.append(f"{origin}: {reason}")
    raise FetchError(
        f"{file.name} could not be fetched ({'; '.join(reasons)}); get it from {file.urls[-1]} and "
        "name its folder with --from FOLDER"
    )


def _given(file: Pinned, given: Path) -> bytes:
    path = given / file.name if given.is_dir() else given
    try:
        content = read_bytes(path, max(file.size, 1))
    except ValueError as error:
        raise FetchError(
            f"--from must name {file.name} ({file.size:,} bytes) or its folder: {error}; get it "
            f"from {file.urls[-1]}"
        ) from None
    if reason := _difference(file, content):
        raise FetchError(f"{shown_path(path)} {reason}; get {file.name} from {file.urls[-1]}")
    return content


def _difference(file: Pinned, content: bytes) -> str:
    found = hashlib.sha256(content).hexdigest()
    if found == file.sha256:
        return ""
    return f"has SHA-256 {found[:12]}…, which must be {file.sha256[:12]}…"


def _elsewhere(file: Pinned) -> Iterator[tuple[str, bytes | str]]:
    """Yield the name of each place with the file's bytes, or with the reason why it has none."""
    if file.package and shutil.which("apt-get"):
        yield "apt-get", _apt(file)
    for url in file.urls:
        yield url, _load(url, file.size)


def _apt(file: Pinned) -> bytes | str:
    with tempfile.TemporaryDirectory(prefix="ropewalk-") as folder:
        command = ["apt-get", "download", f"{file.package}={file.version}"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, timeout=APT_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return type(error).__name__
        found = next(Path(folder).glob("*.deb"), None)
        if done.returncode or found is None:
            said = [line for line in done.stderr.decode("utf-8", "replace").split("\n") if line]
            errors = [line for line in said if line.startswith("E:")] or said or ["no file"]
            return errors[0].removeprefix("E:").strip()[:200]
        return found.read_bytes()


def _load(url: str, size: int) -> bytes | str:
    try:
        with urlopen(url, timeout=SECONDS) as answer:
            content: bytes = answer.read(size + 1)
            return content
    except HTTPError as error:
        return f"status {error.code}"
    except URLError as error:
        return str(error.reason)[:200]
    except (OSError, HTTPException) as error:
        return str(error)[:200] or type(error).__name__
