"""The C extensions, which need more than pyproject.toml can say; all else stands there."""

import sys
from glob import glob

from setuptools import Extension, setup

FLAGS = ["-O3", "-g0", "-fno-trapping-math", "-pthread"]  # selections need no branch
AS_TORCH = ["-ffp-contract=off"]  # rounds as torch does
LIBRARIES = ["-pthread", "-ldl"]
if sys.platform == "win32":
    FLAGS = AS_TORCH = LIBRARIES = []
HEADERS = sorted(glob("src/ropewalk/**/*.h", recursive=True))


def extension(module: str, flags: list[str]) -> Extension:
    """Return the extension of this name, whose source has the same path."""
    return Extension(
        module,
        [f"src/{module.replace('.', '/')}.c"],
        depends=HEADERS,
        extra_compile_args=[*FLAGS, *flags],
        extra_link_args=LIBRARIES,
        py_limited_api=True,
        optional=True,  # without a compiler the same is computed in torch
    )


setup(
    ext_modules=[
        extension("ropewalk.rotary.kernels._rotate", AS_TORCH),
        extension("ropewalk.model._attend", ["-ffp-contract=fast"]),
    ]
)
