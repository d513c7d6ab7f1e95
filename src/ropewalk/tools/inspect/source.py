"""What a user may pass to `inspect`: a config or its file, a folder, a GGUF file, a hub name."""

from __future__ import annotations

import os
import re
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from ropewalk.checks import shown
from ropewalk.files import shown_path
from ropewalk.rotary.config.config_json import MAX_BYTES, JsonObject, load_config

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
SECONDS = 10.0  # within which the hub must answer


class Source(NamedTuple):
    """A model's description: the contents of its config.json, or the path of a GGUF file."""

    name: str
    config: JsonObject | None
    gguf: Path | None


def find_source(config: str | PathLike[str] | JsonObject) -> Source:
    """Return what the argument names. Raises ValueError that names the file and the reason."""
    if not isinstance(config, (str, PathLike)):
        return Source("the config", load_config(config), None)
    text = fspath(config)
    if not isinstance(text, str) or not text:
        raise ValueError(f"config must be a path or a name on the hub, got {shown(text)}")
    path = Path(text)
    try:
        is_file, is_folder, is_there = path.is_file(), path.is_dir(), os.path.lexists(path)
    except (OSError, ValueError):  # not a valid path; load_config says so
        return Source(shown_path(text), load_config(text), None)
    if is_folder:
        return _in_folder(path)
    if is_file:
        return _file(path)
    if not is_there and HUB_NAME.fullmatch(text):
        return Source(text, load_config(_from_hub(text)), None)
    return Source(shown_path(text), load_config(text), None)


def _in_folder(folder: Path) -> Source:
    if (folder / "config.json").exists():
        return Source(shown_path(folder / "config.json"), load_config(folder), None)
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix == ".gguf")
    except OSError as error:
        raise ValueError(f"{shown_path(folder)}: {error.strerror}") from None
    if len(found) == 1:
        return _file(found[0])
    none = "neither a config.json nor a .gguf file"
    has = f"{len(found)} .gguf files; name one of them" if found else none
    raise ValueError(
        f"config must be a folder with a config.json or one .gguf file, got {shown_path(folder)}, "
        f"which has {has}"
    )


def _file(path: Path) -> Source:
    if path.suffix in WEIGHTS:
        raise ValueError(
            f"config must be a config.json, its folder or a GGUF file, got {shown_path(path)}: "
            f"weights do not describe the rope; pass the folder that has their config.json"
        )
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ValueError(f"{shown_path(path)}: {error.strerror}") from None
    if magic == b"GGUF" or path.suffix == ".gguf":
        return Source(shown_path(path), None, path)
    return Source(shown_path(path), load_config(path), None)


def _from_hub(name: str) -> Path:
    """Return the cached config.json of a model on the hub; download it if it is not cached."""
    try:
        import huggingface_hub as hub
    except ImportError:
        raise ValueError(
            f"config must be a file, or a name on the Hugging Face hub, got {shown(name)}: no such "
            f"file, and the hub needs huggingface_hub: pip install 'ropewalk[hub]'"
        ) from None
    client: Any = hub
    try:
        try:
            return Path(client.hf_hub_download(name, "config.json", local_files_only=True))
        except Exception:  # not cached; the exception depends on the client's version
            address = client.hf_hub_url(name, "config.json")
            size = client.get_hf_file_metadata(address, timeout=SECONDS).size
        if size is None or size > MAX_BYTES:
            has = "no known size" if size is None else f"{size:,} bytes"
            raise ValueError(f"it has {has}, at most {MAX_BYTES:,} bytes are allowed")
        return Path(client.hf_hub_download(name, "config.json", etag_timeout=SECONDS))
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"config must be a file, or a name on the Hugging Face hub, got {shown(name)}: no such "
            f"file, and its config.json cannot be read from the hub ({shown(reason, 200)})"
        ) from None
