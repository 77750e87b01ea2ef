"""The layout is the architecture: which package may import which, and what an import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import parallelrnn

SOURCE = Path(parallelrnn.__file__).parent
# A package may import itself and those before it, and the two modules at the top.
MODULES = ["errors", "io"]
ORDER = [
    *MODULES,
    "kernels",
    "nn",
    "interpret",
    "classical",
    "theory",
    "training",
    "forecast",
    "sequence",
    "integrations",
    "lab",
    "cli",
]


def imports(path: Path) -> set[str]:
    """The packages of parallelrnn that a file imports anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    ours = {parts[1] for name in names if (parts := name.split("."))[0] == "parallelrnn" and len(parts) > 1}
    public = ours & set(parallelrnn.__all__)  # imported from the top, defined in a package
    return ours - public | {getattr(parallelrnn, name).__module__.split(".")[1] for name in public}


def test_dependencies_point_one_way() -> None:
    seen = set()
    for path in SOURCE.glob("*/**/*.py"):
        package = path.relative_to(SOURCE).parts[0]
        allowed = ORDER[: ORDER.index(package) + 1]
        assert imports(path) <= set(allowed), f"{path} imports {imports(path) - set(allowed)}"
        seen.add(package)
    assert seen == set(ORDER) - set(MODULES)


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_the_package_imports_nothing_else() -> None:
    assert run("import sys, parallelrnn; print([m for m in ('torch', 'numpy') if m in sys.modules])") == "[]"


def test_layers_and_reading_need_torch_and_numpy_alone() -> None:
    others = "scipy pandas narwhals safetensors lightning_fabric statsmodels onnx typer rich matplotlib plotly"
    packages = (*others.split(), "jinja2.environment")
    script = f"import sys, parallelrnn.nn, parallelrnn.interpret; print([m for m in {packages} if m in sys.modules])"
    assert run(script) == "[]"


def test_a_missing_package_is_named_with_the_extra_that_installs_it() -> None:
    script = "import sys; sys.modules['pandas'] = None; import parallelrnn\ntry: parallelrnn.Forecaster\n"
    message = run(f"{script}except ModuleNotFoundError as error: print(error)")
    assert "pandas" in message
    assert "pip install 'parallelrnn[forecast]'" in message


def test_public_names() -> None:
    assert sorted(parallelrnn.__all__) == parallelrnn.__all__
    for name in parallelrnn.__all__:
        assert getattr(parallelrnn, name).__doc__
