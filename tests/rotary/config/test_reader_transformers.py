"""What transformers makes of the same published config.json files.

These fail when a file, or what is left of it without one of its keys, is read as other ropes than
transformers has for it, or a rule's frequencies differ.
"""

import copy
import json

import pytest
import torch
from published import PUBLISHED, READ, in_transformers, ropes

from ropewalk import ModelSpec


@pytest.mark.parametrize("name", READ)
def test_transformers_saves_the_same_ropes(name):
    theirs = in_transformers(name)
    ours = ModelSpec.from_config(PUBLISHED[name])
    saved = ModelSpec.from_config(json.loads(json.dumps(theirs.to_dict())))
    assert ropes(ours) == ropes(saved)
    assert ropes(ours) == ropes(ModelSpec.from_config(theirs))


# transformers 5.23 leaves Nemotron's own head_dim out of account, which is the same as published.
TAKEN_BEFORE = {
    ("nemotron-mini-4b-instruct", key) for key in ("hidden_size", "num_attention_heads")
}


@pytest.mark.filterwarnings("ignore:`rope_scaling` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", READ)
def test_a_missing_key_stands_for_what_transformers_takes(name):
    """Every key is taken out in turn: what is read then is what transformers reads, or an error."""
    in_transformers(name)
    from transformers import CONFIG_MAPPING

    at = "text_config" if "text_config" in PUBLISHED[name] else None
    keys = PUBLISHED[name].get("text_config", PUBLISHED[name]).keys() - {"model_type"}
    read = 0
    for key in sorted(keys):
        if (name, key) in TAKEN_BEFORE:
            continue
        raw = copy.deepcopy(PUBLISHED[name])
        (raw if at is None else raw[at]).pop(key)
        if name == "llama-4-scout-17b-16e":
            raw["text_config"]["attn_temperature_tuning"] = True
        try:
            ours = ModelSpec.from_config(raw)
        except ValueError:
            continue
        theirs = CONFIG_MAPPING[raw["model_type"]].from_dict(copy.deepcopy(raw)).to_dict()
        saved = ModelSpec.from_config(json.loads(json.dumps(theirs)))
        assert ropes(ours) == ropes(saved), key
        read += 1
    assert read > 0


SAME_RULE = """
    chinese-alpaca-2-7b-64k deepseek-v3 devstral-small-2-24b-instruct-2512 diffbot-small-xl-2505
    gpt-oss-20b llama-2-7b llama-3.1-8b-instruct llama-3.2-1b-instruct llama2-13b-orca-8k
    luau-coder-v2-3b-base-32k ministral-3-3b-reasoning-2512 phi-3-mini-128k-instruct
    phi-4-mini-instruct qwen2.5-coder-32b-instruct-awq-128k vicuna-13b-v1.5-16k
    yarn-llama-2-70b-32k deepseek-v2-lite auroracap-7b-vid-xtuner
""".split()  # noqa: SIM905


@pytest.mark.parametrize("name", SAME_RULE)
def test_transformers_computes_the_same_frequencies(name):
    config = in_transformers(name)
    config = config.get_text_config()
    rope_type = config.rope_parameters["rope_type"]
    rope = ModelSpec.from_config(PUBLISHED[name]).layers[0].rope
    if rope_type == "default":
        assert rope.scaling is None
        return
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    for length in (100, 100_000) if rope_type in ("longrope", "dynamic") else (None,):
        if hasattr(config, "qk_rope_head_dim"):
            config.head_dim = config.qk_rope_head_dim
        theirs, amplitude = ROPE_INIT_FUNCTIONS[rope_type](config, "cpu", seq_len=length)
        torch.testing.assert_close(
            rope.inverse_frequencies(length).float(), theirs.float(), rtol=3e-6, atol=0
        )
        assert rope.amplitude_at(length) == pytest.approx(amplitude)
