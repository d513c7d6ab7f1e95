"""Facts that several tools need have one place; fails if a tool has its own again."""

import pytest

from ropewalk import tools
from ropewalk.rotary.config.config_json import LENGTH_KEYS
from ropewalk.tools.inspect.cautions import place_of
from ropewalk.tools.verify.verify import read_like
from ropewalk.tools.verify.verify_report import Check, Place, Report, by_layers

LLAMA = {"model_type": "llama", "num_hidden_layers": 5, "head_dim": 32, "rope_theta": 1e4}


@pytest.mark.parametrize("key", LENGTH_KEYS)
def test_each_key_of_the_context_is_read_by_inspect_and_verify(key):
    later = LENGTH_KEYS[LENGTH_KEYS.index(key) + 1 :]
    config = {**LLAMA, **dict.fromkeys(later, 4096), key: 8192}
    report = tools.inspect(config)
    assert (report.max_length, report.max_length_key) == (8192, key)
    assert read_like(config).max_positions == 8192


def test_layers_are_named_in_the_same_way():
    (kind,) = tools.inspect(LLAMA).kinds
    checks = tuple(Check("sign", "right", "as specified", places=(Place(i),)) for i in range(5))
    (line,) = by_layers(Report("M", "model", checks))
    assert place_of(kind) == f"text {line.where}" == "text layers 0-4"
