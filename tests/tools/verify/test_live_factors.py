"""A query temperature is measured, wherever the code applies it; a missing one is a fault.

These fail when a model without the temperature passes, when one that counts tokens in the call is
called wrong, and when a factor that was not measured is called right.
"""

import pytest

pytest.importorskip("transformers", reason="pip install 'ropewalk[dev]'")
from ports import Port
from tiny_models import tiny_model

from ropewalk import LayerSpec, ModelSpec, QueryTemperature, RotarySpec
from ropewalk.tools.verify.verify_model import verify_model

TEMPERATURE = QueryTemperature(beta=0.1, length=256, first=1)


def factors(report):
    return [check for check in report.checks if check.name == "query factor"]


@pytest.mark.parametrize("tuned", [True, False])
def test_a_missing_temperature_is_told_from_one_by_place(tuned):
    """Llama 4 counts tokens of the call: among 27 tokens, its factor is 1, as without it."""
    model = tiny_model("llama4_text", floor_scale=256, num_local_experts=2)
    assert ModelSpec.from_config(model.config).layers[3].query_temperature == TEMPERATURE
    for layer in model.model.layers:
        layer.self_attn.attn_temperature_tuning = tuned
    report = verify_model(model)
    assert report.faults == (() if tuned else ("norm-drift",))
    (last,) = [check for check in factors(report) if check.where == "layer 3, q"]
    assert last.verdict == ("remark" if tuned else "fault")
    assert ("by the token's place" in last.says) == tuned


def test_a_temperature_next_to_an_inline_rope_is_measured():
    model = Port()
    layer = LayerSpec(RotarySpec(16), query_temperature=TEMPERATURE)
    spec = ModelSpec({"text": (layer, layer)})
    assert verify_model(model, spec).faults == ("norm-drift",)
    for block in model.blocks:
        block.temperature = TEMPERATURE
    report = verify_model(model, spec)
    assert report.faults == ()
    assert {check.verdict for check in factors(report)} == {"right"}


def test_a_factor_that_is_not_measured_is_not_right():
    layer = LayerSpec(RotarySpec(16))
    report = verify_model(Port(), ModelSpec({"text": (layer, layer)}))
    assert {check.verdict for check in factors(report)} == {"not tested"}
