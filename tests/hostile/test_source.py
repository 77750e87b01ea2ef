"""Nothing that is read runs: the source calls nothing that could."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import parallelrnn

SOURCE = Path(parallelrnn.__file__).parent
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "runpy", "code"}
NAMES = {"eval", "exec", "compile", "__import__"}
METHODS = {  # what a name of a module may not be asked for
    "torch": {"load"},
    "os": {"system", "popen"},
    "pd": {"read_pickle", "eval", "read_hdf"},
    "tarfile": {"extract"},
}
EXTRACTS = {"extractall", "unpack_archive"}


def violations(tree: ast.AST) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            modules = {
                name.split(".")[0] for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else names)
            }
            found += sorted(modules & MODULES)
        if not isinstance(node, ast.Call):
            continue
        told = {word.arg: word.value for word in node.keywords}
        if isinstance(node.func, ast.Name) and node.func.id in NAMES:
            found.append(node.func.id)
        if isinstance(node.func, ast.Attribute):
            owner, method = ast.unparse(node.func.value), node.func.attr
            if method in METHODS.get(owner, ()) or method in EXTRACTS:
                found.append(f"{owner}.{method}")
            pickles = told.get("allow_pickle")
            if method == "load" and owner in ("np", "numpy") and not _is(pickles, False):
                found.append(f"{owner}.load without allow_pickle=False")
        if "shell" in told and not _is(told["shell"], False):
            found.append("shell=")
        if "allow_pickle" in told and not _is(told["allow_pickle"], False):
            found.append("allow_pickle=")
    return found


def _is(node: ast.expr | None, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.AST]:
    found = {str(path): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.glob("**/*.py")}
    assert len(found) > 150
    return dict(found)


def test_nothing_that_is_read_can_run(trees: dict[str, ast.AST]) -> None:
    assert {path: wrong for path, tree in trees.items() if (wrong := violations(tree))} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from joblib import load",
        "torch.load(path)",
        "eval(text)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "subprocess.run(words, shell=True)",
        "archive.extractall(path)",
        "yaml.load(text); import yaml",
    ],
)
def test_the_rule_knows_what_runs(text: str) -> None:
    assert violations(ast.parse(text))


def test_every_address_is_of_https(trees: dict[str, ast.AST]) -> None:
    nodes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = [node.value for node in nodes if isinstance(node.value, str)]
    assert [text for text in texts if "http://" in text] == []
    assert sum("https://" in text for text in texts) > 5
