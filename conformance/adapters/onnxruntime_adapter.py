"""ONNX Runtime on the CPU: ONNX's RotaryEmbedding (opset 23) and com.microsoft.MRotaryEmbedding.

Its cos and sin are the vector's, of whichever rule. MRotaryEmbedding gets the cos and sin of each
position, and chooses those of each axis. There is no bfloat16 on the CPU.
"""

from typing import Any

import numpy as np
import onnxruntime as ort
from offered import Offer, Result, Vector, arrays, asked, joined, sections
from onnx import TensorProto, helper

OFFERED = Offer(parts=("all", "first"), rules=None, orders=None, reverse=True)
KINDS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}
# An operator, its domain, and its inputs in their order.
PLAIN = "RotaryEmbedding", "", ("x", "cos", "sin", "at")
SEVERAL = "MRotaryEmbedding", "com.microsoft", ("x", "at", "cos", "sin")


def run(operator: Any, kind: int, given: dict[str, np.ndarray], **options: Any) -> np.ndarray:
    """Return the output of a model of one operator."""
    name, domain, names = operator
    types = {each: TensorProto.INT64 if each == "at" else kind for each in names}
    values = [helper.make_tensor_value_info(x, types[x], given[x].shape) for x in names]
    output = helper.make_tensor_value_info("y", kind, given["x"].shape)
    node = helper.make_node(name, names, ["y"], domain=domain, **options)
    graph = helper.make_graph([node], "rope", values, [output])
    versions = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given)[0]


@asked(OFFERED)
def rotate(vector: Vector) -> Result:
    """Level 3, of the first rotary_dim dimensions."""
    rope, dtype = vector["rope"], vector["dtype"]
    if rope["blocks"] or dtype not in KINDS:
        return None
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
        options |= {"mrope_layout": layout, "mrope_section": sections(rope)}
    made, operator = [], PLAIN if layout is None else SEVERAL
    for x in arrays(vector):
        given = {"x": x[None, None].astype(dtype), "at": np.ascontiguousarray(at)}
        given |= {"cos": cos.astype(dtype), "sin": sin.astype(dtype)}
        made.append(run(operator, KINDS[dtype], given, **options))
    return joined(vector, made)
