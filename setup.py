"""The C extension, which needs more than pyproject.toml can say; all else stands there."""

import sys
from glob import glob

from setuptools import Extension, setup

FLAGS = [
    "-O3",
    "-g0",
    "-ffp-contract=off",  # rounds as torch does
    "-fno-trapping-math",  # selections need no branch
    "-pthread",
]
LIBRARIES = ["-pthread", "-ldl"]
if sys.platform == "win32":
    FLAGS = LIBRARIES = []
HERE = "src/ropewalk/rotary/kernels/"

setup(
    ext_modules=[
        Extension(
            "ropewalk.rotary.kernels._rotate",
            [HERE + "_rotate.c"],
            depends=sorted(glob(HERE + "*.h")),
            extra_compile_args=FLAGS,
            extra_link_args=LIBRARIES,
            py_limited_api=True,
            optional=True,  # without a compiler the same is computed in torch
        )
    ]
)
