"""Runs the C kernels without torch, and compares the bits that they write with a digest.

`python .ci/kernel_digest.py [FOLDER]` takes the kernels of the installed package, or those below a
folder. It gives them objects with the attributes of tensors that they read, so it runs wherever
Python does, such as in an emulator, where torch would take hours. Rotation has the same bits on
every processor. Attention is compared with double precision.
"""

import ctypes
import hashlib
import itertools
import math
import random
import struct
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

DIGEST = "633397588e425444aca2badb089798256cb2189b3e03f3f80e339cd1110fb9b2"  # on x86-64, by GCC
BYTES = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
FINITE = {"bfloat16": 0x7F7F, "float16": 0x7BFF}  # the largest finite number's bits
CODE = {"float32": "f", "float64": "d"}


class Tensor:
    """The attributes of a contiguous torch tensor that the kernels read."""

    is_cpu = True

    def __init__(self, dtype: str, shape: tuple[int, ...]) -> None:
        """Create one of zeros."""
        self.dtype, self.shape = dtype, shape
        self.memory = ctypes.create_string_buffer(math.prod(shape) * BYTES[dtype])

    def stride(self) -> tuple[int, ...]:
        """Return how many elements apart the next one of each axis is."""
        return tuple(math.prod(self.shape[i + 1 :]) for i in range(len(self.shape)))

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return ctypes.addressof(self.memory)

    def fill(self, draw: random.Random, exponents: int = 0) -> "Tensor":
        """Fill with numbers, of many sizes, or with any bits of 16-bit numbers that are finite."""
        count = math.prod(self.shape)
        if self.dtype in FINITE:
            most = FINITE[self.dtype]
            bits = [draw.randint(0, most) | draw.getrandbits(1) << 15 for _ in range(count)]
            self.memory.raw = struct.pack(f"<{count}H", *bits)
        else:
            scale = [2.0 ** draw.randint(-exponents, exponents) for _ in range(count)]
            values = [draw.uniform(-1, 1) * each for each in scale]
            self.memory.raw = struct.pack(f"<{count}{CODE[self.dtype]}", *values)
        return self

    def values(self) -> tuple[float, ...]:
        """Return all elements."""
        return struct.unpack(f"<{math.prod(self.shape)}{CODE[self.dtype]}", self.memory.raw)


def torch_of_names() -> ModuleType:
    """Return a module with the names that the kernels ask torch for."""
    module = ModuleType("torch")
    module.empty_like = lambda x: Tensor(x.dtype, x.shape)  # type: ignore[attr-defined]
    module.Tensor = Tensor  # type: ignore[attr-defined]
    for name in BYTES:
        setattr(module, name, sys.intern(name))
    return module


def kernel(folder: Path, name: str) -> ModuleType:
    """Load the compiled module of this name from anywhere below the folder."""
    (file,) = (file for file in folder.rglob(f"{name}.*") if file.suffix in (".so", ".pyd"))
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def digest_of_rotations(rotate: ModuleType) -> str:
    """Return a digest of what rotation writes, in every dtype and layout, for many sizes."""
    draw, digest = random.Random(0), hashlib.sha256()
    layouts = itertools.product((0, 1), (0, 1), (0, 3), (-2, -3), (0, 1))
    for dtype, layout, pairs in itertools.product(BYTES, layouts, (1, 5, 16, 33)):
        shape = (2, 3, 4, 2 * pairs + 5)
        x = Tensor(sys.intern(dtype), shape).fill(draw, 12)
        wide = "float64" if dtype == "float64" else "float32"
        tables = [Tensor(wide, (shape[layout[3]], pairs)).fill(draw) for _ in range(2)]
        (out,) = rotate.rotate((x,), None, *tables, 0, layout, 1, 1 << 17)
        digest.update(out.memory.raw)
    return digest.hexdigest()


def error_of_attention(attend: ModuleType, keys: int = 21, dim: int = 48) -> float:
    """Return the largest difference of attention from double precision."""
    draw = random.Random(0)
    q, k, v = (Tensor("float32", (1, 1, n, dim)).fill(draw) for n in (1, keys, keys))
    out = Tensor("float32", q.shape)
    if not attend.attend(q, k, v, None, out, 0.5, 1):
        raise ValueError("attend must read these tensors")
    rows = [k.values()[i * dim : (i + 1) * dim] for i in range(keys)]
    weights = [math.exp(0.5 * sum(map(float.__mul__, q.values(), row))) for row in rows]
    total, values = sum(weights), v.values()
    wanted = [
        sum(w * values[i * dim + d] for i, w in enumerate(weights)) / total for d in range(dim)
    ]
    return max(abs(a - b) for a, b in zip(out.values(), wanted, strict=True))


def main(folder: Path) -> None:
    """Run both kernels with each set of instructions that the processor has."""
    sys.modules["torch"] = torch_of_names()
    rotate, attend = kernel(folder, "_rotate"), kernel(folder, "_attend")
    for most in ("portable", "avx2", "avx512", "avx512bf16"):
        if rotate.limit(most) != most:
            continue
        attend.limit(most)
        digest, error = digest_of_rotations(rotate), error_of_attention(attend)
        print(f"{most}: rotation {digest[:12]}, attention within {error:.1e}")
        if digest != DIGEST or error > 1e-6:
            raise SystemExit(f"rotation must be {DIGEST[:12]}, and attention within 1e-6")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        import ropewalk  # it imports torch on first use, not here

        main(Path(ropewalk.__file__).parent)
