"""The C extension, which needs more than pyproject.toml can say; all else stands there."""

import sys

from setuptools import Extension, setup

FLAGS = [
    "-O3",
    "-g0",
    "-ffp-contract=off",  # rounds as torch does
    "-fno-trapping-math",  # selections need no branch
    "-pthread",
]
if sys.platform == "win32":
    FLAGS = []

setup(
    ext_modules=[
        Extension(
            "ropewalk.rotary.kernels._rotate",
            ["src/ropewalk/rotary/kernels/_rotate.c"],
            depends=["src/ropewalk/rotary/kernels/_rotate_loops.h"],
            extra_compile_args=FLAGS,
            extra_link_args=FLAGS[-1:],
            py_limited_api=True,
            optional=True,  # without a compiler the same is computed in torch
        )
    ]
)
