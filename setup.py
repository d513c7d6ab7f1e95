"""The C extensions and the folder conformance/; pyproject.toml has all else."""

import sys
import sysconfig
from glob import glob
from pathlib import Path
from shutil import copytree, ignore_patterns

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

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
        py_limited_api=bool(ABI),
        optional=True,  # without a compiler the same is computed in torch
    )


class WithConformance(build_py):
    """Also copies conformance/ into the wheel, whose vectors the catalogue reads."""

    def run(self) -> None:
        """Build the package; an editable one reads the folder where it is."""
        super().run()
        if not self.editable_mode:
            home = Path(self.build_lib, "ropewalk", "conformance")
            copytree("conformance", home, ignore=ignore_patterns("__pycache__"), dirs_exist_ok=True)


# One wheel for all versions of Python from here on; without the GIL, Python has no stable ABI.
ABI = {} if sysconfig.get_config_var("Py_GIL_DISABLED") else {"py_limited_api": "cp311"}

setup(
    cmdclass={"build_py": WithConformance},
    options={"bdist_wheel": ABI},
    ext_modules=[
        extension("ropewalk.rotary.kernels._rotate", AS_TORCH),
        extension("ropewalk.model._attend", ["-ffp-contract=fast"]),
    ],
)
