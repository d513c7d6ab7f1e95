"""The rotation on a GPU: that calls reach its kernel, and that the kernel passes triton_cases.py.

These fail when a tensor on a GPU misses its kernel or one elsewhere reaches it, when the kernel's
shapes disagree with what a compiler is told, or when any of triton_cases.py does.
"""

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from ropewalk import RotaryEmbedding, RotarySpec, rotate
from ropewalk.rotary.kernels import gpu, operator

TRITON = importlib.util.find_spec("triton") is not None
GPU = torch.cuda.is_available()


@pytest.mark.skipif(not TRITON, reason="needs triton: pip install triton (Linux; 0.3 GB)")
def test_every_case_passes_on_the_gpu_or_in_the_interpreter():
    cases = Path(__file__).parents[2] / "support" / "triton_cases.py"
    options = ["-q", "-n", "0", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, str(cases)]
    switch = {} if GPU else {"TRITON_INTERPRET": "1"}
    run = subprocess.run(
        command, cwd=cases.parents[1], env=os.environ | switch, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-5000:]
    assert " passed" in run.stdout, run.stdout


def graph_of(function, *shapes: tuple[int, ...], device: str = "cuda", dtype=torch.bfloat16):
    """What `function` calls for tensors on a device, which need not be there."""
    with FakeTensorMode():
        tensors = [torch.empty(shape, device=device, dtype=dtype) for shape in shapes]
        return make_fx(function)(*tensors)


def calls(graph: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def rotated(x, cos, sin):
    return rotate(x, cos.float(), sin.float(), pairing="half")


X, TABLE = (2, 4, 3, 8), (3, 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_tensor_on_a_gpu_reaches_the_operator(monkeypatch, dtype):
    monkeypatch.setattr(gpu, "AVAILABLE", True)
    graph = graph_of(rotated, X, TABLE, TABLE, dtype=dtype)
    assert "ropewalk.rotate.default" in calls(graph)
    (result,) = next(iter(reversed(graph.graph.nodes))).all_input_nodes
    assert result.meta["val"].shape == X
    assert result.meta["val"].device.type == "cuda"
    assert result.meta["val"].dtype == dtype


def test_q_and_k_reach_it_in_one_call(monkeypatch):
    monkeypatch.setattr(gpu, "AVAILABLE", True)
    rope = RotaryEmbedding(RotarySpec(8))
    graph = graph_of(lambda q, k: rope(q, k), X, (2, 2, 3, 8))
    assert calls(graph).count("ropewalk.rotate.default") == 1


def in_place(x, cos, sin):
    return rotate(x, cos.float(), sin.float(), pairing="half", out=x)


def test_a_rotation_in_place_reaches_its_own_operator(monkeypatch):
    monkeypatch.setattr(gpu, "AVAILABLE", True)
    assert "ropewalk.rotate_.default" in calls(graph_of(in_place, X, TABLE, TABLE))


@pytest.mark.parametrize(
    ("available", "shapes", "dtype"),
    [
        pytest.param(False, (X, TABLE, TABLE), torch.float32, id="no triton"),
        pytest.param(True, (X, TABLE, TABLE), torch.float64, id="float64"),
        pytest.param(True, ((1, 1, *X), TABLE, TABLE), torch.float32, id="six axes"),
        pytest.param(True, (X, (2, 4, 3, 4), (2, 4, 3, 4)), torch.float32, id="heads differ"),
        pytest.param(True, (X, (3, 0), (3, 0)), torch.float32, id="nothing rotates"),
    ],
)
def test_what_the_kernel_does_not_serve_goes_to_torch(monkeypatch, available, shapes, dtype):
    monkeypatch.setattr(gpu, "AVAILABLE", available)
    assert not any("ropewalk" in name for name in calls(graph_of(rotated, *shapes, dtype=dtype)))


def test_tables_elsewhere_than_x_are_not_read_by_a_kernel(monkeypatch):
    monkeypatch.setattr(gpu, "AVAILABLE", True)
    with FakeTensorMode():
        here, there = torch.empty(3, 4), torch.empty(3, 4, device="cuda")
        x, y = torch.empty(X), torch.empty(X, device="cuda")
        for tensor, cos, sin in [(x, there, there), (x, here, there), (y, here, there)]:
            assert not operator._kernel_serves((tensor,), cos, sin)
        assert operator._kernel_serves((y,), there, there)
        assert not operator._kernel_serves((x, y), there, there)
        assert not operator._kernel_serves((y, x), here, here)


def test_both_operators_have_a_kernel_for_gpus():
    for name in ("ropewalk::rotate", "ropewalk::rotate_"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA")


@pytest.mark.parametrize("pairs", [1, 11, 64, 96, 1024, 5000])
def test_blocks_are_powers_of_two_that_waste_little(pairs):
    for length, heads in itertools.product((1, 2, 3, 100, 10**6), (1, 3, 8, 128)):
        *sizes, warps = gpu.blocks(length, heads, pairs)
        for size, needed in zip(sizes, (length, heads, pairs), strict=True):
            assert size & (size - 1) == 0
            assert 1 <= size < 2 * needed
        assert sizes[2] >= pairs
        assert sizes[0] * sizes[1] * sizes[2] <= max(gpu.PAIRS_PER_PROGRAM, sizes[2])
        assert warps in (1, 2, 4, 8)
