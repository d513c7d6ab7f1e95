"""Downloads that are cached: files of the Hugging Face hub, and small files from the web."""

from __future__ import annotations

import hashlib
import os
import socket
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, urlopen

from ropewalk.files import write_bytes
from ropewalk.lab.data.lines import CorpusError

REACH_SECONDS = 5.0  # time within which the hub, or another server, must answer


def download(repository: str, filename: str) -> Path:
    """Return the path of a file of a data set on the hub; download it unless it is cached.

    Raises CorpusError, without retries, if `huggingface_hub` or the network is missing.
    """
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise CorpusError(
            "multi30k needs huggingface_hub for its download, which is not installed: "
            "pip install 'ropewalk[hub]'"
        ) from None
    try:
        try:  # a cached file needs no network
            found = hf_hub_download(
                repository, filename, repo_type="dataset", local_files_only=True
            )
        except Exception:
            check_network()
            found = hf_hub_download(repository, filename, repo_type="dataset")
        return Path(found)
    except Exception as error:  # which errors the client raises depends on its version
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0]
        raise CorpusError(
            f"multi30k could not be downloaded from the Hugging Face hub ({reason}); without a "
            "network, use a folder that contains train.de, train.en, val.de, val.en, ..."
        ) from error


def fetch(url: str, corpus: str, most_bytes: int, sha256: str) -> Path:
    """Return the path of a file of a corpus on the web; download it unless it is cached.

    The cache is ropewalk/CORPUS in $XDG_CACHE_HOME, or in ~/.cache. A download is
    saved only if it has this SHA-256; a cached file is not checked.

    Raises:
        CorpusError: if the file cannot be downloaded or saved, or exceeds `most_bytes` bytes.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = cache / "ropewalk" / corpus / url.rpartition("/")[2]
    try:
        if path.exists():
            return path
        with urlopen(url, timeout=REACH_SECONDS) as answer:
            content = answer.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise OSError(f"it has more than {most_bytes:,} bytes")
        if hashlib.sha256(content).hexdigest() != sha256:
            raise OSError("the SHA-256 of the download is not the expected one")
        write_bytes(path, content)
    except (OSError, HTTPException) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CorpusError(
            f"{url} could not be downloaded to {path} ({reason}); put the file there, or use a "
            "folder that contains train.de, train.en, val.de, val.en, ..."
        ) from error
    return path


def check_network() -> None:
    """Raise OSError if the hub cannot be reached: its client would retry for minutes."""
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    if not getproxies():  # behind a proxy, only the client can connect
        port = address.port or (80 if address.scheme == "http" else 443)
        socket.create_connection((address.hostname or "", port), REACH_SECONDS).close()
