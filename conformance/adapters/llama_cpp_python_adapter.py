"""ggml of llama.cpp on the CPU, as llama-cpp-python ships it: ggml_rope_ext and ggml_rope_multi.

attn_factor is the vector's amplitude, for YaRN without the 0.1 ln s + 1 that the operator computes.
Frequency factors are those of convert_hf_to_gguf.py. Positions of several axes have a fourth row,
which llama.cpp fills with 0. There is no bfloat16 on the CPU.
"""

import ctypes
import sys
from ctypes import c_float, c_int, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from offered import EVERY, ORIGINAL, Offer, Result, Vector, arrays, asked, joined, named, sections

GGML = ctypes.CDLL(str(Path(sys.prefix, "ggml", "bin", "libggml-cpu.so")))
TYPES = {"float32": 0, "float16": 1, "int32": 26}  # enum ggml_type
MODES = {("one", "interleaved"): 0, ("one", "half"): 2}  # NORMAL, NEOX
# MROPE, IMROPE, VISION
MODES |= {("sectioned", "half"): 8, ("interleaved", "half"): 40, ("axial", "half"): 24}
OFFERED = Offer(parts=EVERY, rules=("default", "linear", "yarn", "llama3", "longrope"), orders=None)


class Params(ctypes.Structure):
    """Struct ggml_init_params."""

    _fields_ = (("size", ctypes.c_size_t), ("buffer", c_void_p), ("bare", ctypes.c_bool))


def call(name: str, *values: Any) -> c_void_p:
    """Call a function that returns a pointer, or nothing of use."""
    function = getattr(GGML, name)
    function.restype = c_void_p
    return c_void_p(function(*values))


def tensor(context: c_void_p, array: np.ndarray, dtype: str) -> c_void_p:
    """Return a tensor of three dimensions, of which ggml has the last first."""
    sizes = [ctypes.c_int64(n) for n in (*array.shape[::-1], 1, 1)[:3]]
    made = call("ggml_new_tensor_3d", context, c_int(TYPES[dtype]), *sizes)
    data = np.ascontiguousarray(array, dtype)
    ctypes.memmove(call("ggml_get_data", made), data.ctypes.data, data.nbytes)
    return made


def factors_of(rope: Vector, length: int | None) -> np.ndarray:
    """Return what the frequencies are divided by, (R/2,), as a model's file has it."""
    rule, size = rope["scaling"], rope["rotary_dim"]
    if rule["rope_type"] not in ("llama3", "longrope"):
        return np.ones(size // 2)
    original = rule[ORIGINAL]
    if rule["rope_type"] == "longrope":
        return np.array(rule["long_factor" if (length or 0) > original else "short_factor"])
    waves = 2 * np.pi * rope["theta"] ** (np.arange(0, size, 2) / size)
    low, high = rule["low_freq_factor"], rule["high_freq_factor"]
    smooth = np.clip((original / waves - low) / max(high - low, 1e-9), 0, 1)
    return 1 / ((1 - smooth) / rule["factor"] + smooth)


@asked(OFFERED)
def rotate(vector: Vector) -> Result:
    """Level 3."""
    (order, pairing, _, rule), rope, dtype = named(vector), vector["rope"], vector["dtype"]
    if (order, pairing) not in MODES or rope["continuous"] or dtype not in TYPES:
        return None
    given = {ORIGINAL: 4096, **rope["scaling"]}
    fast, slow = given.get("beta_fast", 32.0), given.get("beta_slow", 1.0)
    at, factors = vector["positions"], factors_of(rope, vector["length"])
    slower = given["factor"] if rule in ("linear", "yarn") else 1.0
    amplitude = vector["attention_factor"] / (0.1 * np.log(slower) + 1 if rule == "yarn" else 1.0)
    floats = rope["theta"], 1 / slower, rule == "yarn", amplitude, fast, slow
    numbers = [c_int(MODES[order, pairing]), c_int(given[ORIGINAL]), *map(c_float, floats)]
    name, made, size = "ggml_rope_ext", [], rope["rotary_dim"] // (2 if order == "axial" else 1)
    if order != "one":
        at = np.concatenate([*at, *np.zeros((4 - len(at), len(at[0])))])
        name, numbers = "ggml_rope_multi", [(c_int * 4)(*sections(rope)), *numbers]
    for x in arrays(vector):
        context = call("ggml_init", Params(1 << 24, None, False))
        inputs = (x[:, None], dtype), (np.array(at), "int32"), (factors, "float32")
        y = call(name, context, *(tensor(context, *each) for each in inputs), c_int(size), *numbers)
        if rope["start"]:
            call("ggml_rope_set_offset", y, c_int(rope["start"]))
        graph = call("ggml_new_graph", context)
        call("ggml_build_forward_expand", graph, y)
        call("ggml_graph_compute_with_ctx", context, graph, c_int(1))
        data = ctypes.string_at(call("ggml_get_data", y), x.astype(dtype).nbytes)
        made.append(np.frombuffer(data, dtype))
        call("ggml_free", context)
    return joined(vector, made)
