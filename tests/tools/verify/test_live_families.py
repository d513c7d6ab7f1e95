"""Tiny models of all families of transformers: right in each layer, without a false alarm.

These fail when a family of `tiny_models.FAMILIES` raises an alarm, has a layer with a rope that is
not tested, or cannot be driven any more. `NOT_DRIVEN` says why the others of the same kind are left
out.
"""

import pytest

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
import transformers
from tiny_models import FAMILIES, any_tiny_model

from ropewalk import ModelSpec
from ropewalk.tools.verify.verify_model import verify_model

# Types that have layers whose rotation is not seen, and why.
NOT_SEEN = {
    "hrm_text": "two lists of layers run in turns, and only the first is numbered as in the config",
}

NOT_DRIVEN = {
    "idefics": "its text stack needs an image",
    "lasr_encoder": "it takes audio, no tokens",
    "mimi": "it takes audio, no tokens",
    "timesfm2_5": "it takes time series, no tokens",
    "csm": "its tokens have an axis more, one for each codebook",
    "muse_glimmer_assistant": "it takes another model's states, no tokens",
}


def test_at_least_forty_families():
    assert len(set(FAMILIES)) >= 40
    assert not set(FAMILIES) & set(NOT_DRIVEN)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", FAMILIES)
def test_a_family_is_right_in_every_layer(model_type):
    if model_type not in transformers.CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {model_type}")
    model = any_tiny_model(model_type)
    report = verify_model(model)
    faults = [(check.where, check.name, check.says) for check in report.with_verdict("fault")]
    assert faults == []
    layers = ModelSpec.from_config(model.config).layers
    tested = {check.where for check in report.with_verdict("right") if check.name == "frequencies"}
    for layer, spec in enumerate(layers):
        if spec.rope is not None and model_type not in NOT_SEEN:
            assert {where for where in tested if where.startswith(f"layer {layer},")}
    assert tested
