"""The GPU kernel compared with a copy of the same bytes, and the cost of its blocks and tables.

    python benchmarks/gpu_kernel.py [--out FILE.json]

For each shape: times in μs, and bytes read and written per second, including tables, as a share
of a copy's. "one row of tables" reads the cos and sin of one position for all positions; they stay
in the first cache. What this saves is the most that computing angles in the kernel, from 64-bit
phases, could save, before the cost of computing them. The rows named by three numbers try blocks:
pairs per program, pairs per thread, heads per program.
"""

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor
from triton.testing import do_bench

from ropewalk.rotary.kernels import gpu
from ropewalk.rotary.reference import Layout

HEAD_DIM, HEADS, KEY_HEADS = 128, 32, 8
SHAPES = {  # batch, positions, whether each batch row has its own
    "prefill": (4, 8192, False),
    "prefill, own positions": (4, 8192, True),
    "decode": (256, 1, True),
    "decode, small": (1, 1, False),
}


def main() -> None:
    """Print each row, and write all rows to the file of --out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="a .json file for all rows")
    chosen = parser.parse_args()
    rows = []
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    for shape, order in itertools.product(SHAPES, ("B H S D", "B S H D")):
        copied = 0.0
        for name, microseconds, size in timed(shape, order == "B S H D"):
            rate = size / microseconds / 1e3
            copied = copied or rate  # the first row
            rows.append({"shape": shape, "order": order, "row": name, "us": microseconds})
            rows[-1] |= {"GB/s": rate, "of copy": rate / copied}
            print(f"{shape:24} {order} {name:28} {microseconds:9.1f} μs {rate:6.0f} GB/s ", end="")
            print(f"{rate / copied:5.0%}", flush=True)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def timed(shape: str, sequence_first: bool) -> Iterator[tuple[str, float, int]]:
    """Return each row's name, median time in μs and bytes."""
    batch, length, own = SHAPES[shape]
    both = [made(batch, heads, length, sequence_first) for heads in (HEADS, KEY_HEADS)]
    outs = [torch.empty_like(x) for x in both]
    size = 2 * sum(x.numel() * x.element_size() for x in both)
    tables = torch.randn(2, *((batch,) * own), length, HEAD_DIM // 2, device="cuda")
    table_size = tables.numel() * 4
    whole = torch.cat([x.flatten() for x in both])
    target = torch.empty_like(whole)

    def rotate(into: list[Tensor], interleaved: bool = False, row: bool = False) -> None:
        cos, sin = (t[..., :1, :].expand_as(t) if row else t for t in tables)
        gpu.rotate(both, into, cos, sin, Layout(interleaved, interleaved))

    yield "copy", median(lambda: target.copy_(whole)), size
    yield "half", median(lambda: rotate(outs)), size + table_size
    yield "half, in place", median(lambda: rotate(both)), size + table_size
    yield "interleaved", median(lambda: rotate(outs, interleaved=True)), size + table_size
    yield "half, one row of tables", median(lambda: rotate(outs, row=True)), size
    kept = gpu.PAIRS_PER_PROGRAM, gpu.PAIRS_PER_THREAD, gpu.HEADS_PER_PROGRAM
    for block in itertools.product((1024, 2048, 4096), (4, 8, 16), (4, 8)):
        gpu.PAIRS_PER_PROGRAM, gpu.PAIRS_PER_THREAD, gpu.HEADS_PER_PROGRAM = block
        yield "half {}/{}/{}".format(*block), median(lambda: rotate(outs)), size + table_size
    gpu.PAIRS_PER_PROGRAM, gpu.PAIRS_PER_THREAD, gpu.HEADS_PER_PROGRAM = kept


def made(batch: int, heads: int, length: int, sequence_first: bool) -> Tensor:
    """Return noise (B, H, S, D), laid out in either order."""
    if sequence_first:
        return made(batch, length, heads, False).transpose(1, 2)
    return torch.randn(batch, heads, length, HEAD_DIM, device="cuda", dtype=torch.bfloat16)


def median(run: Callable[[], object]) -> float:
    """Return μs on the GPU's clock; do_bench empties its cache before each run."""
    return 1e3 * do_bench(run, warmup=5, rep=30, return_mode="median")


if __name__ == "__main__":
    main()
