"""Every test starts from the same seeds."""

import random

import pytest
import torch


@pytest.fixture(autouse=True)
def seeds():
    random.seed(0)
    torch.manual_seed(0)
