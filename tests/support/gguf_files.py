"""Small GGUF files for tests, written by the `gguf` package."""

from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

LLAMA = {
    "block_count": 4,
    "context_length": 8192,
    "embedding_length": 512,
    "attention.head_count": 8,
    "rope.dimension_count": 64,
    "rope.freq_base": 500000.0,
}


def architecture_names() -> set[str]:
    """The architectures that `gguf` names; skips where its release is older than our tables."""
    gguf = pytest.importorskip("gguf", reason="GGUF files: pip install 'ropewalk[gguf]'")
    if [int(each) for each in version("gguf").split(".")[:2]] < [0, 19]:
        pytest.skip("older than the tables of architectures: pip install 'gguf>=0.19'")
    return set(gguf.MODEL_ARCH_NAMES.values())


def write_gguf(path: Path, architecture: str = "llama", tensors=None, vocabulary=0, **fields):
    """Write a file with these metadata, by names without the architecture; None removes one."""
    gguf = pytest.importorskip("gguf", reason="GGUF files: pip install 'ropewalk[gguf]'")
    writer = gguf.GGUFWriter(path, architecture)
    add = {str: writer.add_string, float: writer.add_float32, list: writer.add_array}
    for name, value in {**LLAMA, **fields}.items():
        if value is not None:
            add.get(type(value), writer.add_uint32)(f"{architecture}.{name}", value)
    if vocabulary:
        writer.add_token_list([f"token {i}" for i in range(vocabulary)])
    for name, values in (tensors or {"token_embd.weight": [0.0] * 8}).items():
        writer.add_tensor(name, np.array(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
