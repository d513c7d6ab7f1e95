"""What transformers makes of the same published config.json files.

These fail when a file, or what is left of it without one of its keys, is read as other ropes than
transformers has for it, or a rule's frequencies differ.
"""

import copy
import json
from typing import Any

import pytest
import torch
from published import PUBLISHED, READ, in_transformers, published_spec, ropes

from ropewalk import ModelSpec
from ropewalk.rotary.config.sections import model_type_of

transformers = pytest.importorskip(
    "transformers", reason="the outside reference: pip install 'ropewalk[dev]'"
)
READ_BY_BOTH = [
    name
    for name in READ
    if model_type_of(PUBLISHED[name]) in transformers.CONFIG_MAPPING
    and name != "hunyuan-ocr-1.5"  # transformers 5.23 wants a factor for its type of rope
]


def saved(config: Any) -> ModelSpec:
    """What is read in the file that transformers writes of its config."""
    return ModelSpec.from_config(json.loads(json.dumps(config.to_dict())))


def test_transformers_saves_the_same_ropes():
    differ = []
    for name in READ_BY_BOTH:
        theirs, ours = in_transformers(name), ropes(published_spec(name))
        if not ours == ropes(saved(theirs)) == ropes(ModelSpec.from_config(theirs)):
            differ.append(name)
    assert differ == []


# transformers 5.23 leaves Nemotron's own head_dim out of account, which is the same as published.
TAKEN_BEFORE = {
    ("nemotron-mini-4b-instruct", key) for key in ("hidden_size", "num_attention_heads")
}


def text_part(config: dict[str, Any]) -> dict[str, Any]:
    return config.get("text_config", config)


def keys_by_file() -> dict[str, list[str]]:
    """The keys of each file; a key is taken out of one file of a model type and a rope type."""
    keys: dict[str, list[str]] = {}
    seen = set()
    for name in READ_BY_BOTH:
        text = text_part(PUBLISHED[name])
        rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
        kind = PUBLISHED[name]["model_type"], rope.get("rope_type", rope.get("type"))
        new = [key for key in sorted(text.keys() - {"model_type"}) if (*kind, key) not in seen]
        keys[name] = [key for key in new if (name, key) not in TAKEN_BEFORE]
        seen |= {(*kind, key) for key in new}
    return {name: of_file for name, of_file in keys.items() if of_file}


@pytest.mark.filterwarnings("ignore:`rope_scaling` is deprecated:FutureWarning")
@pytest.mark.parametrize(("name", "keys"), keys_by_file().items())
def test_a_missing_key_stands_for_what_transformers_takes(name, keys):
    """Each key is taken out in turn: what is read then is what transformers reads, or an error."""
    for key in keys:
        raw = copy.deepcopy(PUBLISHED[name])
        text_part(raw).pop(key)
        try:
            ours = ModelSpec.from_config(raw)
        except ValueError:
            continue
        assert ropes(ours) == ropes(saved(in_transformers(name, raw))), key


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
    rope = published_spec(name).layers[0].rope
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
