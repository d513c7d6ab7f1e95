"""Keys and fields that nobody would read.

These fail when one of them is read over in silence, or when the error does not name it.
"""

import re

import pytest
from published import changed

from ropewalk import ModelSpec

LLAMA = "llama-2-7b"
LLAMA_3 = "llama-3.1-8b-instruct"
YARN = "deepseek-v3"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        # A rule's fields.
        ("vicuna-13b-v1.5-16k", {"rope_scaling.alpha": 2.0}, "'linear' has no field 'alpha'"),
        (LLAMA_3, {"rope_scaling.high_freq_factr": 4.0}, "has no field 'high_freq_factr'"),
        (YARN, {"rope_scaling.beta_fasst": 32}, "rope_type 'yarn' has no field 'beta_fasst'"),
        # Types of layers.
        (LLAMA, {"no_rope_layers": [1] * 31 + [0]}, "no_rope_layers must be absent"),
        # What nobody would read.
        (LLAMA, {"rope_base": 5e5}, "rope_base must be absent, since its effect on the rope"),
        (LLAMA, {"rope_ratio": 50}, "rope_ratio must be absent"),
        (LLAMA, {"alibi": True}, "alibi must be absent"),
        (LLAMA, {"rope_local_base_freq": 1e4}, "rope_local_base_freq must be absent"),
        ("roformer-chinese-base", {"rotary_value": True}, "rotary_value must be absent"),
    ],
)
def test_what_nobody_would_read(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(changed(name, changes))
