"""Files of the Hugging Face hub."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from ropewalk.lab.data.lines import CorpusError

REACH_SECONDS = 5.0  # within which the hub must answer


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


def _check_network() -> None:
    """Raise OSError where the hub is out of reach: its client would try again for minutes."""
    from huggingface_hub import constants

    address = urlsplit(constants.ENDPOINT)
    if not getproxies():  # behind a proxy, only the client knows the way
        port = address.port or (80 if address.scheme == "http" else 443)
        socket.create_connection((address.hostname or "", port), REACH_SECONDS).close()
