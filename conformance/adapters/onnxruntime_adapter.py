"""ONNX Runtime on the CPU: ONNX's RotaryEmbedding (opset 23) and com.microsoft.MRotaryEmbedding.

Its cos and sin are the vector's, of whichever rule. MRotaryEmbedding gets the cos and sin of each
position, and chooses those of each axis. There is no bfloat16 on the CPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

DTYPES = {
    "float32": (TensorProto.FLOAT, np.float32),
    "float16": (TensorProto.FLOAT16, np.float16),
}


def run(kind: int, name: str, domain: str, inputs: dict[str, Any], **attributes: Any) -> Any:
    """Return the output of a model of one operator."""
    types = {x: TensorProto.INT64 if x == "position_ids" else kind for x in inputs}
    values = [helper.make_tensor_value_info(x, types[x], v.shape) for x, v in inputs.items()]
    output = helper.make_tensor_value_info("y", kind, inputs["x"].shape)
    node = helper.make_node(name, list(inputs), ["y"], domain=domain, **attributes)
    graph = helper.make_graph([node], "rope", values, [output])
    versions = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def rotate(vector: dict[str, Any]) -> Any:
    """Level 3, of the first rotary_dim dimensions."""
    rope = vector["rope"]
    if (
        rope["start"]
        or rope["blocks"]
        or rope["pairing"] != rope["write_pairing"]
        or vector["cached"] is not None
        or vector["dtype"] not in DTYPES
    ):
        return None
    kind, dtype = DTYPES[vector["dtype"]]
    options = {"interleaved": int(rope["pairing"] == "interleaved"), "num_heads": 1}
    if rope["rotary_dim"] < rope["head_dim"]:
        options["rotary_embedding_dim"] = rope["rotary_dim"]
    layout = {"sectioned": 0, "interleaved": 1}.get(vector["order"])
    if layout is None:  # a row of the tables for each token, the last one first
        cos, sin = (np.array(vector[name])[::-1] for name in ("cos", "sin"))
        at = np.arange(len(cos))[None, ::-1]
    else:  # a row for each position
        unique, at = np.unique(np.array(vector["positions"]), return_inverse=True)
        angles = np.outer(unique, vector["inverse_frequencies"])
        cos, sin = (vector["attention_factor"] * f(angles) for f in (np.cos, np.sin))
        at = at.reshape(3, 1, -1)
        options["mrope_layout"] = layout
        options["mrope_section"] = [[a[0] for a in rope["axes"]].count(i) for i in range(3)]
    tables = {"cos": cos.astype(dtype), "sin": sin.astype(dtype)}
    ids = {"position_ids": np.ascontiguousarray(at)}
    made = []
    for name in ("q", "k"):
        if vector[name]:
            x = {"x": np.array(vector[name]).astype(dtype)[None, None]}
            if layout is None:
                y = run(kind, "RotaryEmbedding", "", x | tables | ids, **options)
            else:
                y = run(kind, "MRotaryEmbedding", "com.microsoft", x | ids | tables, **options)
            made.append(y[0, 0].astype(np.float32))
    return made
