"""What a config.json says of one layer alone.

These fail when a mistake in it is read in silence or the error does not name the key.
"""

import re

import pytest
from published import changed

from ropewalk import ModelSpec

GEMMA_4 = "gemma-4-12b"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (GEMMA_4, {"text_config.per_layer_config": 3}, "per_layer_config must be a dictionary"),
        (GEMMA_4, {"text_config.per_layer_config": {"x": {}}}, "per_layer_config must have a dict"),
    ],
)
def test_a_mistake_in_what_is_one_layers_own(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ModelSpec.from_config(changed(name, changes))
