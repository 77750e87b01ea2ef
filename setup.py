"""Build the C kernels. Without a compiler the package still works, with slower recurrences.

Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# Never -ffast-math: a library linked with it turns on flush-to-zero for the whole process. Never -march: the source of
# each instruction set enables it, and the best one is chosen when the library is loaded.
FLAGS = [
    "-std=gnu11",
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fvisibility=hidden",
    "-g0",
]
SOURCES = Path("src/parallelrnn/kernels/csrc")


class BuildKernels(build_ext):
    """Build a plain shared library for ctypes; it does not depend on the version of Python."""

    def get_ext_filename(self, fullname: str) -> str:
        """Return a file name without the tag of a Python version."""
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """Return nothing: there is no initialisation function of a Python module."""
        return []

    def build_extension(self, ext: Extension) -> None:
        """Build with OpenMP, or without it if the compiler has none."""
        try:
            self._build(ext, ["-fopenmp"])
        except Exception as error:  # if OpenMP is not the reason, the next attempt fails as well
            print(f"building without OpenMP, for one thread: {error}", file=sys.stderr)
            self._build(ext, [])

    def _build(self, ext: Extension, openmp: list[str]) -> None:
        def compile_source(source: str) -> list[str]:
            return self.compiler.compile(
                [source], output_dir=self.build_temp, extra_postargs=[*FLAGS, *openmp], depends=ext.depends
            )

        with ThreadPoolExecutor() as pool:
            objects = [name for names in pool.map(compile_source, ext.sources) for name in names]
        # Python's own flags may name a library folder of this machine, which must not end up in a wheel.
        self.compiler.linker_so = [flag for flag in self.compiler.linker_so if "-rpath" not in flag]
        self.compiler.link_shared_object(objects, self.get_ext_fullpath(ext.name), extra_postargs=openmp)


class TagByPlatform(bdist_wheel):
    """Tag the wheel for the platform, and for every version of Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return py3-none-PLATFORM."""
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[
        Extension(
            "parallelrnn.kernels.csrc.recurrence",
            sorted(str(path) for path in SOURCES.glob("*.c")),
            depends=sorted(str(path) for path in SOURCES.glob("*.h")),
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": TagByPlatform},
)
