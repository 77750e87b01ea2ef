"""Build the C kernels, where there is a compiler; without one the package works, with slower recurrences.

Everything else about the package is in pyproject.toml.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# Never -ffast-math: linked with it, a library turns on flush-to-zero for the whole process. Never -march: the files of
# each instruction set ask for it themselves, and one is picked when the library is loaded.
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
    """A plain shared library, called through ctypes: it knows nothing of Python and serves every version of it."""

    def get_ext_filename(self, fullname: str) -> str:
        """No tag of a Python version."""
        return fullname.replace(".", "/") + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        """No initialisation function of a Python module."""
        return []

    def build_extension(self, ext: Extension) -> None:
        """With threads where the compiler has OpenMP."""
        try:
            self._build(ext, ["-fopenmp"])
        except Exception as error:  # whatever it is, the next try shows it if it was not OpenMP
            print(f"without OpenMP, so in one thread: {error}", file=sys.stderr)
            self._build(ext, [])

    def _build(self, ext: Extension, openmp: list[str]) -> None:
        def compile_one(source: str) -> list[str]:
            return self.compiler.compile(
                [source], output_dir=self.build_temp, extra_postargs=[*FLAGS, *openmp], depends=ext.depends
            )

        with ThreadPoolExecutor() as pool:
            objects = [name for names in pool.map(compile_one, ext.sources) for name in names]
        # Python's own flags may hold the path of a library folder on this machine, which has no place in a wheel.
        self.compiler.linker_so = [flag for flag in self.compiler.linker_so if "-rpath" not in flag]
        self.compiler.link_shared_object(objects, self.get_ext_fullpath(ext.name), extra_postargs=openmp)


class TagByPlatform(bdist_wheel):
    """The wheel depends on the platform, but not on the version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        """py3-none-PLATFORM."""
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
