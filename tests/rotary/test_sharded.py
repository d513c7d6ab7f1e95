"""DTensors: what several processes share rotates as the complete tensor does, bit for bit.

These fail if a process takes rows of the tables that belong to another, or if gradients are lost.
"""

import pytest
from in_processes import run


@pytest.mark.slow
@pytest.mark.parametrize(("world", "name"), [(4, "compare"), (2, "train")])
def test_parts_rotate_as_complete_tensors(world, name):
    run(world, f"sharded_ropes:{name}")
