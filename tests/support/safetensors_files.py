"""Safetensors files and a tiny llama folder written from the description of the format."""

import json
import math
import random
import struct

WIDTH = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1, "I8": 1, "F8_E4M3": 1}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 16,
    "head_dim": 8,
    "rope_theta": 10000.0,
    "max_position_embeddings": 64,
}
SHAPES = {
    "self_attn.q_proj.weight": (32, 16),
    "self_attn.k_proj.weight": (16, 16),
    "self_attn.v_proj.weight": (16, 16),
    "self_attn.o_proj.weight": (16, 32),
    "mlp.up_proj.weight": (24, 16),
    "input_layernorm.weight": (16,),
}
ENDS = {"model.embed_tokens.weight": (20, 16), "model.norm.weight": (16,)}


def file_of(header, data=b"", length=None):
    """Return a file from a header (facts, or bytes as they are) and the data."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def tensors_file(tensors, metadata=None):
    """Return a file with random bytes for {name: (dtype, shape)}."""
    header, at, data = {}, 0, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    draw = random.Random(0)
    for name, (dtype, shape) in tensors.items():
        size = WIDTH[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        data += draw.randbytes(size)
        at += size
    return file_of(header, data)


def llama_tensors(layers=2, dtype="F32", **changed):
    """Return the names, dtypes and shapes of a tiny llama; `None` leaves a tensor out."""
    tensors = {
        f"model.layers.{layer}.{name}": (dtype, shape)
        for layer in range(layers)
        for name, shape in SHAPES.items()
    }
    tensors |= {name: (dtype, shape) for name, shape in ENDS.items()}
    tensors |= changed
    return {name: each for name, each in tensors.items() if each is not None}


def llama_folder(folder, config=LLAMA, shards=1, **options):
    """Write a tiny llama, in one file or in several with their index."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "tokenizer.json").write_text('{"version": "1.0"}')
    tensors = llama_tensors(**options)
    if shards == 1:
        content = tensors_file(tensors, {"format": "pt"})
        (folder / "model.safetensors").write_bytes(content)
        return folder
    names, weight_map = list(tensors), {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        own = names[shard::shards]
        (folder / file).write_bytes(tensors_file({name: tensors[name] for name in own}))
        weight_map |= dict.fromkeys(own, file)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    return folder
