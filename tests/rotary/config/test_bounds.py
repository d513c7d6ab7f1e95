"""What a config.json may ask for: sizes that published models have, many times over, and no more.

These fail when a size, a list or a number beyond all models is taken, when the error does not say
the bound or echoes the value whole, and when a config that is small or refused takes more than 2 s
of CPU or 500 MB.
"""

import copy
import json
import os
import re
import sys

import pytest
from bounds import bounded
from published import PUBLISHED, changed

from ropewalk import ModelSpec
from ropewalk.rotary.config.config_json import MAX_BYTES
from ropewalk.rotary.config.reader import MAX_PAIRS

LLAMA, LONG, SCOUT = "llama-2-7b", "phi-3-mini-128k-instruct", "llama-4-scout-17b-16e-instruct"
LLAMA_3 = "llama-3.1-8b-instruct"
LISTS = [1.5] * 500_000

HEAVY = {
    "head_dim of a million": (LLAMA, {"head_dim": 2**20}, "head_dim must be at most 8,192"),
    "head_dim of two thousand million": (LLAMA, {"head_dim": 2**31}, "head_dim must be at most"),
    "one head": (LLAMA, {"num_attention_heads": 1, "hidden_size": 2**20}, "must give heads of at"),
    "rotary_dim": ("gpt-j-6b", {"rotary_dim": 2**22}, "rotary_dim must be at most 8,192"),
    "latent": ("deepseek-v3", {"qk_nope_head_dim": 2**20}, "qk_nope_head_dim must be at most"),
    "layers": (LLAMA, {"num_hidden_layers": 10_000}, "num_hidden_layers must be at most 1,000"),
    "theta near 0": (LLAMA, {"rope_theta": 5e-324}, "rope_theta must lie between 1 and 1e+15"),
    "theta": (LLAMA, {"rope_theta": 1e300}, "rope_theta must lie between 1 and 1e+15, got 1e+300"),
    "a factor": (
        "minicpm-2b-128k",
        {"rope_scaling.factor": 1.7e308},
        "factor must lie between 1e-09 and 1e+09, got 1.7e+308",
    ),
    "a divisor": (
        LONG,
        {"rope_scaling.long_factor": [1.7e308] * 48},
        "long_factor[0] must lie between 1e-09 and 1e+09, got 1.7e+308",
    ),
    "a length": (
        LLAMA_3,
        {"rope_scaling.original_max_position_embeddings": 2**40},
        "original_max_position_embeddings must be at most 2,147,483,648",
    ),
    "divisors": (LONG, {"rope_scaling.long_factor": LISTS}, "long_factor must have at most 4,096"),
    "sections": (
        "qwen2.5-vl-7b-instruct",
        {"rope_scaling.mrope_section": [1] * 500_000},
        "mrope_section must have at most 4,096 entries",
    ),
    "a list of layers": (SCOUT, {"text_config.no_rope_layers": LISTS}, "must have one for each"),
    "types": (LLAMA, {"layer_types": ["full_attention"] * 500_000}, "layer_types must name each"),
    "fields": (
        LLAMA,
        {"rope_scaling": {str(i): {} for i in range(200_000)}},
        "rope_parameters must have at most 100 fields",
    ),
    "keys": (LLAMA, {str(i): 0 for i in range(100_000)}, "at most 10,000 keys"),
    "layers that differ": (
        LLAMA,
        {
            "num_hidden_layers": 1_000,
            "head_dim": 8_192,
            "per_layer_config": {str(i): {"rope_theta": 1e4 + i} for i in range(1_000)},
        },
        f"at most {MAX_PAIRS:,} pairs in total, got more in layers 0 to 3",
    ),
    "a long type": (LLAMA, {"model_type": "llama" * 60_000}, "must be one with a known pairing"),
    "a long type of layer": (
        LLAMA,
        {"layer_types": ["full" * 99_000] * 32},
        "a known type of layer",
    ),
    "layers named by long numbers": (
        LLAMA,
        {"per_layer_config": {"9" * 5_000: {}}, "rope_theta": -1},
        "rope_theta must be finite and above 0",
    ),
}


@pytest.mark.parametrize(("name", "changes", "message"), HEAVY.values(), ids=HEAVY)
def test_what_no_model_has(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        ModelSpec.from_config(changed(name, changes))
    assert len(str(caught.value)) < 600


def test_what_models_have_is_far_within():
    config = changed(LLAMA, {"rope_theta": 1e9, "num_hidden_layers": 1_000})
    config["per_layer_config"] = {str(i): {"rope_theta": 1e4 + i % 100} for i in range(10_000)}
    layers = ModelSpec.from_config(config).layers
    assert len({id(layer) for layer in layers}) == 100
    config = changed(LLAMA, {"head_dim": 4_096})
    assert ModelSpec.from_config(config).layer(0).rope.pairs == 2_048


def a_million_layers() -> dict:
    config = copy.deepcopy(PUBLISHED[LLAMA])
    return {**config, "per_layer_config": {str(i): {} for i in range(200_000)}}


LARGE = {
    "objects": lambda: '{"x": [' + "{}," * 1_300_000 + "{}]}",
    "layers": lambda: json.dumps(a_million_layers()),
    "deep": lambda: '{"x": ' + "[" * 4_000_000,
    "too large": lambda: '{"x": 1}' + " " * MAX_BYTES,
    "doubled": lambda: "{" + '"x": [1, 2],' * 250_000 + '"x": 3}',
    "keys": lambda: "{" + ",".join(f'"rope{i}": 0' for i in range(250_000)) + "}",
}


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of Linux")
@pytest.mark.parametrize("name", LARGE)
def test_a_file_within_two_seconds_and_500_mb(name, tmp_path):
    path = tmp_path / "large.json"
    path.write_text(LARGE[name]())
    if name == "layers":
        with bounded():
            ModelSpec.from_config(path)
    else:
        with bounded(), pytest.raises(ValueError, match="must"):
            ModelSpec.from_config(path)


@pytest.mark.skipif(sys.platform != "linux", reason="needs files of Linux")
def test_what_is_no_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=r"config must .* a pipe, not a regular file"):
        ModelSpec.from_config(tmp_path / "pipe")
    for device in ("/dev/zero", "/dev/null"):
        with pytest.raises(ValueError, match=r"a device, not a regular file"):
            ModelSpec.from_config(device)
