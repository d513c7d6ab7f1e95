"""Every test starts from the same seeds; several workers share the cores, a thread for each."""

import os
import random
import signal

import pytest
import torch

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)

# A shell starts a script's background jobs deaf to Ctrl-C, which tests send and commands heed.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def seeds():
    random.seed(0)
    torch.manual_seed(0)
