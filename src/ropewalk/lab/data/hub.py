"""Files fetched once and kept: of the Hugging Face hub, and small ones from elsewhere."""

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

REACH_SECONDS = 5.0  # within which the hub, or another server, must answer


def download(repository: str, filename: str) -> Path:
    """Give a file of a data set on the hub, from the local cache where it is there.

    Raises CorpusError, at once, where there is no client or no network.
    """
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise CorpusError(
            "multi30k comes from the Hugging Face hub and huggingface_hub is not installed: "
            "pip install 'ropewalk[hub]'"
        ) from None
    try:
        try:  # what was fetched before needs no network
            found = hf_hub_download(
                repository, filename, repo_type="dataset", local_files_only=True
            )
        except Exception:
            _check_network()
            found = hf_hub_download(repository, filename, repo_type="dataset")
        return Path(found)
    except Exception as error:  # the client raises what its transport raises, by version
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].split(". ")[0]
        raise CorpusError(
            f"multi30k could not be fetched from the Hugging Face hub ({reason}); without a "
            "network, give a folder that holds train.de, train.en, val.de, val.en, ..."
        ) from error


def fetch(url: str, corpus: str, most_bytes: int, sha256: str) -> Path:
    """Give a file of a corpus from the web, from the user's cache where it is there.

    The cache is ropewalk/CORPUS in $XDG_CACHE_HOME, or in ~/.cache. What comes
    from the web is kept only if it has this SHA-256; what is there already is not looked into.

    Raises:
        CorpusError: the file cannot be fetched or kept, or has more than `most_bytes` bytes.
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
            raise OSError("what came is not this file")
        write_bytes(path, content)
    except (OSError, HTTPException) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CorpusError(
            f"{url} could not be fetched to {path} ({reason}); put the file there, or give a "
            "folder that holds train.de, train.en, val.de, val.en, ..."
        ) from error
    return path


def _check_network() -> None:
    """Raise OSError where the hub is out of reach: its client would try again for minutes."""
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    if not getproxies():  # behind a proxy, only the client knows the way
        port = address.port or (80 if address.scheme == "http" else 443)
        socket.create_connection((address.hostname or "", port), REACH_SECONDS).close()
