"""Which package may import which, and what an import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import parallelrnn

SOURCE = Path(parallelrnn.__file__).parent
# A package may import itself and those before it, but not one that a comma joins to it; __init__ is the public names.
ORDER = (
    "errors io kernels nn interpret classical,theory training forecast,sequence __init__ integrations lab cli __main__"
)


def imports(path: Path) -> set[str]:
    """Return what a file imports of parallelrnn anywhere in it, as `nn.recurrent`."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    ours = {name.removeprefix("parallelrnn.") for name in names if name.startswith("parallelrnn.")}
    return {"__init__" if name in parallelrnn.__all__ else name for name in ours}


def run(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()


def test_dependencies_point_one_way() -> None:
    packages = set[str]()
    for level in map(set, (names.split(",") for names in ORDER.split())):
        for package in level:
            paths = [*SOURCE.glob(f"{package}.py"), *SOURCE.glob(f"{package}/**/*.py")]
            assert paths
            for path in paths:
                assert {name.split(".")[0] for name in imports(path)} <= packages | {package}, path
        packages |= level
    assert {path.relative_to(SOURCE).with_suffix("").parts[0] for path in SOURCE.rglob("*.py")} == packages


def test_experiments_know_neither_runs_nor_tables() -> None:
    for path in (SOURCE / "lab" / "experiments").rglob("*.py"):
        lab = {name.split(".")[1] for name in imports(path) if name.startswith("lab.")}
        assert lab <= {"benchmarks", "datasets", "experiments"}, path


@pytest.mark.parametrize(
    ("script", "imported"),
    [
        ("import parallelrnn, parallelrnn.errors, parallelrnn.io, parallelrnn.cli", []),
        ("from parallelrnn import ParaLSTM, recurrence_features", ["torch", "numpy"]),
    ],
)
def test_imports_are_cheap(script: str, imported: list[str]) -> None:
    packages = (
        "torch numpy scipy pandas narwhals safetensors lightning_fabric statsmodels onnx typer rich matplotlib plotly "
        "jinja2.environment"
    )
    script = f"import sys; {script}; print([name for name in {packages.split()} if name in sys.modules])"
    assert run(script) == str(imported)


@pytest.mark.parametrize("order", ["torch, parallelrnn", "parallelrnn.nn, torch"])
def test_importing_registers_the_operators(order: str, tmp_path: Path) -> None:
    layer, x = parallelrnn.ParaGRU(2, 4), torch.ones(3, 1, 2)
    path = tmp_path / "layer.pt2"
    torch.export.save(torch.export.export(layer, (x,)), path)
    output = f"torch.export.load({str(path)!r}).module()(torch.ones(3, 1, 2))[0]"
    assert float(run(f"import {order}; print({output}.sum().item())")) == pytest.approx(layer(x)[0].sum().item())


def test_public_names_and_packages_are_attributes() -> None:
    assert sorted(parallelrnn.__all__) == parallelrnn.__all__
    assert set(parallelrnn.__all__) <= set(dir(parallelrnn))
    for name in parallelrnn.__all__:
        assert getattr(parallelrnn, name).__doc__
    for name in ("errors", "interpret", "io", "kernels", "nn"):
        assert parallelrnn.__getattr__(name) is sys.modules[f"parallelrnn.{name}"]
    with pytest.raises(AttributeError, match="no_such_name"):
        parallelrnn.no_such_name  # noqa: B018


def test_a_missing_package_is_named_with_its_extra() -> None:
    script = "import sys; sys.modules['pandas'] = None; import parallelrnn\ntry: parallelrnn.Forecaster\n"
    message = run(f"{script}except ModuleNotFoundError as error: print(error)")
    assert "pandas" in message
    assert "parallelrnn[forecast]" in message


def test_everything_is_imported_where_extras_are_missing() -> None:
    """Without the packages that estimators need, `import *` imports the rest."""
    program = """if True:
        import sys
        for name in ("pandas", "sklearn"):
            sys.modules[name] = None  # as if it were not installed
        import importlib.util
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name: None if name in ("pandas", "sklearn") else found(name)
        from parallelrnn import *
        assert ParaLSTM and swap
        try:
            from parallelrnn import Forecaster
        except ImportError as error:
            assert "parallelrnn[forecast]" in str(error), error
        else:
            raise AssertionError
    """
    subprocess.run([sys.executable, "-c", program], check=True)


def test_is_imported_beside_a_package_without_a_spec() -> None:
    """Such as a stand-in that somebody's tests have put into sys.modules."""
    program = "import sys, types; sys.modules['pandas'] = types.ModuleType('pandas'); import parallelrnn"
    subprocess.run([sys.executable, "-c", program], check=True)
