"""Every test starts from the same seeds; several workers share the cores, a thread for each."""

import os
import random

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeds():
    random.seed(0)
    torch.manual_seed(0)
